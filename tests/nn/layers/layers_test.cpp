// Layers compared with PyTorch, and properties that their headers state.
#include <doctest/doctest.h>

#include <algorithm>

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/layers/dropout.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/losses/base/loss.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/positions/base/position.h"
#include "tests/support/golden.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::expect_error;
using orrery::testing::Golden;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

const Golden& golden() {
  static const Golden file("layers.safetensors");
  return file;
}

// Runs f on the golden inputs in f64 and f32; output and every gradient must equal PyTorch's.
template <class F>
void compare(const std::string& name, const std::vector<std::string>& inputs, const F& f) {
  for (const auto& kind : {std::pair(Dtype::f64, 1e-12), std::pair(Dtype::f32, 1e-5)}) {
    const Dtype dtype = kind.first;
    const double tolerance = kind.second;
    INFO(name, " ", orrery::name(dtype));
    std::vector<Tensor> x;
    for (const std::string& input : inputs) {
      const Tensor value = golden()(name + "." + input);
      x.push_back(is_floating(value.dtype()) ? value.to(dtype).clone().set_requires_grad() : value);
    }
    const Tensor y = f(x);
    CHECK(largest_difference(y, golden()(name + ".y").to(dtype)) <= tolerance);
    backward(y, golden().has(name + ".dy") ? golden()(name + ".dy").to(dtype) : Tensor::full(y.shape(), 1, dtype));
    for (size_t i = 0; i < x.size(); ++i) {
      INFO("gradient of ", inputs[i]);
      if (is_floating(x[i].dtype()))
        CHECK(largest_difference(x[i].grad(), golden()(name + ".d" + inputs[i]).to(dtype)) <= tolerance);
    }
  }
}

using Inputs = std::vector<Tensor>;

Tensor softmax_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  return attention({.query = q, .key = k, .value = v}, options).output;
}

}  // namespace

TEST_CASE("layers agree with PyTorch, outputs and every gradient") {
  compare("layer_norm", {"x", "weight", "bias"}, [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); });
  compare("rms_norm", {"x", "weight"}, [](const Inputs& x) { return rms_norm(x[0], x[1]); });
  compare("linear", {"x", "weight", "bias"}, [](const Inputs& x) { return linear(x[0], x[1], x[2]); });
  compare("attention", {"q", "k", "v"},
          [](const Inputs& x) { return softmax_attention(x[0], x[1], x[2], {.scale = 0.5}); });
  compare("attention_full", {"q", "k", "v"}, [](const Inputs& x) {
    return softmax_attention(x[0], x[1], x[2], {.mask = {.causal = false}, .scale = 0.5});
  });
  compare("feed_forward", {"x", "input", "output"},
          [](const Inputs& x) { return dense_feed_forward(x[0], Activation("gelu"), x[1], {}, x[2], {}); });
  compare("cross_entropy", {"logits", "targets"}, [](const Inputs& x) { return cross_entropy(x[0], x[1]); });
}

TEST_CASE("layers save the tensors that their headers state") {
  const auto kept = [](const Tensor& y) { return y.impl()->edge.node->saved.bytes(); };
  const auto leaf = [](const Shape& shape) { return random_tensor(shape, 1, Dtype::f32).set_requires_grad(); };
  const int64_t rows = 6, width = 8, slots = 16;
  const Tensor x = leaf({rows, width});
  CHECK(kept(layer_norm(x, leaf({width}), leaf({width}))) == 4 * (rows * width + width + 2 * rows));
  CHECK(kept(rms_norm(x, leaf({width}))) == 4 * (rows * width + width + rows));
  CHECK(kept(linear(x, leaf({slots, width}))) == 4 * (rows * width + slots * width));
  CHECK(kept(dense_feed_forward(x, Activation("gelu"), leaf({slots, width}), {}, leaf({width, slots}), {})) ==
        4 * (rows * width + rows * slots + 2 * slots * width));
  CHECK(kept(dropout(x, 0.5, RandomKey{1, 2})) == 0);
  const Tensor q = leaf({2, 3, 2, 4});
  CHECK(kept(softmax_attention(q, leaf({2, 3, 2, 4}), leaf({2, 3, 2, 4}), {.scale = 0.5})) ==
        4 * (4 * 2 * 3 * 2 * 4 + 2 * 2 * 3));
  CHECK(kept(cross_entropy(x, Tensor::from({rows}, std::vector<int32_t>(6, 1)))) ==
        4 * (rows * width + rows + rows) + 8);
}

TEST_CASE("bf16 layers compute in f32 and round once") {
  const Tensor x = random_tensor({4, 8}, 1, Dtype::bf16), w = random_tensor({6, 8}, 2, Dtype::bf16),
               b = random_tensor({6}, 3, Dtype::bf16);
  const Tensor y = linear(x, w, b), exact = linear(x.to(Dtype::f32), w.to(Dtype::f32), b.to(Dtype::f32));
  CHECK(largest_difference(y, exact.to(Dtype::bf16)) == 0);
  const Tensor g = random_tensor({8}, 4, Dtype::bf16);
  CHECK(largest_difference(layer_norm(x, g, {}), layer_norm(x.to(Dtype::f32), g.to(Dtype::f32), {}).to(Dtype::bf16)) ==
        0);
}

