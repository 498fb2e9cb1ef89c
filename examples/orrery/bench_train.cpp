// Whole training steps, as the comparison times them.
#include "engine/base/random.h"
#include "examples/orrery/bench.h"
#include "models/gpt.h"
#include "nn/losses/base/loss.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::program {
namespace {

Tensor random_tokens(const Shape& shape, int64_t vocabulary, uint64_t index) {
  const RandomKey key = RandomKey{0, 0}.derive("bench").derive(index);
  std::vector<int32_t> tokens(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] =
        static_cast<int32_t>(uniform(key, i) * static_cast<float>(vocabulary)) % static_cast<int32_t>(vocabulary);
  return Tensor::from(shape, tokens);
}

BenchFigure train_steps(const models::GptSettings& settings, int64_t batch, const BenchRun& run) {
  models::Gpt model(settings);
  nn::initialize(model, 0);
  nn::convert(model, run.dtype);
  nn::move(model, run.device);
  nn::FlatParameters parameters(model);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw(beta1=0.9, beta2=0.99, weight_decay=0.1)"), parameters);
  const Shape shape{batch, settings.context};
  const Tensor inputs = random_tokens(shape, settings.vocabulary, 0).to(run.device),
               targets = random_tokens(shape, settings.vocabulary, 1).to(run.device);
  const auto step = [&] {
    parameters.zero_gradients();
    nn::Pass pass;
    pass.training = true;
    nn::cross_entropy(model(inputs, pass), targets).backward();
    optimizer->request(1e-3, 1.0);
    optimizer->update();
  };
  const Measured time = measure_on(run, step);
  return {time, {{"parameters", std::to_string(nn::count_parameters(model))}}};
}

BenchCase train_case(const std::string& preset, int64_t vocabulary, int64_t context, int64_t batch) {
  auto settings = models::presets().at(preset).settings.as<models::GptSettings>();
  settings.vocabulary = vocabulary, settings.context = context, settings.bias = false;
  return {"train/" + preset, static_cast<double>(batch * context), "tokens/s", true,
          [=](const BenchRun& run) { return train_steps(settings, batch, run); }};
}

}  // namespace

std::vector<BenchCase> train_cases() {
  return {train_case("gpt-char-small", 65, 64, 12), train_case("gpt-char-medium", 65, 256, 4),
          train_case("gpt2-124m", 50304, 256, 2)};
}

}  // namespace orrery::program
