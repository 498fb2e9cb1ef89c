// Vision models: derivatives, the inputs that an image's logits depend on, and invalid shapes.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/checks/gradient_check.h"
#include "engine/ops/ops.h"
#include "models/architectures/resnet.h"
#include "models/architectures/vit.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

VitSettings small_vit() {
  VitSettings s;
  s.layers = 2, s.heads = 2, s.width = 8, s.patch = 2, s.image_size = 6, s.channels = 3, s.classes = 5;
  return s;
}
ResnetSettings small_resnet() {
  ResnetSettings s;
  s.width = 3, s.channels = 2, s.classes = 4;
  return s;
}

// Converts to f64 and moves every parameter away from its initial value.
void prepare(nn::Module& model) {
  nn::initialize(model, 1);
  nn::convert(model, Dtype::f64);
  int seed = 50;
  for (const nn::NamedParameter& p : nn::parameters_of(model))
    p.parameter->value.copy_from(p.parameter->value.detach() + random_tensor(p.parameter->value.shape(), ++seed) * 0.3);
}

Tensor logits_of(nn::Module& model, const Tensor& pixels, bool training = false) {
  nn::ForwardPass pass;
  pass.training = training;
  pass.rng = RandomKey{1, 2};
  return model(pixels, pass);
}

// Checks gradients of the pixels and of every parameter against finite differences.
void check_model(nn::Module& model, const Shape& pixels) {
  prepare(model);
  GradientCase test;
  test.inputs.push_back({"pixels", random_tensor(pixels, 3)});
  const std::vector<nn::NamedParameter> parameters = nn::parameters_of(model);
  for (const nn::NamedParameter& p : parameters) test.inputs.push_back({p.path, p.parameter->value.detach().clone()});
  test.finite_differences = 6;
  test.fast = [&](const std::vector<Tensor>& in) {
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].parameter->value = in[i + 1];
    return logits_of(model, in[0], true);
  };
  const GradientReport report = check_gradients(test);
  for (const GradientRow& row : report.rows) {
    INFO(row.input, " element ", row.worst_element, ": ", row.worst_explicit, " and ", row.worst_finite_difference);
    CHECK(row.finite_difference_error < 1e-6);
  }
}

// Checks that an image has equal logits alone, among others and at another index.
void check_composition(nn::Module& model, const Shape& one) {
  nn::initialize(model, 4);
  const NoGrad guard;
  Shape many{7, one[1], one[2], one[3]};
  const Tensor pixels = random_tensor(many, 8, Dtype::f32), all = logits_of(model, pixels);
  for (int64_t i = 0; i < 7; ++i) {
    CHECK(largest_difference(logits_of(model, pixels.slice(i, i + 1)), all.slice(i, i + 1)) < 1e-5);
    CHECK(largest_difference(logits_of(model, pixels.slice(i, 7)), all.slice(i, 7)) < 1e-5);
  }
  const Tensor rotated = logits_of(model, concatenate({pixels.slice(4, 7), pixels.slice(0, 4)}, 0));
  CHECK(largest_difference(rotated, concatenate({all.slice(4, 7), all.slice(0, 4)}, 0)) < 1e-5);
}

}  // namespace

TEST_CASE("vit: derivatives of the whole model agree with finite differences") {
  for (const char* attention : {"softmax(qk_norm=layer)", "pointwise(softplus)"})
    for (const char* pooling : {"class_token", "mean"})
      for (const char* normalization : {"layer", "dyt", "derf"}) {
        CAPTURE(attention);
        CAPTURE(pooling);
        CAPTURE(normalization);
        VitSettings s = small_vit();
        s.attention = parse_spec(attention), s.pooling = pooling, s.normalization = parse_spec(normalization);
        s.layers = 1;
        Vit model(s);
        check_model(model, {2, 6, 6, 3});
      }
}

TEST_CASE("resnet: derivatives of the whole model agree with finite differences") {
  for (const auto& each :
       {std::pair{"batch", "projection"}, {"dyt", "projection"}, {"batch", "option_b"}, {"dyt", "option_b"}}) {
    const auto& normalization = each.first;
    const auto& shortcut = each.second;
    CAPTURE(normalization);
    CAPTURE(shortcut);
    ResnetSettings s = small_resnet();
    s.shortcut = shortcut;
    s.normalization = parse_spec(normalization), s.activation = parse_spec("silu");  // relu has kinks
    Resnet model(s);
    check_model(model, {3, 8, 8, 2});
  }
}

