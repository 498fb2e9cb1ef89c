#include "models/inspection/base/residual_stream.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "models/architectures/headed_model.h"
#include "models/inspection/base/edited_run.h"
#include "models/inspection/base/normalizations.h"
#include "nn/layers/linear.h"

namespace orrery::models {
namespace {

const std::string suffix = ".residual";

// Deviation of b_k x_k from a multiple of r_(k-1) that counts as rounding: bf16 has 8 bits.
constexpr double rounding = 1.0 / 64;

double dot(const Tensor& x, const Tensor& y) { return sum(x.to(Dtype::f64) * y.to(Dtype::f64)).item(); }
Tensor as_rows(const Tensor& x) { return to_cpu(x).reshape(Shape{x.shape().rows(), x.shape().last()}); }

// Returns b_k x_k of each sublayer: its state if only this sublayer's output were zero. One pass
// finds all, because the hook restores each state.
std::map<std::string, Tensor> states_without_sublayers(const InspectedExample& example,
                                                       const std::vector<ResidualStream>& streams,
                                                       const std::map<std::string, Tensor>& states) {
  std::vector<std::string> names;
  for (const ResidualStream& stream : streams)
    for (const ResidualState& state : stream.states)
      if (!state.is_embedding()) names.push_back(state.name), names.push_back(state.path + ".output");
  std::map<std::string, Tensor> remaining;
  if (names.empty()) return remaining;
  const Hooks hooks(names, Hooks::Replace{[&](const std::string& name, const Tensor& value) {
                      if (!name.ends_with(suffix)) return Tensor::zeros_like(value);
                      remaining[name] = as_rows(value);
                      return states.at(name);
                    }});
  example.run();
  return remaining;
}

void find_added(ResidualStream& stream, const std::map<std::string, Tensor>& remaining) {
  stream.states[0].added = stream.states[0].value;
  for (size_t k = 1; k < stream.states.size(); ++k) {
    ResidualState& state = stream.states[k];
    const Tensor &remains = remaining.at(state.name), &before = stream.states[k - 1].value;
    state.added = plus(state.value, -1, remains);
    const double square = dot(before, before);
    state.input_scale = square > 0 ? dot(remains, before) / square : 1;
    stream.is_sum &=
        root_mean_square(plus(remains, -state.input_scale, before)) <= rounding * root_mean_square(remains);
  }
  for (size_t k = stream.states.size(); k-- > 1;)
    stream.states[k - 1].end_scale = stream.states[k].end_scale * stream.states[k].input_scale;
}

}  // namespace

ObservedStreams observe_streams(const InspectedExample& example) {
  ObservedStreams observed;
  std::vector<std::string> patterns = {"embedding", "*.embedding", "*" + suffix};
  std::map<std::string, std::string> kinds;  // kinds of normalizations, by the names of their hooks
  for (const NormalizationModule& found : normalizations_of(example.model())) {
    patterns.push_back(found.path + ".output");
    kinds[patterns.back()] = found.kind;
  }
  std::map<std::string, Tensor> states;
  bool edited = false;  // after the last state so far
  const Hooks all({}, [&](const std::string& name, const Tensor&) {
    const bool is_state = name.ends_with(suffix) || name == "embedding" || name.ends_with(".embedding");
    edited = !is_state && (edited || has_replacement("", name));
  });
  observed.logits =
      capture_values(example, patterns, [&](const std::string& path, const std::string& name, const Tensor& value) {
        const std::string full = path.empty() ? name : path + "." + name;
        if (const auto kind = kinds.find(full); kind != kinds.end()) {
          observed.final_norms.push_back(path + " (" + kind->second + ")");
          return;
        }
        observed.final_norms.clear();  // they are before a state
        const bool begins = !full.ends_with(suffix);
        if (begins) observed.streams.emplace_back();
        if (observed.streams.empty()) return;  // a residual without an embedding
        states[full] = value.detach();
        observed.streams.back().states.push_back({begins ? full : path, full, as_rows(value), {}});
      });
  if (!observed.streams.empty()) observed.streams.back().is_edited_after = edited;
  const auto remaining = states_without_sublayers(example, observed.streams, states);
  for (ResidualStream& stream : observed.streams) find_added(stream, remaining);
  return observed;
}

namespace {

// Returns null for a model without a known head, or with edits that the head alone would not see; a hook then
// replaces its last state in full runs.
HeadedModel* headed_model(const InspectedExample& example, const ResidualStream& last) {
  return last.is_edited_after ? nullptr : dynamic_cast<HeadedModel*>(&example.model());
}

// Returns the head's input for states (positions, C): (rows of all states, C), state by state.
Tensor head_input(HeadedModel& model, std::span<const Tensor> states) {
  const Tensor weight = model.head().weight;
  const NoGrad guard;
  std::vector<Tensor> batch;
  for (const Tensor& state : states)
    batch.push_back(state.to(weight.dtype()).reshape(Shape{1, state.size(0), state.size(1)}));
  nn::ForwardPass pass;
  const Tensor input = model.before_head(concatenate(batch, 0).to(weight.device()), pass);
  return input.reshape(Shape{input.numel() / input.size(-1), input.size(-1)});
}

}  // namespace

void for_each_logits(const InspectedExample& example, const ResidualStream& last, std::span<const Tensor> states,
                     const std::function<void(size_t index, const Tensor& logits)>& take) {
  HeadedModel* const model = headed_model(example, last);
  if (!model) {
    for (size_t i = 0; i < states.size(); ++i) take(i, run_replaced(example, last.last().name, states[i]));
    return;
  }
  constexpr int64_t max_logits = int64_t{1} << 25;  // per product: 128 MB of f32
  const auto [weight, bias] = model->head();
  const int64_t per_state = states.empty() ? 1 : states[0].size(0) * weight.size(0);
  const auto chunk = static_cast<size_t>(std::max<int64_t>(1, max_logits / per_state));
  for (size_t first = 0; first < states.size(); first += chunk) {
    const size_t count = std::min(chunk, states.size() - first);
    const NoGrad guard;
    const Tensor logits = to_cpu(nn::linear(head_input(*model, states.subspan(first, count)), weight, bias));
    const int64_t rows = logits.size(0) / static_cast<int64_t>(count);
    for (size_t i = 0; i < count; ++i)
      take(first + i, logits.slice(static_cast<int64_t>(i) * rows, static_cast<int64_t>(i + 1) * rows));
  }
}

Tensor logits_of(const InspectedExample& example, const ResidualStream& last, const Tensor& state) {
  Tensor logits;
  for_each_logits(example, last, std::span(&state, 1), [&](size_t, const Tensor& found) { logits = found; });
  return logits;
}

std::vector<std::vector<double>> target_logits(const InspectedExample& example, const ResidualStream& last,
                                               std::span<const Tensor> states, std::span<const int32_t> targets) {
  const size_t rows = targets.size();
  std::vector<std::vector<double>> all(states.size(), std::vector<double>(rows, NAN));
  HeadedModel* const model = headed_model(example, last);
  if (!model) {
    for_each_logits(example, last, states, [&](size_t i, const Tensor& logits) {
      for (size_t row = 0; row < rows; ++row)
        if (targets[row] >= 0)
          all[i][row] = logits[static_cast<int64_t>(row)].to_vector()[static_cast<size_t>(targets[row])];
    });
    return all;
  }
  const auto [weight, bias] = model->head();
  std::vector<int32_t> row_targets(targets.begin(), targets.end());
  for (int32_t& target : row_targets) target = std::max(target, 0);
  const Tensor indices = Tensor::from(Shape{static_cast<int64_t>(rows)}, row_targets).to(weight.device());
  const NoGrad guard;
  const Tensor target_weights = index_select(weight, indices).to(Device::cpu).to(Dtype::f64);  // (rows, C)
  const std::vector<double> biases =
      bias ? index_select(bias.reshape(Shape{bias.numel(), 1}), indices).to(Device::cpu).to_vector()
           : std::vector<double>(rows);
  for (size_t i = 0; i < states.size(); ++i) {
    const Tensor input = head_input(*model, states.subspan(i, 1)).to(Device::cpu).to(Dtype::f64);
    const std::vector<double> products = sum(input * target_weights, {-1}).to_vector();
    for (size_t row = 0; row < rows; ++row)
      if (targets[row] >= 0) all[i][row] = products[row] + biases[row];
  }
  return all;
}

double root_mean_square(const Tensor& x) { return std::sqrt(dot(x, x) / static_cast<double>(x.numel())); }
Tensor plus(const Tensor& x, double factor, const Tensor& y) { return x.to(Dtype::f64) + y.to(Dtype::f64) * factor; }

}  // namespace orrery::models
