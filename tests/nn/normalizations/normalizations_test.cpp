// Normalizations: properties that their headers state, beyond the gradient cases.
#include <doctest/doctest.h>

#include <numbers>

#include "engine/autograd/recompute.h"
#include "engine/ops/ops.h"
#include "engine/system/parallel.h"
#include "nn/formulas/activation.h"
#include "nn/normalizations/base/normalization.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::unique_ptr<Module> make(const std::string& spec, int64_t width, bool bias = true) {
  auto module = make_normalization(parse_spec(spec), {.width = width, .bias = bias});
  initialize(*module, 1);
  convert(*module, Dtype::f64);
  return module;
}
Tensor parameter(Module& module, const std::string& name) {
  for (const NamedParameter& p : parameters_of(module))
    if (p.path == name) return p.parameter->value;
  return {};
}
Tensor buffer(Module& module, const std::string& name) {
  for (const auto& [path, tensor] : buffers_of(module))
    if (path == name) return *tensor;
  return {};
}
// Moves parameters away from their initial values, equally for modules with equal parameters.
void disturb(Module& module) {
  int seed = 50;
  for (const NamedParameter& p : parameters_of(module))
    p.parameter->value.copy_from(p.parameter->value.detach() + random_tensor(p.parameter->value.shape(), ++seed) * 0.3);
}
Tensor lengths_of(std::vector<int32_t> lengths) {
  return Tensor::from(Shape{static_cast<int64_t>(lengths.size())}, lengths);
}

ForwardPass training(const Tensor& lengths = {}, RandomKey key = {}) {
  ForwardPass pass;
  pass.training = true, pass.lengths = lengths, pass.rng = key;
  return pass;
}

struct Run {
  Tensor y, dx;
  std::vector<Tensor> parameters;
};
Run run(Module& module, const Tensor& x, const Tensor& dy, ForwardPass pass = {}) {
  for (const NamedParameter& p : parameters_of(module)) p.parameter->value.set_grad({});
  const Tensor leaf = x.clone().set_requires_grad();
  Run result;
  result.y = module(leaf, pass);
  backward(result.y, dy);
  result.dx = leaf.grad();
  for (const NamedParameter& p : parameters_of(module)) result.parameters.push_back(p.parameter->value.grad());
  return result;
}
void check_same(const Run& a, const Run& b, double tolerance = 0) {
  CHECK(largest_difference(a.y, b.y) <= tolerance);
  CHECK(largest_difference(a.dx, b.dx) <= tolerance);
  REQUIRE(a.parameters.size() == b.parameters.size());
  for (size_t i = 0; i < a.parameters.size(); ++i)
    CHECK(largest_difference(a.parameters[i], b.parameters[i]) <= tolerance);
}

}  // namespace

TEST_CASE("the gradient of the input is the same for trained and frozen parameters, with a shift too") {
  for (const char* spec : {"derf(0.7, 0.4)", "dyt(0.6)", "dynamic(gelu, 0.8)", "dynamic(sine, -0.6)"}) {
    INFO(spec);
    const auto layer = make(spec, 5);
    disturb(*layer);
    const Tensor x = random_tensor({3, 5}, 1), dy = random_tensor({3, 5}, 2);
    for (const NamedParameter& p : parameters_of(*layer)) p.parameter->value.set_requires_grad();
    const Run learning = run(*layer, x, dy);
    for (const NamedParameter& p : parameters_of(*layer)) p.parameter->value.set_requires_grad(false);
    const Run frozen = run(*layer, x, dy);
    for (const Tensor& gradient : learning.parameters) CHECK(gradient);
    for (const Tensor& gradient : frozen.parameters) CHECK(!gradient);
    CHECK(largest_difference(learning.dx, frozen.dx) <= 1e-15);
  }
}

TEST_CASE("DyT with tiny alpha is gamma alpha x + beta to third order") {
  const Tensor x = random_tensor({6, 5}, 1), gamma = random_tensor({5}, 2), beta = random_tensor({5}, 3);
  double last = 0;
  for (const double alpha : {4e-2, 2e-2, 1e-2}) {
    const Tensor y = dynamic_norm(x, Activation("tanh"), Tensor::full({1}, alpha, Dtype::f64), {}, gamma, beta);
    const double error = largest_difference(y, gamma * x * alpha + beta);
    CHECK(error > 0);
    if (last > 0) CHECK(last / error == doctest::Approx(8).epsilon(0.01));  // half the alpha, an eighth of the error
    last = error;
  }
}

