// Cost of attention layers by context length, by mask, and with scores of zero weight.
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/tensor/storage.h"
#include "examples/orrery/commands/bench.h"
#include "examples/orrery/terminal/table.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/fused.h"
#include "nn/formulas/activation.h"
#include "nn/masks/base/mask.h"

namespace orrery::program {
namespace {

constexpr int64_t heads = 4, size = 64, width = heads * size;

// Times a layer with its projections, forward and backward; records the peak memory of a step.
BenchCase layer_case(const std::string& name, const std::string& spec, int64_t length,
                     const std::string& mask = "causal") {
  const auto run = [=](const BenchRun& how) {
    const auto layer =
        nn::make_attention(parse_spec(spec), {.width = width,
                                              .heads = heads,
                                              .context = length,
                                              .mask = std::make_shared<const nn::NamedMask>(mask, length)});
    nn::initialize(*layer, 0);
    const Tensor x = normal_tensor({1, length, width}, 0).set_requires_grad(), dy = normal_tensor(x.shape(), 1);
    reset_peak(Device::cpu);
    const Timing time = measure(
        [&] {
          x.set_grad({});
          nn::ForwardPass pass;
          backward((*layer)(x, pass), dy);
        },
        how.seconds);
    return BenchResult{time, {{"peak_mb", fixed(static_cast<double>(memory_use(Device::cpu).peak) / 1e6, 1)}}};
  };
  const std::string suffix = mask == "causal" ? "" : "/" + mask.substr(0, mask.find('('));
  return {text("scaling/", name, "/L", length, suffix), static_cast<double>(length), "tokens/s", false, run};
}

// Times backward only. Queries are positive, so that ReLU zeroes the scores of negative key blocks.
BenchCase relu_case(const std::string& name, bool half_negative) {
  constexpr int64_t length = 4096, block = 128;
  const auto run = [=](const BenchRun& how) {
    const Shape shape{1, length, heads, size};
    std::vector<Tensor> x;
    for (uint64_t i = 0; i < 3; ++i) x.push_back(normal_tensor(shape, i));
    if (half_negative) {
      std::vector<double> signs;
      for (int64_t i = 0; i < length; ++i) signs.push_back(i / block % 2 ? 1 : -1);
      x[0] = abs(x[0]), x[1] = abs(x[1]) * Tensor::from(Shape{1, length, 1, 1}, signs);
    }
    for (Tensor& t : x) t = t.detach().set_requires_grad();
    const AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(size))};
    const nn::Activation relu("relu");
    const Tensor dy = normal_tensor(shape, 3);
    const auto forward = [&] {
      return nn::attention({.query = x[0], .key = x[1], .value = x[2]}, options, relu).output;
    };
    const Timing both = measure(
        [&] {
          for (const Tensor& t : x) t.set_grad({});
          backward(forward(), dy);
        },
        how.seconds);
    const Timing alone = measure(forward, how.seconds);
    return BenchResult{{both.best - alone.best, both.median - alone.median}, {}};
  };
  return {text("scaling/relu/L", length, "/backward/", name), static_cast<double>(length), "tokens/s", false, run};
}

}  // namespace

std::vector<BenchCase> scaling_cases() {
  std::vector<BenchCase> all;
  for (const int64_t length : {1024, 4096, 16384}) {
    all.push_back(layer_case("softmax", "softmax", length));
    all.push_back(layer_case("relu", "pointwise(relu)", length));
    all.push_back(layer_case("linear", "linear(relu)", length));
    all.push_back(layer_case("span", "softmax(span=fixed(256))", length));
    all.push_back(layer_case("prelu", "pointwise(prelu)", length));
  }
  // Masks next to the one that hides nothing; the fixed blocks hide half of the tiles.
  for (const std::string mask : {"full", "fixed_blocks(l=2048, c=0)", "window(256)", "dilated(2)"}) {
    all.push_back(layer_case("softmax", "softmax", 4096, mask));
    all.push_back(layer_case("relu", "pointwise(relu)", 4096, mask));
  }
  all.push_back(relu_case("random", false));
  all.push_back(relu_case("half_negative", true));
  return all;
}

}  // namespace orrery::program
