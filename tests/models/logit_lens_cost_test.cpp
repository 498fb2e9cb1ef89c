// Cost of the logit lens: few runs of the model, and few products with the head.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "engine/tensor/flops.h"
#include "models/architectures/headed_model.h"
#include "models/inspection/base/residual_stream.h"
#include "nn/layers/linear.h"
#include "tests/support/inspected_examples.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

struct Cost {
  double seconds = INFINITY;  // processor time of all threads: another program's work does not add to it
  double flops = 0;

  void add(const auto& work) {
    const std::clock_t begin = std::clock();
    const double counted = flops_counted();
    work();
    seconds = std::min(seconds, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    flops = flops_counted() - counted;
  }
};

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
  Cost analysis, product;
  // Other work on the machine takes its caches and memory: the two alternate, and the least time counts.
  for (int repeat = 0; repeat < 4 || (repeat < 16 && analysis.seconds > 2.5 * product.seconds); ++repeat) {
    const NoGrad guard;
    analysis.add([&] { analyze(*inspected, "logit_lens", {}); });
    product.add([&] { nn::linear(rows, headed.head().weight); });
  }
  MESSAGE("logit_lens: ", analysis.seconds, " s; the product alone: ", product.seconds, " s; ",
          analysis.seconds / product.seconds, " times; FLOPs: ", analysis.flops / product.flops, " times");
  CHECK(analysis.flops <= 1.3 * product.flops);  // the product, and two runs of the model
  CHECK(analysis.seconds <= 2.5 * product.seconds);
}
