// Sampling from a model that always predicts the same distribution.
#include "models/training/generation.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;

namespace {

class Constant final : public LanguageModel {  // probabilities 0.1, 0.4, 0.2, 0.3
 public:
  Tensor forward(const Tensor& tokens, nn::ForwardPass& pass) override {
    if (pass.cache) pass.cache->length += tokens.size(1);
    std::vector<double> logits;
    for (int64_t i = 0; i < tokens.numel(); ++i)
      for (const double p : {0.1, 0.4, 0.2, 0.3}) logits.push_back(std::log(p));
    return Tensor::from(Shape{tokens.size(0), tokens.size(1), 4}, logits, Dtype::f32);
  }
  int64_t context() const override { return 8; }
  int64_t vocabulary() const override { return 4; }
};

std::vector<int> counts(const SamplingSettings& settings) {
  Constant model;
  std::vector<int> counted(4);
  generate(model, {0}, settings, [&](int32_t token) { ++counted[static_cast<size_t>(token)]; });
  return counted;
}

}  // namespace

TEST_CASE("generate: top_p samples from the fewest tokens with this probability, in their proportions") {
  const auto drawn = [](double top_p) { return counts({.tokens = 3000, .temperature = 1, .top_p = top_p}); };
  const std::vector<int> two = drawn(0.65);
  CHECK(two[0] + two[2] == 0);
  CHECK(two[1] / 3000.0 == doctest::Approx(4 / 7.0).epsilon(0.05));
  CHECK(drawn(0.1) == std::vector<int>{0, 3000, 0, 0});
  CHECK(drawn(0.75)[2] > 0);
  CHECK(drawn(0.75)[0] == 0);
  const std::vector<int> all = drawn(1);
  CHECK(all[0] / 3000.0 == doctest::Approx(0.1).epsilon(0.2));
}

TEST_CASE("generate: top_p is a fraction of the tokens that top_k keeps, and must be in (0, 1]") {
  CHECK(counts({.tokens = 500, .temperature = 1, .top_k = 2, .top_p = 0.5}) == std::vector<int>{0, 500, 0, 0});
  for (const double wrong : {0.0, 1.5, -1.0})
    orrery::testing::expect_error([&] { counts({.tokens = 1, .top_p = wrong}); }).names("top_p").value(wrong).offers(1);
  for (const double wrong : {-1.0, double(INFINITY)})
    orrery::testing::expect_error([&] { counts({.tokens = 1, .temperature = wrong}); })
        .names("temperature")
        .value(wrong)
        .offers(0);
}

TEST_CASE("generate: ids without a token are never sampled, and a text ends before each end token") {
  for (const int64_t top_k : {0, 2})
    for (const double temperature : {0.0, 1.0}) {
      const std::vector<int> drawn =
          counts({.tokens = 300, .temperature = temperature, .top_k = top_k, .never = {1, 3}});
      CHECK(drawn[1] + drawn[3] == 0);
      CHECK(drawn[2] > 0);
    }
  Constant model;
  const auto written = [&](const SamplingSettings& s) { return generate(model, {0}, s); };
  CHECK(written({.tokens = 9, .temperature = 0, .ends = {1}}) == std::vector<int32_t>{0});
  CHECK(written({.tokens = 3, .temperature = 0, .ends = {2, 3}}) == std::vector<int32_t>{0, 1, 1, 1});
  CHECK(written({.tokens = 300, .temperature = 1, .never = {2}, .ends = {3, 1}}).size() < 50);
  orrery::testing::expect_error([&] { written({.tokens = 1, .never = {0, 1, 2, 3}}); }).names("generate").value(4);
}