TEST_CASE("Derf with s = 0 has slope 2 alpha / sqrt(pi) at zero, 1.128 times DyT's") {
  const auto initial_slope = [](const char* activation, double alpha) {
    const Tensor x = Tensor::zeros({1, 1}, Dtype::f64).set_requires_grad();
    sum(dynamic_norm(x, Activation(activation), Tensor::full({1}, alpha, Dtype::f64))).backward();
    return x.grad().item();
  };
  CHECK(initial_slope("erf", 0.7) == doctest::Approx(2 * 0.7 / std::sqrt(std::numbers::pi)).epsilon(1e-14));
  CHECK(initial_slope("tanh", 0.7) == doctest::Approx(0.7).epsilon(1e-14));
  CHECK(initial_slope("erf", 0.7) / initial_slope("tanh", 0.7) == doctest::Approx(1.1283791670955126).epsilon(1e-14));
}

TEST_CASE("dyt is bit-identical to dynamic(tanh), and derf with shift 0 to dynamic(erf)") {
  for (const auto& pair :
       {std::pair("dyt(0.8)", "dynamic(tanh, alpha=0.8)"), std::pair("derf(0.8)", "dynamic(erf, 0.8)")}) {
    const std::string name = pair.first, general = pair.second;
    INFO(name);
    const auto one = make(name, 5), other = make(general, 5);
    const Tensor x = random_tensor({3, 4, 5}, 1), dy = random_tensor({3, 4, 5}, 2);
    Run a = run(*one, x, dy);
    if (const Tensor shift = parameter(*one, "shift")) a.parameters.erase(a.parameters.begin() + 1);
    check_same(a, run(*other, x, dy));
  }
}

TEST_CASE("the ablations of DyT: hardtanh, sigmoid, identity, fixed alpha, no affine part") {
  ForwardPass pass;
  const Tensor x = Tensor::from({1, 4}, {-3, -0.5, 0.25, 2}, Dtype::f64);
  const auto values = [&](const char* spec) { return (*make(spec, 4))(x, pass).to_vector(); };
  CHECK(values("dynamic(hardtanh)") == std::vector<double>{-1, -0.25, 0.125, 1});
  CHECK(values("dynamic(identity, alpha=2)") == std::vector<double>{-6, -1, 0.5, 4});
  CHECK(values("dynamic(sigmoid)")[3] == doctest::Approx(1 / (1 + std::exp(-1))));
  CHECK(count_parameters(*make("dynamic(tanh)", 4)) == 1 + 4 + 4);
  CHECK(count_parameters(*make("dynamic(tanh, alpha=1, learn_alpha=no)", 4)) == 4 + 4);
  CHECK(count_parameters(*make("dynamic(tanh, affine=no)", 4)) == 1);
  CHECK(count_parameters(*make("dynamic(tanh, affine=no, learn_alpha=no)", 4)) == 0);
  CHECK(count_parameters(*make("dyt", 4, false)) == 1 + 4);
  CHECK(count_parameters(*make("derf", 4)) == 2 + 4 + 4);
  CHECK(values("dynamic(identity, alpha=3, learn_alpha=no)") == std::vector<double>{-9, -1.5, 0.75, 6});
}

TEST_CASE("alpha, shift, weight and bias of DyT and Derf do not decay, and start where the papers say") {
  const auto start = [](int64_t width, bool before_attention) {
    const auto dyt =
        make_normalization(parse_spec("dyt(by_width=yes)"), {.width = width, .before_attention = before_attention});
    initialize(*dyt, 1);
    return parameter(*dyt, "alpha").item();
  };
  const std::vector<std::tuple<int64_t, double, double>> listed = {
      {64, 1, 1},        {1024, 1, 1},      {2048, 1, 0.5},   {4096, 0.8, 0.2},
      {5120, 0.6, 0.15}, {8192, 0.2, 0.05}, {9000, 0.2, 0.05}};
  for (const auto& [width, before_attention, other] : listed) {
    CHECK(start(width, true) == doctest::Approx(before_attention).epsilon(1e-7));
    CHECK(start(width, false) == doctest::Approx(other).epsilon(1e-7));
  }
  CHECK(start(2896, false) == doctest::Approx(0.35).epsilon(1e-3));  // half of the way from 2,048 to 4,096
  const auto twice = [] { make("dyt(by_width=yes, alpha=2)", 4); };
  expect_error(twice).names("dyt").value("by_width=yes").value("alpha=2").offers("leave one");
  CHECK_NOTHROW(make("dyt(by_width=yes, alpha=0.5)", 4));  // as a checkpoint writes it
  const auto derf = make("derf", 3);
  for (const NamedParameter& p : parameters_of(*derf)) CHECK(!p.parameter->decay);
  CHECK(parameter(*derf, "alpha").item() == 0.5);
  CHECK(parameter(*derf, "shift").item() == 0);
  CHECK(parameter(*derf, "weight").to_vector() == std::vector<double>(3, 1));
  CHECK(parameter(*derf, "bias").to_vector() == std::vector<double>(3, 0));
  CHECK(parameter(*make("derf(alpha=2, shift=-0.1)", 3), "shift").item() == doctest::Approx(-0.1));
}