TEST_CASE("vision: an image's logits do not depend on the others of its batch") {
  for (const char* pooling : {"class_token", "mean"})
    for (const char* attention : {"softmax", "pointwise(relu)", "relu_former", "linear"}) {
      CAPTURE(attention);
      VitSettings s = small_vit();
      s.pooling = pooling, s.attention = parse_spec(attention);
      Vit model(s);
      check_composition(model, {1, 6, 6, 3});
    }
  for (const char* shortcut : {"projection", "option_b"}) {
    ResnetSettings s = small_resnet();
    s.shortcut = shortcut;
    Resnet model(s);
    check_composition(model, {1, 8, 8, 2});
  }
}

TEST_CASE("vit: an attention scaled by its length has L = the number of tokens, and attends to all of them") {
  for (const char* pooling : {"class_token", "mean"}) {
    VitSettings s = small_vit();
    s.pooling = pooling, s.attention = parse_spec("pointwise(relu, alpha=1)");
    Vit scaled(s);
    const int64_t tokens = scaled.tokens();
    CHECK(tokens == 9 + (s.pooling == "class_token" ? 1 : 0));
    s.attention = parse_spec("pointwise(relu, alpha=1, length=fixed(" + std::to_string(tokens) + "))");
    Vit fixed(s);
    prepare(scaled), prepare(fixed);
    const Tensor pixels = random_tensor({2, 6, 6, 3}, 5);
    CHECK(largest_difference(logits_of(scaled, pixels), logits_of(fixed, pixels)) < 1e-13);
    // With causal attention, the first patch's logits would not depend on the last pixel.
    const Tensor changed = pixels.clone();
    changed.mutable_data<double>()[changed.numel() - 1] += 1;
    CHECK(largest_difference(logits_of(scaled, pixels), logits_of(scaled, changed)) > 1e-6);
  }
}

TEST_CASE("vit: the order of the patches changes the output with positions only") {
  VitSettings s = small_vit();
  const Tensor pixels = random_tensor({1, 6, 6, 3}, 5),
               swapped = concatenate({slice(pixels, 1, 2, 4), slice(pixels, 1, 0, 2), slice(pixels, 1, 4, 6)}, 1);
  for (const char* pooling : {"class_token", "mean"}) {
    s.pooling = pooling;
    s.position = parse_spec("none");
    Vit without(s);
    prepare(without);
    CHECK(largest_difference(logits_of(without, pixels), logits_of(without, swapped)) < 1e-12);
    for (const char* position : {"learned", "rotary", "alibi", "sinusoidal", "relative"}) {
      CAPTURE(position);
      s.position = parse_spec(position);
      Vit with(s);
      prepare(with);
      CHECK(largest_difference(logits_of(with, pixels), logits_of(with, swapped)) > 1e-6);
    }
  }
}

TEST_CASE("vit: the embedding scale multiplies patches, class token and positions") {
  const Tensor pixels = random_tensor({2, 6, 6, 3}, 4);
  const auto logits = [&](const char* scale, double factor) {
    VitSettings s = small_vit();
    s.pooling = "class_token", s.embedding_scale = parse_spec(scale);
    Vit model(s);
    prepare(model);
    for (const nn::NamedParameter& p : nn::parameters_of(model)) {
      if (p.path == "embedding_scale") p.parameter->value.copy_from(Tensor::full({1}, 2, Dtype::f64));
      if (p.path.find("embedding.") != std::string::npos || p.path == "class_token")
        p.parameter->value.copy_from(random_tensor(p.parameter->value.shape(), 9) * factor);
      if (p.path.starts_with("blocks") || p.path.starts_with("norm") || p.path.starts_with("head"))
        p.parameter->value.copy_from(random_tensor(p.parameter->value.shape(), 8));
    }
    return logits_of(model, pixels);
  };
  CHECK(largest_difference(logits("2", 1), logits("none", 2)) <= 1e-10);
  CHECK(largest_difference(logits("learned(3)", 1), logits("none", 2)) <= 1e-10);
  CHECK(largest_difference(logits("none", 1), logits("none", 2)) > 1e-3);
}