TEST_CASE("a residual and a bias are added by the product itself") {
  const Tensor x = random_tensor({4, 8}, 1), w = random_tensor({6, 8}, 2), b = random_tensor({6}, 3),
               r = random_tensor({4, 6}, 4);
  CHECK(largest_difference(linear(x, w, b, r), matmul(x, w, {.b = true}) + b + r) <= 1e-14);
  expect_error([&] { linear(x, w, b, x); }).names("linear").names("residual").value("(4, 8)").offers("(4, 6)");
}

TEST_CASE("dropout keeps the mean, differs by key, and is the identity outside training") {
  const Tensor x = Tensor::full({200, 500}, 1);
  const Tensor y = dropout(x, 0.3, RandomKey{1, 2});
  CHECK(mean(y).item() == doctest::Approx(1).epsilon(0.01));
  CHECK(largest_difference(y, dropout(x, 0.3, RandomKey{1, 2})) == 0);
  CHECK(largest_difference(y, dropout(x, 0.3, RandomKey{1, 3})) > 1);
  Dropout layer(0.3);
  ForwardPass pass;
  CHECK(largest_difference(layer(x, pass), x) == 0);
  expect_error([] { Dropout(1.5); }).names("dropout").names("p").offers("[0, 1)").value(1.5);
}

TEST_CASE("cross-entropy: ignored targets, reuse of the logits' buffer, errors") {
  const Tensor logits = random_tensor({3, 5}, 1).set_requires_grad();
  const auto targets = [](std::vector<int32_t> t) { return Tensor::from({static_cast<int64_t>(t.size())}, t); };
  const Tensor two = cross_entropy(logits, targets({1, -1, 4}));
  const double first = cross_entropy(logits.detach().slice(0, 1), targets({1})).item(),
               last = cross_entropy(logits.detach().slice(2, 3), targets({4})).item();
  CHECK(two.item() == doctest::Approx((first + last) / 2));
  two.backward();
  for (int v = 0; v < 5; ++v) CHECK(logits.grad().to_vector()[5 + v] == 0);
  const auto outside = [&] { cross_entropy(logits, targets({1, 5, 0})); };
  expect_error(outside).names("cross_entropy").value("target 5").names("position 1").offers("0 to 4");
  const Tensor rows = random_tensor({3, 5}, 2).set_requires_grad(), none = cross_entropy(rows, targets({-1, -1, -1}));
  CHECK(none.item() == 0);
  none.backward();
  CHECK(rows.grad().to_vector() == std::vector<double>(15, 0));
  const int64_t before = memory_use(Device::cpu).allocated;
  {
    const Tensor x = random_tensor({64, 1024}, 1, Dtype::f32).set_requires_grad();
    const Tensor loss = cross_entropy(x * 2.0, Tensor::from({64}, std::vector<int32_t>(64, 3)));
    reset_peak(Device::cpu);
    loss.backward();  // reuses the product's buffer for its gradient; allocates one for the gradient of x
    CHECK(memory_use(Device::cpu).peak - before < 4 * 64 * 1024 * 3 + 20000);
  }
}

TEST_CASE("attention: lengths, documents, grouped heads, errors") {
  const Tensor q = random_tensor({2, 6, 4, 3}, 1), k = random_tensor({2, 6, 2, 3}, 2),
               v = random_tensor({2, 6, 2, 3}, 3);
  const Tensor lengths = Tensor::from({2}, std::vector<int32_t>{4, 6});
  const Tensor o = softmax_attention(q, k, v, {.mask = {.causal = false, .lengths = lengths}, .scale = 0.5});
  const auto first = [](const Tensor& x, int64_t n) { return slice(x.slice(0, 1), 1, 0, n); };
  CHECK(largest_difference(first(o, 4), softmax_attention(first(q, 4), first(k, 4), first(v, 4),
                                                          {.mask = {.causal = false}, .scale = 0.5})) <= 1e-14);
  const Tensor documents = Tensor::from({2, 6}, std::vector<int32_t>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0});
  const Tensor packed = softmax_attention(
      q, k, v, {.mask = {.query_document_ids = documents, .key_document_ids = documents}, .scale = 0.5});
  CHECK(largest_difference(first(packed, 4),
                           softmax_attention(first(q, 4), first(k, 4), first(v, 4), {.scale = 0.5})) <= 1e-14);
  const std::string axes = "(batch, time, heads, size)";
  const auto of_one = [&] { softmax_attention(q, k.slice(0, 1), v, {.scale = 1}); };
  expect_error(of_one).value("(2, 6, 4, 3)").value("(1, 6, 2, 3)").value("(2, 6, 2, 3)").offers(axes);
  const auto of_seven = [] { make_attention(parse_spec("softmax"), {.width = 512, .heads = 7}); };
  expect_error(of_seven).names("attention").value("heads (7)").names("width (512)").offers("head_size");
}

