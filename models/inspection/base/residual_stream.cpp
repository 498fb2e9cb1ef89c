#include "models/inspection/base/residual_stream.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "models/architectures/headed_model.h"
#include "models/inspection/base/normalizations.h"
#include "models/inspection/base/replacing.h"
#include "nn/layers/linear.h"

namespace orrery::models {
namespace {

const std::string ending = ".residual";

// Deviation of b_k x_k from a multiple of r_(k-1) that counts as rounding: bf16 has 8 bits.
constexpr double rounding = 1.0 / 64;

double dot(const Tensor& x, const Tensor& y) { return sum(x.to(Dtype::f64) * y.to(Dtype::f64)).item(); }
Tensor as_rows(const Tensor& x) { return as_seen(x).reshape(Shape{x.shape().rows(), x.shape().last()}); }

// Returns b_k x_k of each sublayer: its state if only this sublayer's output were zero. One pass
// finds all, because the hook restores each state.
std::map<std::string, Tensor> left_without_sublayers(const Subject& subject, const std::vector<ResidualStream>& streams,
                                                     const std::map<std::string, Tensor>& states) {
  std::vector<std::string> names;
  for (const ResidualStream& stream : streams)
    for (const ResidualState& state : stream.states)
      if (!state.is_embedding()) names.push_back(state.name), names.push_back(state.path + ".output");
  std::map<std::string, Tensor> left;
  if (names.empty()) return left;
  const Hooks hooks(names, Hooks::Replace{[&](const std::string& name, const Tensor& value) {
                      if (!name.ends_with(ending)) return Tensor::zeros_like(value);
                      left[name] = as_rows(value);
                      return states.at(name);
                    }});
  subject.run();
  return left;
}

void find_added(ResidualStream& stream, const std::map<std::string, Tensor>& left) {
  stream.states[0].added = stream.states[0].value;
  for (size_t k = 1; k < stream.states.size(); ++k) {
    ResidualState& state = stream.states[k];
    const Tensor &remains = left.at(state.name), &before = stream.states[k - 1].value;
    state.added = plus(state.value, -1, remains);
    const double square = dot(before, before);
    state.kept = square > 0 ? dot(remains, before) / square : 1;
    stream.is_sum &= root_mean_square(plus(remains, -state.kept, before)) <= rounding * root_mean_square(remains);
  }
  for (size_t k = stream.states.size(); k-- > 1;)
    stream.states[k - 1].in_end = stream.states[k].in_end * stream.states[k].kept;
}

}  // namespace

ObservedStreams observe_streams(const Subject& subject) {
  ObservedStreams seen;
  std::vector<std::string> patterns = {"embedding", "*.embedding", "*" + ending};
  std::map<std::string, std::string> kinds;  // kinds of normalizations, by the names of their hooks
  for (const NormalizationFound& found : normalizations_of(subject.model())) {
    patterns.push_back(found.path + ".output");
    kinds[patterns.back()] = found.kind;
  }
  std::map<std::string, Tensor> states;
  seen.logits =
      see_values(subject, patterns, [&](const std::string& path, const std::string& name, const Tensor& value) {
        const std::string full = path.empty() ? name : path + "." + name;
        if (const auto kind = kinds.find(full); kind != kinds.end()) {
          seen.end.push_back(path + " (" + kind->second + ")");
          return;
        }
        seen.end.clear();  // they are before a state
        const bool begins = !full.ends_with(ending);
        if (begins) seen.streams.emplace_back();
        if (seen.streams.empty()) return;  // a residual without an embedding
        states[full] = value.detach();
        seen.streams.back().states.push_back({begins ? full : path, full, as_rows(value), {}});
      });
  const auto left = left_without_sublayers(subject, seen.streams, states);
  for (ResidualStream& stream : seen.streams) find_added(stream, left);
  return seen;
}

namespace {

// Returns null for a model without a known head; a hook then replaces its last state in full runs.
HeadedModel* headed(const Subject& subject) { return dynamic_cast<HeadedModel*>(&subject.model()); }

// Returns the head's input for states (positions, C): (rows of all states, C), state by state.
Tensor read_by_head(HeadedModel& model, std::span<const Tensor> states) {
  const Tensor weight = model.head().weight;
  const NoGrad guard;
  std::vector<Tensor> batch;
  for (const Tensor& state : states)
    batch.push_back(state.to(weight.dtype()).reshape(Shape{1, state.size(0), state.size(1)}));
  nn::Pass pass;
  const Tensor read = model.before_head(concatenate(batch, 0).to(weight.device()), pass);
  return read.reshape(Shape{read.numel() / read.size(-1), read.size(-1)});
}

}  // namespace

void each_logits(const Subject& subject, const ResidualStream& last, std::span<const Tensor> states,
                 const std::function<void(size_t index, const Tensor& logits)>& take) {
  HeadedModel* const model = headed(subject);
  if (!model) {
    for (size_t i = 0; i < states.size(); ++i) take(i, run_with(subject, last.last().name, states[i]));
    return;
  }
  constexpr int64_t most_logits = int64_t{1} << 25;  // per product: 128 MB of f32
  const auto [weight, bias] = model->head();
  const int64_t of_one = states.empty() ? 1 : states[0].size(0) * weight.size(0);
  const auto at_once = static_cast<size_t>(std::max<int64_t>(1, most_logits / of_one));
  for (size_t first = 0; first < states.size(); first += at_once) {
    const size_t here = std::min(at_once, states.size() - first);
    const NoGrad guard;
    const Tensor logits = as_seen(nn::linear(read_by_head(*model, states.subspan(first, here)), weight, bias));
    const int64_t rows = logits.size(0) / static_cast<int64_t>(here);
    for (size_t i = 0; i < here; ++i)
      take(first + i, logits.slice(static_cast<int64_t>(i) * rows, static_cast<int64_t>(i + 1) * rows));
  }
}

Tensor logits_of(const Subject& subject, const ResidualStream& last, const Tensor& state) {
  Tensor logits;
  each_logits(subject, last, std::span(&state, 1), [&](size_t, const Tensor& found) { logits = found; });
  return logits;
}

std::vector<std::vector<double>> answer_logits(const Subject& subject, const ResidualStream& last,
                                               std::span<const Tensor> states, std::span<const int32_t> answers) {
  const size_t rows = answers.size();
  std::vector<std::vector<double>> all(states.size(), std::vector<double>(rows, NAN));
  HeadedModel* const model = headed(subject);
  if (!model) {
    each_logits(subject, last, states, [&](size_t i, const Tensor& logits) {
      for (size_t row = 0; row < rows; ++row)
        if (answers[row] >= 0)
          all[i][row] = logits[static_cast<int64_t>(row)].to_vector()[static_cast<size_t>(answers[row])];
    });
    return all;
  }
  const auto [weight, bias] = model->head();
  std::vector<int32_t> asked(answers.begin(), answers.end());
  for (int32_t& answer : asked) answer = std::max(answer, 0);
  const Tensor indices = Tensor::from(Shape{static_cast<int64_t>(rows)}, asked).to(weight.device());
  const NoGrad guard;
  const Tensor of_answers = index_select(weight, indices).to(Device::cpu).to(Dtype::f64);  // (rows, C)
  const std::vector<double> biases =
      bias ? index_select(bias.reshape(Shape{bias.numel(), 1}), indices).to(Device::cpu).to_vector()
           : std::vector<double>(rows);
  for (size_t i = 0; i < states.size(); ++i) {
    const Tensor read = read_by_head(*model, states.subspan(i, 1)).to(Device::cpu).to(Dtype::f64);
    const std::vector<double> products = sum(read * of_answers, {-1}).to_vector();
    for (size_t row = 0; row < rows; ++row)
      if (answers[row] >= 0) all[i][row] = products[row] + biases[row];
  }
  return all;
}

double root_mean_square(const Tensor& x) { return std::sqrt(dot(x, x) / static_cast<double>(x.numel())); }
Tensor plus(const Tensor& x, double factor, const Tensor& y) { return x.to(Dtype::f64) + y.to(Dtype::f64) * factor; }

}  // namespace orrery::models
