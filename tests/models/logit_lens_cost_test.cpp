// Cost of the logit lens: few runs of the model, and few products with the head.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/architectures/headed_model.h"
#include "models/inspection/base/residual_stream.h"
#include "nn/layers/linear.h"
#include "tests/support/inspected_examples.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("logit_lens: the number of model runs does not depend on the number of sublayers") {
  for (const char* layers : {"2", "6"}) {
    const auto model = small_gpt({{"layers", layers}});
    const auto inspected = example_of(*model);
    int runs = 0;
    const Hooks hooks({"embedding"}, [&](const std::string&, const Tensor&) { ++runs; });
    analyze(*inspected, "logit_lens", {});
    CHECK(runs == 2);
  }
}

// The model has GPT-2's proportions.
TEST_CASE("logit_lens: it takes at most 2.5 times the product of all states with the head") {
  const int64_t layers = 12, positions = 128, states = 2 * layers + 1;
  const auto model = make_model(make_settings({{"model", "gpt"},
                                               {"vocabulary", "50257"},
                                               {"context", std::to_string(positions)},
                                               {"layers", std::to_string(layers)},
                                               {"heads", "12"},
                                               {"width", "768"}}));
  nn::initialize(*model, 3);
  std::string tokens;
  for (int64_t i = 0; i < positions; ++i) tokens += std::to_string(i * i) + " ";
  const auto inspected = text_example(dynamic_cast<LanguageModel&>(*model), numbers(50257), tokens);
  const auto& headed = dynamic_cast<const HeadedModel&>(*model);
  const Tensor rows = Tensor::full(Shape{states * positions, 768}, 0.5);
  // Other work on the machine can only lengthen a time: the two alternate, the minimum counts, and a
  // busy machine gets more repetitions.
  double analysis = INFINITY, product = INFINITY;
  for (int repeat = 0; repeat < 4 || (repeat < 16 && analysis > 2.5 * product); ++repeat) {
    const NoGrad guard;
    analysis = std::min(analysis, seconds_of([&] { analyze(*inspected, "logit_lens", {}); }));
    product = std::min(product, seconds_of([&] { nn::linear(rows, headed.head().weight); }));
  }
  MESSAGE("logit_lens: ", analysis, " s; the product alone: ", product, " s; ", analysis / product, " times");
  CHECK(analysis <= 2.5 * product);
}