TEST_CASE("modules: paths, counts, initial values that depend on seed and path alone, error paths") {
  struct Two final : Module {
    Linear a{4, 3, {}}, b{3, 2, {.bias = false}};
    Tensor forward(const Tensor& x, ForwardPass& pass) override { return b(a(x, pass), pass); }
    void visit(Visitor& v) override { v("a", a), v("b", b); }
  };
  Two model, other;
  name_paths(model);
  CHECK(count_parameters(model) == 4 * 3 + 3 + 3 * 2);
  const auto all = parameters_of(model);
  CHECK(all[0].path == "a.weight");
  CHECK(all[1].path == "a.bias");
  CHECK(all[2].path == "b.weight");
  CHECK(all[0].parameter->decay);
  CHECK(!all[1].parameter->decay);
  initialize(model, 1), initialize(other, 1);
  CHECK(largest_difference(model.a.weight.value, other.a.weight.value) == 0);
  initialize(other, 2);
  CHECK(largest_difference(model.a.weight.value, other.a.weight.value) > 0);
  ForwardPass pass;
  const auto too_wide = [&] { model(Tensor::zeros({2, 5}), pass); };
  expect_error(too_wide).names("a").names("linear").value("input (2, 5)").value("weight (3, 4)").offers(4);
}

TEST_CASE("parameters are NaN until they are initialized, and so is what is computed from them") {
  Linear layer(4, 3, {});
  const auto finite = [&] {
    ForwardPass pass;
    int64_t count = 0;
    for (const Tensor& t : {layer.weight.value, layer.bias.value, layer(random_tensor({2, 4}).to(Dtype::f32), pass)})
      for (const double x : t.to_vector()) count += std::isfinite(x);
    return count;
  };
  CHECK(finite() == 0);
  convert(layer, Dtype::bf16), convert(layer, Dtype::f32);
  CHECK(finite() == 0);
  initialize(layer, 1);
  CHECK(finite() == 12 + 3 + 6);
}

TEST_CASE("initializations have the variance they name") {
  const auto std = [](Initialization how) {
    const Tensor x = Tensor::empty({400, 500}, Dtype::f32, Device::cpu);
    fill(x, how, RandomKey{3, 4});
    return std::sqrt(mean(x * x).item());
  };
  CHECK(std(normal(0.02)) == doctest::Approx(0.02).epsilon(0.01));
  CHECK(std(scaled_normal(0.02, 8)) == doctest::Approx(0.005).epsilon(0.01));
  CHECK(std(uniform(0.3)) == doctest::Approx(0.3 / std::sqrt(3)).epsilon(0.01));
  CHECK(std(xavier_uniform(30, 70)) == doctest::Approx(std::sqrt(0.02)).epsilon(0.01));
  CHECK(std(xavier_normal(30, 70)) == doctest::Approx(std::sqrt(0.02)).epsilon(0.01));
  CHECK(std(kaiming_uniform(50)) == doctest::Approx(0.2).epsilon(0.01));
  CHECK(std(kaiming_normal(50)) == doctest::Approx(0.2).epsilon(0.01));
  CHECK(std(constant(0.7)) == doctest::Approx(0.7));
}

TEST_CASE("settings of layers are checked") {
  const std::string all = join(normalizations().names());
  const auto misspelt = [] { make_normalization(parse_spec("layr"), {4}); };
  expect_error(misspelt).names("normalization").value("'layr'").offers("'layer'").offers(all);
  expect_error([] { make_normalization(parse_spec("layer(epsilon=0)"), {4}); }).names("epsilon").value(0).offers(0);
  const auto swosh = [] { make_feed_forward(parse_spec("dense(swosh)"), {.width = 4, .d_ff = 8}); };
  expect_error(swosh).names("activation").value("'swosh'").offers("'swish' (silu)");
  ForwardPass pass;
  const auto position = make_position(parse_spec("learned"), {.context = 3, .width = 4});
  const auto too_long = [&] { (*position)(Tensor::zeros({1, 5, 4}), pass); };
  expect_error(too_long).names("learned positions").value("5 positions").value(3).offers("longer context");
}

TEST_CASE("a feed-forward accepts learned activations and trains them") {
  for (const std::string name : {"leaky_relu_learned", "prelu", "xielu"}) {
    INFO(name);
    const auto layer = make_feed_forward(parse_spec("dense(" + name + ")"), {.width = 4, .d_ff = 8});
    name_paths(*layer);
    initialize(*layer, 1);
    const Activation f(name);
    const auto all = parameters_of(*layer);
    const auto slopes = std::find_if(all.begin(), all.end(), [](const auto& p) { return p.path == "activation"; });
    REQUIRE(slopes != all.end());
    CHECK(largest_difference(slopes->parameter->value,
                             Tensor::from(slopes->parameter->value.shape(), f.initial_parameters(), Dtype::f32)) == 0);
    ForwardPass pass;
    const Tensor y = (*layer)(random_tensor({5, 4}, 3, Dtype::f32) * 50.0, pass);
    sum(y * y).backward();
    for (const NamedParameter& p : all) {
      INFO(p.path);
      CHECK(sum(abs(p.parameter->value.grad())).item() > 0);
    }
  }
}
