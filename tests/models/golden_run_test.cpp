// Ten steps of a two-layer GPT, against PyTorch (tests/golden/gpt_two_layers.py).
#include <doctest/doctest.h>

#include "engine/ops/ops.h"
#include "models/architectures/gpt.h"
#include "nn/losses/base/loss.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/support/golden.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Golden;
using orrery::testing::largest_difference;

namespace {

// The golden file has separate queries, keys and values; the model has one matrix for all.
Tensor golden_parameter(const Golden& golden, const std::string& prefix, const std::string& path) {
  const std::string joined = "query_key_value.weight";
  if (!path.ends_with(joined)) return golden(prefix + path);
  const std::string base = prefix + path.substr(0, path.size() - joined.size());
  return concatenate({golden(base + "query.weight"), golden(base + "key.weight"), golden(base + "value.weight")}, 0);
}

}  // namespace

TEST_CASE("golden run: ten losses, gradient norms, first gradients and final weights equal PyTorch's") {
  const Golden golden("gpt_two_layers.safetensors");
  for (const auto& kind : {std::pair(Dtype::f64, 1e-10), std::pair(Dtype::f32, 1e-4)}) {
    const Dtype dtype = kind.first;
    const double tolerance = kind.second;
    INFO(name(dtype));
    GptSettings settings;
    settings.layers = 2, settings.heads = 2, settings.width = 8, settings.context = 8, settings.vocabulary = 17;
    Gpt model(settings);
    nn::convert(model, dtype);
    for (const nn::NamedParameter& p : nn::parameters_of(model))
      p.parameter->value.copy_from(golden_parameter(golden, "initial.", p.path));
    nn::FlatParameters flat(model);
    const auto optimizer =
        nn::make_optimizer(parse_spec("adamw(beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.1)"), flat);
    for (int64_t step = 0; step < 10; ++step) {
      INFO("step ", step);
      flat.zero_gradients();
      nn::ForwardPass pass;
      const Tensor loss = nn::cross_entropy(model(golden("tokens")[step], pass), golden("targets")[step]);
      loss.backward();
      CHECK(std::fabs(loss.item() - golden("losses").to_vector()[step]) <= tolerance);
      if (step == 0)
        for (const nn::NamedParameter& p : nn::parameters_of(model)) {
          INFO(p.path);
          CHECK(largest_difference(p.parameter->value.grad(),
                                   golden_parameter(golden, "gradient.", p.path).to(dtype)) <= tolerance);
        }
      double norm = 0;
      CHECK(optimizer->step(1e-3, 1, &norm));
      CHECK(std::fabs(norm - golden("gradient_norms").to_vector()[step]) <= tolerance * 10);
    }
    for (const nn::NamedParameter& p : nn::parameters_of(model)) {
      INFO(p.path);
      CHECK(largest_difference(p.parameter->value, golden_parameter(golden, "final.", p.path).to(dtype)) <= tolerance);
    }
  }
}

TEST_CASE("presets: their published parameter counts, which named_model_test compares with the models") {
  CHECK(presets().at("gpt-char-small").parameters == 805248);
  CHECK(presets().at("gpt-char-medium").parameters == 10750080);
  CHECK(presets().at("gpt2-124m").parameters == 124439808);
  CHECK(presets().at("gpt2-355m").parameters == 354823168);
  CHECK(presets().at("gpt2-774m").parameters == 774030080);
  CHECK(presets().at("llama2c-15m").parameters == 15191712);
  CHECK(presets().at("llama2c-42m").parameters == 41689600);
  CHECK(presets().at("llama2c-110m").parameters == 109529856);
}

TEST_CASE("every parameter of a small GPT gets a finite gradient that is not all zero, dropout on or off") {
  for (const double dropout : {0.0, 0.2}) {
    GptSettings settings;
    settings.layers = 2, settings.heads = 2, settings.width = 16, settings.context = 8, settings.vocabulary = 11,
    settings.bias = true;
    settings.dropout = dropout;
    Gpt model(settings);
    nn::initialize(model, 5);
    nn::ForwardPass pass;
    pass.training = true;
    const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 10, 1, 3, 5, 7, 9};
    nn::cross_entropy(model(Tensor::from({2, 8}, tokens), pass), Tensor::from({2, 8}, tokens)).backward();
    for (const nn::NamedParameter& p : nn::parameters_of(model)) {
      INFO(p.path);
      CHECK(p.parameter->value.grad().defined());
      double size = 0;
      for (const double g : p.parameter->value.grad().to_vector()) size += std::fabs(g);
      CHECK(std::isfinite(size));
      CHECK(size > 0);
    }
  }
}

TEST_CASE("gpt: wrong shapes have error messages") {
  GptSettings settings;
  settings.vocabulary = 5, settings.context = 4;
  Gpt model(settings);
  nn::ForwardPass pass;
  const Tensor five = Tensor::from({1, 5}, std::vector<int32_t>(5, 1));
  expect_error([&] { model(five, pass); }).names("tokens").value("(1, 5)").offers("(batch, time)").offers(4);
  settings.heads = 7;
  expect_error([&] { Gpt{settings}; }).names("heads").value(7).names("width").value(128).offers("head_size");
}