TEST_CASE("dalpha in f32 is near f64 over a million elements, and bit-identical for any number of threads") {
  const Tensor x = random_tensor({4096, 256}, 1, Dtype::f32), dy = random_tensor({4096, 256}, 2, Dtype::f32) + 0.5;
  const auto gradient = [&](Dtype dtype) {
    const Tensor alpha = Tensor::full({1}, 0.5, dtype).set_requires_grad(),
                 shift = Tensor::zeros({1}, dtype).set_requires_grad();
    backward(dynamic_norm(x.to(dtype), Activation("erf"), alpha, shift), dy.to(dtype));
    return std::pair(alpha.grad().item(), shift.grad().item());
  };
  const auto exact = gradient(Dtype::f64), rounded = gradient(Dtype::f32);
  CHECK(rounded.first == doctest::Approx(exact.first).epsilon(1e-5));
  CHECK(rounded.second == doctest::Approx(exact.second).epsilon(1e-6));
  const int before = thread_count();
  for (const int threads : {1, 2, 5}) {
    set_thread_count(threads);
    CHECK(gradient(Dtype::f32) == rounded);
  }
  set_thread_count(before);
}

TEST_CASE("the backward of a dynamic normalization is the same with and without learned parameters") {
  const Tensor x = random_tensor({9, 33}, 1), dy = random_tensor({9, 33}, 2), w = random_tensor({33}, 3);
  const auto gradient = [&](bool learned) {
    const Tensor leaf = x.clone().set_requires_grad(), weight = w.clone().set_requires_grad(learned);
    backward(dynamic_norm(leaf, Activation("silu"), Tensor::full({1}, 0.7, Dtype::f64), {}, weight), dy);
    return leaf.grad();
  };
  CHECK(largest_difference(gradient(true), gradient(false)) <= 1e-15);
}

TEST_CASE("normalizations save the tensors that their headers state") {
  const auto kept = [](const Tensor& y) { return y.impl()->edge.node->saved.bytes(); };
  const auto leaf = [](const Shape& shape) { return random_tensor(shape, 1, Dtype::f32).set_requires_grad(); };
  const Tensor x = leaf({2, 3, 8}), w = leaf({8}), b = leaf({8});
  CHECK(kept(dynamic_norm(x, Activation("tanh"), leaf({1}), leaf({1}), w, b)) == 4 * (48 + 1 + 1 + 8));
  CHECK(kept(batch_norm(x, w, b, channel_statistics(x), true)) == 4 * (48 + 8 + 8 + 8));
  CHECK(kept(group_norm(x, w, b, 2)) == 4 * (48 + 8 + 2 * 6 * 2));
  CHECK(kept(group_norm(x, w, b, 2, true)) == 4 * (48 + 8 + 2 * 2 * 2));
}

TEST_CASE("batch normalization: in training every output channel has mean 0 and variance 1") {
  const auto module = make("batch(epsilon=1e-12)", 3);
  ForwardPass pass = training();
  const Tensor y = (*module)(random_tensor({4, 5, 3}, 1) * 3.0 + 2.0, pass).reshape({20, 3});
  CHECK(largest_difference(mean(y, {0}), Tensor::zeros({3}, Dtype::f64)) <= 1e-14);
  CHECK(largest_difference(mean(y * y, {0}), Tensor::full({3}, 1, Dtype::f64)) <= 1e-11);
}

