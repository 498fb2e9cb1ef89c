#include "nn/layers/initial_weights.h"

#include <cmath>

#include "engine/settings/registry.h"

namespace orrery::nn {
namespace {

constexpr double smallest = 1e-6, largest = 1e3;  // standard deviations outside this range are typos

double inverse_sqrt_width(int64_t width) { return 1 / std::sqrt(static_cast<double>(width)); }

double std_of(const Spec& spec, int64_t width) {
  if (spec.name == "inverse_sqrt_width" && spec.items.empty()) return inverse_sqrt_width(width);
  const double std = parse_number("initialization", print(spec));
  check(std >= smallest && std <= largest, "initialization is ", print_number(std), "; it must be at least ",
        print_number(smallest), " and at most ", print_number(largest));
  return std;
}

bool is_number(const Spec& spec) {
  return spec.items.empty() && spec.name.find_first_not_of("+-.0123456789e") == std::string::npos;
}

Initialization scaled_by_depth(double std, int64_t layers, int64_t branches) {
  return scaled_normal(std * std::sqrt(2.0 / static_cast<double>(branches)), layers);
}

}  // namespace

Limits initialization_names() {
  return with_aliases({"fan_in|by_inputs", "inverse_sqrt_width|by_width", "normal|equal"});
}

// Fixup scales the matrices of L branches of m matrices by L^(-1 / (2 m - 2)). Here m = 2.
Initialization InitialWeights::hidden(int64_t inputs, int64_t outputs, int64_t layers, int64_t branches) const {
  return form == Form::fixup ? scaled_by_depth(std, layers, branches) : other(inputs, outputs);
}
Initialization InitialWeights::residual_output(int64_t inputs, int64_t outputs, int64_t layers,
                                               int64_t branches) const {
  if (form == Form::fixup) return constant(0);
  return form == Form::normal && !same_std ? scaled_by_depth(std, layers, branches) : other(inputs, outputs);
}
Initialization InitialWeights::other(int64_t inputs, int64_t outputs) const {
  if (form == Form::fan_in) return uniform(1 / std::sqrt(static_cast<double>(inputs)));
  return form == Form::xavier ? xavier_uniform(inputs, outputs) : normal(std);
}
Initialization InitialWeights::head(int64_t inputs, int64_t outputs) const {
  return zero_head ? constant(0) : other(inputs, outputs);
}

InitialWeights initial_weights(const Spec& spec, int64_t width) {
  using Form = InitialWeights::Form;
  if (spec.name == "inverse_sqrt_width" || is_number(spec)) {
    const double std = std_of(spec, width);
    return {.std = std, .table_std = std};
  }
  if (const bool fixup = spec.name == "fixup"; fixup || spec.name == "normal") {
    check(spec.items.size() == 1 && spec.items[0].key.empty(), "initialization: '", spec,
          "' needs one standard deviation, as in ", spec.name, "(0.02) or ", spec.name, "(inverse_sqrt_width)");
    const double std = std_of(spec.items[0].value, width);
    if (fixup) return {.form = Form::fixup, .std = std, .table_std = std, .zero_head = true};
    return {.std = std, .same_std = true, .table_std = std};
  }
  check(spec.items.empty(), "initialization: '", spec, "': only normal(...) and fixup(...) take an argument");
  if (spec.name == "relu_revival") return {.same_std = true};
  if (spec.name == "adaptive_span" || spec.name == "fan_in") return {.form = Form::fan_in, .table_std = 1};
  if (spec.name == "relu_vision")
    return {.form = Form::xavier, .table_std = inverse_sqrt_width(width), .zero_head = true};
  if (spec.name == "relu_former") return {.form = Form::xavier, .table_std = inverse_sqrt_width(width)};
  static const std::vector<std::string> names = {"a number", "inverse_sqrt_width", "normal",
                                                 "fixup",    "relu_revival",       "adaptive_span",
                                                 "fan_in",   "relu_vision",        "relu_former"};
  detail::fail_unknown("initialization", spec.name, names, {});
}

}  // namespace orrery::nn
