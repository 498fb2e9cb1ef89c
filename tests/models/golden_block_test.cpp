// Residual blocks against PyTorch, output and every gradient (tests/golden/blocks.py).
#include <doctest/doctest.h>

#include "engine/autograd/autograd.h"
#include "models/architectures/block.h"
#include "tests/support/golden_cases.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::golden_cases;
using orrery::testing::GoldenCase;
using orrery::testing::largest_difference;

namespace {

// Parses "0.5" or "learned(1)".
LearnableNumber number_of(const GoldenCase& test, const std::string& setting) {
  if (test.option(setting).starts_with("learned")) return {.initial = 1, .learned = true};
  return {.initial = test.real(setting, 1)};
}

void check_block(const GoldenCase& test) {
  BlockOptions options;
  options.width = test.number("width", 0), options.heads = test.number("heads", 0);
  options.d_ff = test.number("inner", 0), options.bias = false;
  options.attention = parse_spec("softmax"), options.feed_forward = parse_spec("dense(relu)");
  options.normalization = parse_spec("layer"), options.normalization_bias = true;
  options.residual_gain = number_of(test, "residual_gain");
  options.feed_forward_divisor = number_of(test, "feed_forward_divisor");
  options.feed_forward_residual = number_of(test, "feed_forward_residual");
  Block block(options);
  nn::name_paths(block);
  nn::convert(block, Dtype::f64);
  const std::vector<nn::NamedParameter> parameters = nn::parameters_of(block);
  CHECK(parameters.size() == test.parameters.size());
  for (const nn::NamedParameter& p : parameters)
    p.parameter->value = test.tensor(p.path).reshape(p.parameter->value.shape()).clone().set_requires_grad();
  const Tensor x = test.leaf("x");
  nn::ForwardPass pass;
  const Tensor y = block(x, pass);
  CHECK(largest_difference(y, test.tensor("y")) <= 1e-12);
  backward(y, test.tensor("dy"));
  CHECK(largest_difference(x.grad(), test.tensor("dx")) <= 1e-11);
  for (const nn::NamedParameter& p : parameters) {
    INFO("gradient of ", p.path);
    CHECK(largest_difference(p.parameter->value.grad(), test.tensor("d" + p.path)) <= 1e-11);
  }
}

}  // namespace

TEST_CASE("blocks with gains and output scaling agree with PyTorch, output and every gradient") {
  int checked = 0;
  for (const GoldenCase& test : golden_cases("blocks.safetensors")) {
    INFO(test.name);
    check_block(test);
    ++checked;
  }
  CHECK(checked == 5);
}
