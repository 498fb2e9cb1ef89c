// One step of vision transformers and ResNets, against PyTorch (tests/golden/vision_models.py).
#include <doctest/doctest.h>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "models/architectures/resnet.h"
#include "models/architectures/vit.h"
#include "nn/losses/base/loss.h"
#include "tests/support/golden.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::Golden;
using orrery::testing::largest_difference;

namespace {

// Returns how many parameters were compared.
size_t check_step(nn::Module& model, const std::string& name, const Golden& golden) {
  CAPTURE(name);
  const auto tensor_of = [&](const std::string& what) { return golden(name + "." + what); };
  nn::initialize(model, 1);
  nn::convert(model, Dtype::f64);
  const std::vector<nn::NamedParameter> parameters = nn::parameters_of(model);
  for (const nn::NamedParameter& p : parameters) {
    CAPTURE(p.path);
    REQUIRE(p.parameter->value.shape() == tensor_of("parameter." + p.path).shape());
    p.parameter->value.copy_from(tensor_of("parameter." + p.path));
  }
  nn::ForwardPass pass;
  pass.training = true, pass.rng = RandomKey{1, 1};
  const Tensor logits = model(tensor_of("pixels"), pass);
  CHECK(largest_difference(logits.detach(), tensor_of("logits")) <= 1e-12);
  const Tensor loss = nn::cross_entropy(logits, tensor_of("labels"));
  CHECK(std::abs(loss.item() - tensor_of("loss").item()) <= 1e-12);
  loss.backward();
  for (const nn::NamedParameter& p : parameters) {
    CAPTURE(p.path);
    CHECK(largest_difference(p.parameter->value.grad(), tensor_of("gradient." + p.path)) <= 1e-11);
  }
  nn::after_step(model);
  if (golden.has(name + ".evaluated")) {
    const NoGrad guard;
    nn::ForwardPass evaluation;
    CHECK(largest_difference(model(tensor_of("pixels"), evaluation), tensor_of("evaluated")) <= 1e-12);
  }
  return parameters.size();
}

size_t parameters_in(const Golden& golden, const std::string& name) {
  size_t count = 0;
  for (const auto& [path, tensor] : golden.all()) count += path.starts_with(name + ".parameter.") ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("golden vision: logits, loss and gradients of one step equal PyTorch's") {
  const Golden golden("vision_models.safetensors");
  for (const char* pooling : {"class_token", "mean"}) {
    VitSettings s;
    s.layers = 2, s.heads = 2, s.width = 8, s.patch = 2, s.image_size = 6, s.channels = 3, s.classes = 5;
    s.pooling = pooling, s.normalization = parse_spec("layer(epsilon=1e-6)");
    Vit model(s);
    const std::string name = text("vit.", pooling);
    CHECK(check_step(model, name, golden) == parameters_in(golden, name));
  }
  for (const auto& [variant, normalization, shortcut] :
       {std::tuple{"batch", "batch", "projection"}, {"dyt", "dyt", "projection"}, {"option_b", "batch", "option_b"}}) {
    ResnetSettings s;
    s.width = 3, s.channels = 2, s.classes = 4, s.normalization = parse_spec(normalization), s.shortcut = shortcut;
    Resnet model(s);
    const std::string name = text("resnet.", variant);
    CHECK(check_step(model, name, golden) == parameters_in(golden, name));
  }
}
