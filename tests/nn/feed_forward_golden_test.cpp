// Feed-forwards against an independent program: tests/golden/feed_forwards.py, PyTorch from the papers' equations.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/support/feed_forward_layers.h"
#include "tests/support/golden.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

// Our parameter, or its gradient, from the tensors of a case, whose names begin with `prefix`: "NAME." or "NAME.d".
Tensor parameter_of(const Golden& golden, const std::string& prefix, const std::string& path) {
  static const std::map<std::string, std::string> theirs{
      {"input.weight", "input"}, {"input.bias", "b1"},  {"output.weight", "output"}, {"output.bias", "b2"},
      {"key", "keys"},           {"value", "values"},   {"key_bias", "b1"},          {"value_bias", "b2"},
      {"norm.weight", "weight"}, {"norm.bias", "bias"}, {"slots.key", "kappa"},      {"slots.value", "nu"}};
  const std::string name = prefix + theirs.at(path);
  if (!golden.has(name)) return {};
  if (path.starts_with("slots.")) return permute(golden(name), {1, 0, 2});  // (H, N, D) there
  if (path == "input.weight" && golden.has(prefix + "gate"))
    return concatenate({golden(prefix + "gate"), golden(name)}, 0);
  return golden(name);
}

void compare(const Golden& golden, const std::string& name, const std::string& spec, Dtype dtype, double tolerance) {
  const Tensor x = golden(name + ".x").to(dtype).clone().set_requires_grad();
  const bool biases = golden.has(name + ".b1") || golden.has(name + ".bias");
  const auto layer = make_feed_forward(parse_spec(spec), {.width = x.size(-1), .inner = 11, .bias = biases});
  name_paths(*layer);
  convert(*layer, dtype);
  for (const NamedParameter& p : parameters_of(*layer)) {
    const Tensor given = parameter_of(golden, name + ".", p.path);
    p.parameter->value.copy_from(given ? given : Tensor::zeros_like(p.parameter->value));
  }
  Pass pass;
  const Tensor y = (*layer)(x, pass);
  CHECK(difference(golden(name + ".y"), y.to(Dtype::f64)) <= tolerance);
  backward(y, golden(name + ".dy").to(dtype));
  CHECK(difference(golden(name + ".dx"), x.grad().to(Dtype::f64)) <= tolerance);
  for (const NamedParameter& p : parameters_of(*layer)) {
    const Tensor gradient = parameter_of(golden, name + ".d", p.path);
    INFO(p.path);
    if (gradient) CHECK(difference(gradient, p.parameter->value.grad().to(Dtype::f64)) <= tolerance);
  }
}

}  // namespace

TEST_CASE("feed-forwards agree with PyTorch, outputs and every gradient") {
  const std::string file = "feed_forwards.safetensors";
  const Golden golden(file);
  int cases = 0;
  for (const auto& [key, spec] : read_safetensors(std::string(ORRERY_SOURCE_DIR) + "/tests/golden/" + file).metadata) {
    if (!key.ends_with(".spec")) continue;
    const std::string name = key.substr(0, key.size() - 5);
    // Theirs normalizes with the usual epsilon.
    const std::string ours = golden.has(name + ".weight") ? spec.substr(0, spec.size() - 1) + ", epsilon=1e-5)" : spec;
    INFO(name, " ", ours);
    compare(golden, name, ours, Dtype::f64, 1e-12);
    compare(golden, name, ours, Dtype::f32, 1e-5);
    ++cases;
  }
  CHECK(cases == 18);
}
