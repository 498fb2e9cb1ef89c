// Every feed-forward compared with golden files, written by PyTorch from the papers' equations.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/support/feed_forward_layers.h"
#include "tests/support/golden_cases.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

// Returns a case's tensor (with prefix "d": gradient) for the parameter at `path`, or undefined.
Tensor theirs(const GoldenCase& test, const std::string& prefix, const std::string& path) {
  static const std::map<std::string, std::string> names{
      {"input.weight", "input"}, {"input.bias", "b1"},        {"output.weight", "output"}, {"output.bias", "b2"},
      {"key", "keys"},           {"value", "values"},         {"key_bias", "b1"},          {"value_bias", "b2"},
      {"norm.weight", "weight"}, {"norm.bias", "bias"},       {"slots.key", "kappa"},      {"slots.value", "nu"},
      {"query.weight", "query"}, {"query.bias", "query_bias"}};
  const std::string name = prefix + names.at(path);
  if (!test.has(name)) return {};
  if (path.starts_with("slots.")) return permute(test.tensor(name), {1, 0, 2});  // (H, N, D) in the file
  if (path == "input.weight" && test.has("gate"))
    return concatenate({test.tensor(prefix + "gate"), test.tensor(name)}, 0);
  return test.tensor(name);
}

void compare(const GoldenCase& test, Dtype dtype, double tolerance) {
  Spec spec = parse_spec(test.spec);
  if (test.has("weight")) set_item(spec, "epsilon", parse_spec(test.option("epsilon")));
  const Tensor x = test.tensor("x").to(dtype).clone().set_requires_grad();
  const Layer layer = make_feed_forward(spec, {.width = test.number("width", 0),
                                               .d_ff = test.number("inner", 1),
                                               .bias = test.yes("bias") || test.has("bias")});
  name_paths(*layer);
  convert(*layer, dtype);
  size_t given = 0;
  for (const NamedParameter& p : parameters_of(*layer)) {
    const Tensor value = theirs(test, "", p.path);
    p.parameter->value.copy_from(value ? value : Tensor::zeros_like(p.parameter->value));
    given += value.defined();
  }
  CHECK(given + test.has("gate") == test.parameters.size());
  ForwardPass pass;
  const Tensor y = (*layer)(x, pass);
  CHECK(difference(test.tensor("y"), y.to(Dtype::f64)) <= tolerance);
  backward(y, test.tensor("dy").to(dtype));
  CHECK(difference(test.tensor("dx"), x.grad().to(Dtype::f64)) <= tolerance);
  for (const NamedParameter& p : parameters_of(*layer)) {
    INFO("gradient of ", p.path);
    if (const Tensor gradient = theirs(test, "d", p.path))
      CHECK(difference(gradient, p.parameter->value.grad().to(Dtype::f64)) <= tolerance);
  }
}

}  // namespace

TEST_CASE("every feed-forward agrees with PyTorch, output and every gradient") {
  int checked = 0;
  for (const GoldenCase& test : golden_cases("feed_forwards.safetensors")) {
    INFO(test.name, ": ", test.spec);
    compare(test, Dtype::f64, 1e-12);
    compare(test, Dtype::f32, 1e-5);
    ++checked;
  }
  CHECK(checked == 20);
}
