#include "models/inspection/base/residual_stream.h"

#include <cmath>
#include <map>

#include "engine/ops/ops.h"
#include "models/inspection/base/replacing.h"

namespace orrery::models {
namespace {

const std::string ending = ".residual";

// By how much more than rounding b x may differ from what is left without the sublayer: bf16 has 8 bits.
constexpr double rounding = 1.0 / 64;

double dot(const Tensor& x, const Tensor& y) { return sum(x.to(Dtype::f64) * y.to(Dtype::f64)).item(); }
Tensor as_rows(const Tensor& x) { return as_seen(x).reshape(Shape{x.shape().rows(), x.shape().last()}); }

// Of each sublayer b_k x_k: its state if it said nothing, everything before it being as it was.  One pass finds all,
// because each state is put right again.
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

std::vector<ResidualStream> residual_streams(const Subject& subject) {
  std::vector<ResidualStream> streams;
  std::map<std::string, Tensor> states;
  see_values(subject, {"embedding", "*.embedding", "*" + ending},
             [&](const std::string& path, const std::string& name, const Tensor& value) {
               const std::string full = path.empty() ? name : path + "." + name;
               const bool begins = !full.ends_with(ending);
               if (begins) streams.emplace_back();
               if (streams.empty()) return;  // a residual without a beginning
               states[full] = value.detach();
               streams.back().states.push_back({begins ? full : path, full, as_rows(value), {}});
             });
  const auto left = left_without_sublayers(subject, streams, states);
  for (ResidualStream& stream : streams) find_added(stream, left);
  return streams;
}

Tensor logits_of(const Subject& subject, const ResidualStream& last, const Tensor& state) {
  return run_with(subject, last.last().name, state);
}

double root_mean_square(const Tensor& x) { return std::sqrt(dot(x, x) / static_cast<double>(x.numel())); }
Tensor plus(const Tensor& x, double factor, const Tensor& y) { return x.to(Dtype::f64) + y.to(Dtype::f64) * factor; }

}  // namespace orrery::models
