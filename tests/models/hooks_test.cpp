#include "engine/autograd/hooks.h"

#include <doctest/doctest.h>

#include <map>

#include "engine/ops/ops.h"
#include "models/gpt.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::largest_difference;

TEST_CASE("watching shows named values and changes none, to the bit") {
  GptSettings s;
  s.layers = 2, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  std::vector<int32_t> numbers = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1};
  const Tensor tokens = Tensor::from({2, 8}, numbers);
  const auto run = [&] {
    nn::Pass pass;
    return model(tokens, pass);
  };
  const Tensor plain = run();
  std::map<std::string, Tensor> seen;
  const std::string attention = "blocks.1.attention";
  {
    Hooks hooks({attention + ".weights", attention + ".value", attention + ".read", "blocks.0.feed_forward.residual"},
                [&](const std::string& name, const Tensor& value) { seen[name] = value; });
    CHECK(largest_difference(run(), plain) == 0);
    hooks.check_seen();
  }
  CHECK(largest_difference(run(), plain) == 0);
  CHECK(seen.size() == 4);
  const Tensor weights = seen.at(attention + ".weights");
  CHECK(weights.shape() == Shape{2, 2, 8, 8});
  CHECK(largest_difference(sum(weights, {-1}), Tensor::full({2, 2, 8}, 1)) <= 1e-6);
  const Tensor read = permute(matmul(weights, permute(seen.at(attention + ".value"), {0, 2, 1, 3})), {0, 2, 1, 3});
  CHECK(largest_difference(read, seen.at(attention + ".read")) <= 1e-6);
  CHECK(seen.at("blocks.0.feed_forward.residual").shape() == Shape{2, 8, 16});
}

TEST_CASE("a name that never arises is an error that names the nearest") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  Hooks hooks({"blocks.0.attention.weihgts"}, [](const std::string&, const Tensor&) {});
  CHECK_THROWS_WITH_AS(Hooks({}, nullptr), "hooks: others are active on this thread; end them first", Error);
  nn::Pass pass;
  model(Tensor::from({1, 2}, std::vector<int32_t>{1, 2}), pass);
  std::string message;
  try {
    hooks.check_seen();
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("hooks: 'blocks.0.attention.weihgts' never arose; did you "
                     "mean 'blocks.0.attention.weights'?") == 0);
}
