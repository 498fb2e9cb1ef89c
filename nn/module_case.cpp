// Gradient cases of whole modules.
#include <algorithm>
#include <cmath>

#include "engine/ops.h"
#include "nn/attend.h"
#include "nn/attention.h"
#include "nn/gradient_case.h"
#include "nn/position.h"

namespace orrery::nn {
namespace {

// A random state near the initial one, strictly inside the parameter's bounds.
Tensor random_state(const Parameter& p, const CaseTensors& random) {
  std::vector<double> x = random(p.value.shape()).to_vector();
  const bool bounded = std::isfinite(p.lowest) && std::isfinite(p.highest);
  const double center = p.initialization.kind == Initialization::Kind::constant ? p.initialization.a : 0;
  for (double& e : x) {
    if (bounded)
      e = p.lowest + (p.highest - p.lowest) * (0.5 + 0.4 * std::tanh(e));
    else if (std::isfinite(p.lowest))
      e = p.lowest + 0.2 + std::abs(center + 0.3 * e);
    else
      e = center + 0.4 * e;
  }
  return Tensor::from(p.value.shape(), x, Dtype::f64);
}

}  // namespace

GradientCase module_case(const ModuleCase& settings, const CaseTensors& random) {
  Module& module = *settings.module;
  name_paths(module);
  convert(module, Dtype::f64);
  GradientCase test{.inputs = {{"x", random(settings.input)}}, .fast = {}, .reference = {}};
  const std::vector<NamedParameter> parameters = parameters_of(module);
  for (const NamedParameter& p : parameters) test.inputs.push_back({p.path, random_state(*p.parameter, random)});
  test.fast = [kept = settings.module, parameters, prepare = settings.prepare](const std::vector<Tensor>& in) {
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].parameter->value = in[i + 1];
    Pass pass;
    if (prepare) prepare(pass);
    return (*kept)(in[0], pass);
  };
  if (settings.against_simple)
    test.reference = [fast = test.fast](const std::vector<Tensor>& in) {
      const SimpleOperations guard;
      return fast(in);
    };
  return test;
}

namespace {

Tensor whole_numbers(const Shape& shape, const std::vector<int32_t>& values) { return Tensor::from(shape, values); }

struct Condition {
  std::string title;
  AttentionOptions options;
  Shape input;
  std::function<void(Pass&)> prepare;
};

std::vector<Condition> conditions(bool cross) {
  std::vector<Condition> all = {{"causal, T 17", {.width = 16, .heads = 2, .context = 32}, {1, 17, 16}, {}},
                                {"full with lengths, T 9",
                                 {.width = 20, .heads = 4, .key_heads = 2, .causal = false, .context = 32},
                                 {2, 9, 20},
                                 [](Pass& pass) {
                                   pass.lengths = whole_numbers({2}, {9, 4});
                                 }},
                                {"packed documents, T 6",
                                 {.width = 9, .heads = 3, .bias = false, .context = 32},
                                 {2, 6, 9},
                                 [](Pass& pass) {
                                   pass.documents = whole_numbers({2, 6}, {0, 0, 0, 1, 1, 2, 5, 5, 5, 5, 5, 3});
                                 }},
                                {"one token", {.width = 8, .heads = 1, .context = 32}, {2, 1, 8}, {}}};
  if (!cross) return all;
  const Tensor memory = Tensor::empty({2, 5, 7}, Dtype::f64);
  fill(memory, normal(1), RandomKey{11, 3});
  all.push_back({"cross, Tq 3, Tk 5",
                 {.width = 12, .heads = 2, .causal = false, .context = 32, .memory_width = 7},
                 {2, 3, 12},
                 [memory](Pass& pass) {
                   pass.memory = memory;
                   pass.memory_lengths = whole_numbers({2}, {5, 2});
                 }});
  return all;
}

}  // namespace

bool add_attention_cases(std::string_view name, const std::vector<std::string>& specs, bool cross) {
  for (const std::string& text : specs)
    for (const Condition& c : conditions(cross))
      add_gradient_case(
          "attention", std::string(name),
          [text, c](const CaseTensors& random) {
            return module_case({.module = make_attention(parse_spec(text), c.options),
                                .input = c.input,
                                .prepare = c.prepare,
                                .against_simple = true},
                               random);
          },
          text + ", " + c.title);
  return true;
}

}  // namespace orrery::nn