TEST_CASE("batch normalization: the running statistics change in after_step alone, and evaluation uses them") {
  const auto module = make("batch(momentum=0.25, epsilon=1e-12)", 1);
  const Tensor x = Tensor::from({4, 1}, {1, 2, 3, 6}, Dtype::f64);  // mean 3, variance 14 / 4, unbiased 14 / 3
  ForwardPass pass = training();
  (*module)(x, pass);
  CHECK(buffer(*module, "running_mean").item() == 0);
  CHECK(buffer(*module, "running_variance").item() == 1);
  after_step(*module);
  CHECK(buffer(*module, "running_mean").item() == doctest::Approx(0.25 * 3));
  CHECK(buffer(*module, "running_variance").item() == doctest::Approx(0.75 + 0.25 * 14 / 3));
  after_step(*module);  // no new batch
  CHECK(buffer(*module, "running_mean").item() == doctest::Approx(0.25 * 3));
  ForwardPass evaluation;
  const std::vector<double> y = (*module)(x, evaluation).to_vector();
  CHECK(y[3] == doctest::Approx((6 - 0.75) / std::sqrt(0.75 + 0.25 * 14 / 3)));
  after_step(*module);
  CHECK(buffer(*module, "running_mean").item() == doctest::Approx(0.25 * 3));
}

TEST_CASE("batch normalization: recomputation does not repeat the update of the running statistics") {
  const auto plain = make("batch", 3), recomputed = make("batch", 3);
  const Tensor x = random_tensor({8, 3}, 1), dy = random_tensor({8, 3}, 2);
  for (Module* module : {plain.get(), recomputed.get()}) {
    const Tensor leaf = x.clone().set_requires_grad();
    for (const uint64_t micro : {0, 1}) {
      ForwardPass pass = training({}, RandomKey{1, 2}.derive(micro));
      const Tensor in = leaf * (1.0 + static_cast<double>(micro));
      const auto f = [&](const Tensor& t) { return (*module)(t, pass); };
      backward(module == plain.get() ? f(in) : recompute(f, in), dy);
    }
    after_step(*module);
  }
  for (const char* name : {"running_mean", "running_variance"})
    CHECK(largest_difference(buffer(*plain, name), buffer(*recomputed, name)) == 0);
}

TEST_CASE("batch normalization: micro-batches give the running statistics of the full batch") {
  const auto big = make("batch", 3), small = make("batch", 3);
  const Tensor x = random_tensor({10, 3}, 1);
  ForwardPass pass = training();
  (*big)(x, pass);
  for (const auto& [begin, end] : {std::pair(0, 3), std::pair(3, 10)}) {
    pass.rng = RandomKey{0, 0}.derive(begin);
    (*small)(x.slice(begin, end), pass);
  }
  after_step(*big), after_step(*small);
  for (const char* name : {"running_mean", "running_variance"})
    CHECK(largest_difference(buffer(*big, name), buffer(*small, name)) <= 1e-15);
}

TEST_CASE("padding changes no real token's output or gradient, for any values in it") {
  for (const char* name : {"batch", "group(2, over=sequence)", "group(2)", "dyt", "layer"}) {
    INFO(name);
    const auto module = make(name, 4);
    disturb(*module);
    const bool skips = std::string(name).starts_with("batch") || std::string(name).ends_with("sequence)");
    Tensor x = random_tensor({1, 3, 4}, 1), dy = random_tensor({1, 3, 4}, 2);
    const Run real = run(*module, x, dy, training());
    for (const double junk : {7.0, not_a_number}) {
      if (!skips && junk != 7.0) continue;  // tokens do not interact, so NaN stays in its own token
      const Tensor padding = Tensor::full({1, 2, 4}, junk, Dtype::f64);
      const Tensor zeros = Tensor::zeros({1, 2, 4}, Dtype::f64);
      const Run padded = run(*module, concatenate({x, padding}, 1), concatenate({dy, skips ? padding : zeros}, 1),
                             training(lengths_of({3})));
      CHECK(largest_difference(slice(padded.y, 1, 0, 3), real.y) <= 1e-14);
      CHECK(largest_difference(slice(padded.dx, 1, 0, 3), real.dx) <= 1e-14);
      for (size_t i = 0; i < real.parameters.size(); ++i)
        CHECK(largest_difference(padded.parameters[i], real.parameters[i]) <= 1e-14);
      if (!skips) continue;
      CHECK(largest_difference(slice(padded.y, 1, 3, 5), zeros) == 0);
      CHECK(largest_difference(slice(padded.dx, 1, 3, 5), zeros) == 0);
    }
  }
}

