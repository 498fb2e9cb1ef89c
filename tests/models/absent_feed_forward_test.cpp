// Blocks without a feed-forward.
#include "models/architectures/block.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::random_tensor;

namespace {

Block block_of(const std::string& feed_forward) {
  return Block({.width = 8, .heads = 2, .d_ff = 12, .feed_forward = parse_spec(feed_forward)});
}

}  // namespace

TEST_CASE("a block without a feed-forward has no parameters for it, not even a normalization") {
  Block with = block_of("dense"), without = block_of("none");
  std::vector<std::string> names;
  for (const nn::NamedParameter& p : nn::parameters_of(without)) names.push_back(p.path);
  for (const std::string& name : names) {
    INFO(name);
    CHECK(name.find("feed_forward") == std::string::npos);
  }
  // two matrices (12, 8) and the weight and bias of the second normalization
  CHECK(nn::count_parameters(with) - nn::count_parameters(without) == 2 * 12 * 8 + 2 * 8);

  nn::name_paths(without);
  nn::initialize(without, 1);
  nn::ForwardPass pass;
  const Tensor x = random_tensor({2, 3, 8}, 1, Dtype::f32).set_requires_grad();
  const Tensor y = without(x, pass);
  CHECK(y.shape() == x.shape());
  backward(y, random_tensor({2, 3, 8}, 2, Dtype::f32));
  for (const nn::NamedParameter& p : nn::parameters_of(without)) {
    INFO(p.path);
    CHECK(p.parameter->value.grad().defined());
  }
}
