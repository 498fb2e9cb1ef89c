// Training steps and generated tokens of the comparison with PyTorch.
#include "engine/math/random.h"
#include "examples/orrery/commands/bench.h"
#include "examples/orrery/terminal/table.h"
#include "models/architectures/encoder_decoder.h"
#include "models/architectures/gpt.h"
#include "models/architectures/resnet.h"
#include "models/architectures/vit.h"
#include "models/training/generation.h"
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

// Loss of a model on a batch, which is equal in every step.
using BatchLoss = std::function<Tensor(std::span<const Tensor> batch, nn::ForwardPass& pass)>;

// Times steps of AdamW with clipping, like pytorch_baseline.py.
BenchResult train_steps(nn::Module& model, std::vector<Tensor> batch, const BatchLoss& loss, const BenchRun& run) {
  nn::initialize(model, 0);
  nn::convert(model, run.dtype);
  nn::move(model, run.device);
  for (Tensor& x : batch) x = x.to(run.device);
  nn::FlatParameters parameters(model);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw(beta1=0.9, beta2=0.99, weight_decay=0.1)"), parameters);
  const auto step = [&] {
    parameters.zero_gradients();
    nn::ForwardPass pass;
    pass.training = true;
    loss(batch, pass).backward();
    optimizer->send_request(1e-3, 1.0);
    optimizer->update();
  };
  const Timing time = measure_on(run, step);
  return {time, {{"parameters", std::to_string(nn::count_parameters(model))}}};
}

// `what`: suffix of the case's name.
BenchCase gpt_case(const std::string& preset, int64_t vocabulary, int64_t context, int64_t batch,
                   const std::string& what = "") {
  auto settings = models::presets().at(preset).settings.as<models::GptSettings>();
  settings.vocabulary = vocabulary, settings.context = context, settings.bias = false;
  return {"train/" + preset + what, static_cast<double>(batch * context), "tokens/s", true, [=](const BenchRun& run) {
            models::Gpt model(settings);
            const Shape shape{batch, context};
            return train_steps(
                model, {random_tokens(shape, vocabulary, 0), random_tokens(shape, vocabulary, 1)},
                [&](auto batch, auto& pass) { return nn::cross_entropy(model(batch[0], pass), batch[1]); }, run);
          }};
}

// Times steps of an image classifier with the preset's settings.
template <class Model, class Settings>
BenchCase image_case(const std::string& preset, Settings settings, int64_t size, int64_t channels, int64_t classes,
                     int64_t batch) {
  settings.image_size = size, settings.channels = channels, settings.classes = classes;
  return {"train/" + preset, static_cast<double>(batch), "images/s", true, [=](const BenchRun& run) {
            Model model(settings);
            return train_steps(
                model, {normal_tensor(Shape{batch, size, size, channels}, 0), random_tokens(Shape{batch}, classes, 1)},
                [&](auto batch, auto& pass) { return nn::cross_entropy(model(batch[0], pass), batch[1]); }, run);
          }};
}

// Pools the mean of all tokens, like pytorch_baseline.py.
BenchCase vit_case(const std::string& preset, int64_t size, int64_t channels, int64_t classes, int64_t batch) {
  auto settings = models::presets().at(preset).settings.as<models::VitSettings>();
  settings.pooling = "mean";
  return image_case<models::Vit>(preset, settings, size, channels, classes, batch);
}

BenchCase resnet_case(const std::string& preset, int64_t size, int64_t channels, int64_t classes, int64_t batch) {
  const auto settings = models::presets().at(preset).settings.as<models::ResnetSettings>();
  return image_case<models::Resnet>(preset, settings, size, channels, classes, batch);
}

// Sources and targets of equal length, with lengths as in a batch of padded pairs.
BenchCase translation_case(int64_t batch, int64_t tokens) {
  auto settings = models::presets().at("translation-small").settings.as<models::EncoderDecoderSettings>();
  settings.vocabulary = 6000;
  return {"train/translate", static_cast<double>(2 * batch * tokens), "tokens/s", true, [=](const BenchRun& run) {
            models::EncoderDecoder model(settings);
            const Shape shape{batch, tokens};
            const Tensor lengths = Tensor::from(
                Shape{batch}, std::vector<int32_t>(static_cast<size_t>(batch), static_cast<int32_t>(tokens)));
            std::vector<Tensor> pairs = {lengths};
            for (const uint64_t index : {0, 1, 2}) pairs.push_back(random_tokens(shape, settings.vocabulary, index));
            return train_steps(
                model, pairs,
                [&](auto batch, auto& pass) {
                  model.encode(batch[1], batch[0], pass);
                  pass.lengths = batch[0];
                  return nn::cross_entropy(model(batch[2], pass), batch[3], 0.1);
                },
                run);
          }};
}

}  // namespace

std::vector<BenchCase> train_cases(Device device) {
  const bool cpu = device == Device::cpu;
  std::vector<BenchCase> cases = {
      gpt_case("gpt-char-small", 65, 64, 12),
      gpt_case("gpt-char-medium", 65, 256, cpu ? 4 : 64),
      gpt_case("gpt2-124m", 50304, cpu ? 256 : 1024, cpu ? 2 : 32),
      vit_case("vit-s16", 224, 3, 1000, cpu ? 8 : 256),
      vit_case("vit-fashion", 28, 1, 10, 128),
      resnet_case("resnet8", 32, 3, 10, 128),
      translation_case(96, 16),
  };
  if (!cpu) cases.push_back(gpt_case("gpt2-124m", 50304, 1024, 8, "/batch8"));
  return cases;
}

// Generates a text token by token after a prompt. Each token reads all weights once: bytes x
// tokens/s is the memory bandwidth used.
std::vector<BenchCase> generate_cases() {
  constexpr int64_t prompt = 64, tokens = 64, vocabulary = 50257;
  return {{"generate/gpt2-124m", static_cast<double>(tokens), "tokens/s", true, [](const BenchRun& run) -> BenchResult {
             auto settings = models::presets().at("gpt2-124m").settings.as<models::GptSettings>();
             settings.vocabulary = vocabulary, settings.bias = false;
             models::Gpt model(settings);
             nn::initialize(model, 0);
             nn::convert(model, run.dtype);
             nn::move(model, run.device);
             std::vector<int32_t> text;
             for (const double token : random_tokens(Shape{prompt}, vocabulary, 0).to_vector())
               text.push_back(static_cast<int32_t>(token));
             const models::SamplingSettings sampling{.tokens = tokens, .temperature = 0};
             const Timing time = measure_on(run, [&] { models::generate(model, text, sampling); });
             const int64_t parameters = nn::count_parameters(model);
             const double bytes = static_cast<double>(parameters * bytes_of(run.dtype)) * tokens;
             return {
                 time,
                 {{"parameters", std::to_string(parameters)}, {"GB_per_second", fixed(bytes / time.best / 1e9, 2)}}};
           }}};
}

}  // namespace orrery::program