TEST_CASE("batch normalization of padding only gives zeros and does not change the running statistics") {
  const auto module = make("batch", 2);
  const Run nothing = run(*module, Tensor::full({2, 3, 2}, not_a_number, Dtype::f64),
                          Tensor::full({2, 3, 2}, 1, Dtype::f64), training(lengths_of({0, 0})));
  CHECK(largest_difference(nothing.y, Tensor::zeros({2, 3, 2}, Dtype::f64)) == 0);
  CHECK(largest_difference(nothing.dx, Tensor::zeros({2, 3, 2}, Dtype::f64)) == 0);
  after_step(*module);
  CHECK(buffer(*module, "running_variance").to_vector() == std::vector<double>{1, 1});
}

TEST_CASE("group normalization: one group is layer normalization; tokens do not mix unless over=sequence") {
  const Tensor x = random_tensor({2, 3, 8}, 1), w = random_tensor({8}, 2), b = random_tensor({8}, 3);
  CHECK(largest_difference(group_norm(x, w, b, 1), layer_norm(x, w, b)) <= 1e-14);
  const Tensor changed = x.clone();
  changed.mutable_data<double>()[2 * 8 + 1] += 1;  // the last token of the first sequence
  const auto first_token_changes = [&](bool over_sequence) {
    return largest_difference(group_norm(x, w, b, 4, over_sequence).slice(0, 1).reshape({24}).slice(0, 8),
                              group_norm(changed, w, b, 4, over_sequence).slice(0, 1).reshape({24}).slice(0, 8)) > 0;
  };
  CHECK(!first_token_changes(false));
  CHECK(first_token_changes(true));
  const Tensor y = group_norm(x, Tensor::full({8}, 1, Dtype::f64), {}, 4, true, {}, 1e-12).reshape({2, 3, 4, 2});
  CHECK(largest_difference(mean(y, {1, 3}), Tensor::zeros({2, 4}, Dtype::f64)) <= 1e-14);
  CHECK(largest_difference(mean(y * y, {1, 3}), Tensor::full({2, 4}, 1, Dtype::f64)) <= 1e-10);
}

TEST_CASE("normalization=none returns the same tensor") {
  const auto module = make("none", 4);
  ForwardPass pass;
  const Tensor x = random_tensor({2, 4}, 1);
  CHECK((*module)(x, pass).impl() == x.impl());
  CHECK(count_parameters(*module) == 0);
}

TEST_CASE("bf16 normalizations compute in f32 and round once") {
  const Tensor x = random_tensor({4, 6, 8}, 1, Dtype::bf16), w = random_tensor({8}, 4, Dtype::bf16),
               a = Tensor::full({1}, 0.5, Dtype::bf16);
  const auto f32 = [](const Tensor& t) { return t.to(Dtype::f32); };
  CHECK(largest_difference(dynamic_norm(x, Activation("tanh"), a, {}, w),
                           dynamic_norm(f32(x), Activation("tanh"), f32(a), {}, f32(w)).to(Dtype::bf16)) == 0);
  CHECK(largest_difference(group_norm(x, w, {}, 2), group_norm(f32(x), f32(w), {}, 2).to(Dtype::bf16)) == 0);
  CHECK(largest_difference(batch_norm(x, w, {}, channel_statistics(x), true),
                           batch_norm(f32(x), f32(w), {}, channel_statistics(f32(x)), true).to(Dtype::bf16)) == 0);
}

TEST_CASE("invalid settings of normalizations have error messages") {
  const auto error = [](const char* spec) {
    return expect_error([&] { make_normalization(parse_spec(spec), {.width = 12}); });
  };
  error("group(5)").names("group").names("group(5)").value("groups (5)").offers("width (12)");
  error("none(3)").names("normalization").value("none(3)").offers("normalization=none");
  error("dyt(alpha=high)").names("dyt").names("alpha").value("'high'").offers("number");
  error("group(0)").names("group").names("groups").value(0).offers(1);
  error("group(4, over=batch)").names("over").value("'batch'").offers("token");
  error("batch(momentum=2)").names("batch").names("momentum").value(2).offers(1);
  error("dynamic(swosh)").names("activation").value("'swosh'").offers("'swish' (silu)");
  const auto scalar = [] { rms_norm(Tensor::zeros(Shape{}), Tensor::zeros({3})); };
  expect_error(scalar).names("rms_norm").value("x ()").names("weight (3)").offers("last axis");
  ForwardPass pass = training(lengths_of({1, 2}));
  const auto flat = [&] { (*make("batch", 3))(random_tensor({4, 3}, 1), pass); };
  expect_error(flat).names("lengths (2)").value("x (4, 3)").offers("(batch, time, channels)").offers("(batch) i32");
}