TEST_CASE("resnet: initial weights follow the setting") {
  const auto deviation = [](const char* start, const std::string& path) {
    ResnetSettings s = small_resnet();
    s.width = 16, s.blocks = 3, s.initialization = parse_spec(start);
    Resnet model(s);
    nn::initialize(model, 1);
    for (const nn::NamedParameter& p : nn::parameters_of(model))
      if (p.path == path) {
        const Tensor x = p.parameter->value.detach().to(Dtype::f64);
        return std::sqrt(mean(x * x).item());
      }
    return -1.0;
  };
  const std::string first = "blocks.0.first.weight", second = "blocks.0.second.weight";  // 16 channels, 3 x 3 pixels
  CHECK(deviation("fan_in", first) == doctest::Approx(1 / std::sqrt(3 * 144.)).epsilon(0.05));
  CHECK(deviation("0.3", first) == doctest::Approx(0.3).epsilon(0.05));
  CHECK(deviation("0.3", second) == doctest::Approx(0.3 / std::sqrt(9.)).epsilon(0.05));  // 9 branches
  CHECK(deviation("normal(0.3)", second) == doctest::Approx(0.3).epsilon(0.05));
  CHECK(deviation("fixup(0.3)", first) == doctest::Approx(0.1).epsilon(0.05));
  CHECK(deviation("fixup(0.3)", second) == 0);
  CHECK(deviation("fixup(0.3)", "head.weight") == 0);
  CHECK(deviation("relu_former", first) == doctest::Approx(std::sqrt(1 / 144.)).epsilon(0.05));
}

TEST_CASE("vit: weight decay applies to matrices only, and not to the class token") {
  for (const char* attention : {"softmax(temperature=learned(1), persistent=3)", "relu_former", "pointwise(relu)"})
    for (const char* position : {"learned", "alibi(learned=yes)"}) {
      CAPTURE(attention);
      CAPTURE(position);
      VitSettings s = small_vit();
      s.pooling = "class_token", s.attention = parse_spec(attention), s.position = parse_spec(position);
      Vit model(s);
      size_t tokens = 0;
      for (const nn::NamedParameter& p : nn::parameters_of(model)) {
        CAPTURE(p.path);
        int long_axes = 0;
        for (int axis = 0; axis < p.parameter->value.shape().rank(); ++axis)
          long_axes += p.parameter->value.size(axis) > 1 ? 1 : 0;
        if (p.parameter->decay) CHECK(long_axes >= 2);
        if (p.path != "class_token") continue;
        CHECK(!p.parameter->decay);
        ++tokens;
      }
      CHECK(tokens == 1);
    }
}

TEST_CASE("vision: errors for settings and pixels that do not fit have the values") {
  VitSettings s = small_vit();
  s.patch = 4;
  expect_error([&] { Vit model(s); }).names("vit").names("patch").value(4).names("image_size").value(6);
  s = small_vit();
  s.classes = 0;
  expect_error([&] { Vit model(s); }).names("vit").names("classes").value(0).offers(1).offers("images");
  for (const auto size : {&ResnetSettings::channels, &ResnetSettings::classes}) {
    ResnetSettings settings = small_resnet();
    settings.*size = 0;
    expect_error([&] { Resnet model(settings); }).names("resnet").value(0).offers(1).offers("images");
  }
  Vit vit(small_vit());
  prepare(vit);
  const auto refused = [](nn::Module& model, const Shape& pixels) {
    return expect_error([&] { logits_of(model, random_tensor(pixels)); });
  };
  refused(vit, {1, 6, 5, 3}).names("vit").value("(1, 6, 5, 3)").offers("(batch, 6, 6, 3)");
  Resnet resnet(small_resnet());
  prepare(resnet);
  refused(resnet, {1, 6, 6, 3}).names("resnet").value("(1, 6, 6, 3)").offers("(batch, height, width, 2)");
  CHECK(logits_of(resnet, random_tensor({2, 9, 7, 2})).shape() == Shape{2, 4});  // any image size
}
