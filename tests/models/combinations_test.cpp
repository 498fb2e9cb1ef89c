// Any two registered names work together in a block, or are refused with an error message.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/ops/ops.h"
#include "models/architectures/gpt.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;

namespace {

GptSettings base() {
  GptSettings s;
  s.layers = 2, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 11;
  return s;
}

Tensor tokens(int shift) {
  std::vector<int32_t> t;
  for (int i = 0; i < 3 * 8; ++i) t.push_back((i * i + 3 * i + shift) % 11);
  return Tensor::from({3, 8}, t);
}

// Trains two steps; then every gradient must be finite and not all zero.
void train_two_steps(const GptSettings& settings) {
  Gpt model(settings);
  nn::initialize(model, 3);
  nn::FlatParameters parameters(model);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw"), parameters);
  for (int step = 0; step < 2; ++step) {
    nn::ForwardPass pass;
    pass.training = true;
    parameters.zero_gradients();
    const Tensor loss = nn::cross_entropy(model(tokens(0), pass), tokens(1));
    CHECK(std::isfinite(loss.item()));
    loss.backward();
    for (const nn::NamedParameter& p : nn::parameters_of(model)) {
      INFO("step ", step, ", gradient of ", p.path);
      REQUIRE(p.parameter->value.grad());
      double largest = 0;
      for (const double g : p.parameter->value.grad().to_vector()) {
        CHECK(std::isfinite(g));
        largest = std::max(largest, std::abs(g));
      }
      CHECK(largest > 0);
    }
    optimizer->step(1e-3, 1);
  }
}

}  // namespace

TEST_CASE("every pair of attention, feed-forward, normalization and position trains or has an error message") {
  const std::vector<std::string> families = {"attention", "feed_forward", "normalization", "position"};
  int trained = 0, refused = 0;
  for (size_t a = 0; a < families.size(); ++a)
    for (size_t b = a + 1; b < families.size(); ++b)
      for (const nn::Family& first : nn::families())
        for (const nn::Family& second : nn::families()) {
          if (first.name != families[a] || second.name != families[b]) continue;
          for (const std::string& one : first.members)
            for (const std::string& other : second.members) {
              INFO(first.name, "=", one, ", ", second.name, "=", other);
              GptSettings settings = base();
              set_setting(settings, "test", first.name, one);
              set_setting(settings, "test", second.name, other);
              try {
                const Gpt probe(settings);
              } catch (const Error& error) {
                const std::string sentence = error.what();
                orrery::testing::check_golden(sentence);
                INFO(sentence);
                CHECK(sentence.find(": ") != std::string::npos);
                CHECK((sentence.find(one) != std::string::npos || sentence.find(other) != std::string::npos));
                ++refused;
                continue;
              }
              train_two_steps(settings);
              ++trained;
            }
        }
  CHECK(trained > 200);
  CHECK(refused < trained / 4);
}
