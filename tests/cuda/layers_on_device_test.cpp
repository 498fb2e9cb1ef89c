// Every layer of nn on the device. Gradient cases and registered names give the layers, so a new
// one is tested as soon as it exists.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/base/gradient_case.h"
#include "nn/diagnostics/diagnostics.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/losses/base/loss.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/positions/base/position.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/random_tensors.h"
#if defined(EMULATE_CUDA)
#include "tests/support/host_copies.h"
#endif

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::random_tensor;

namespace {

int64_t copies_to_host() {
#if defined(EMULATE_CUDA)
  return cuda_on_cpu::copies_to_host;
#else
  return 0;
#endif
}

struct Result {
  std::string what;
  std::vector<double> numbers;
};
using Results = std::vector<Result>;

// Returns true if sums by index read the indices on the host (allowed); then their users may, too.
bool index_sums_copy_to_host() {
  static const bool read = [] {
    const Tensor table = random_tensor({3, 2}).to(Device::cuda).clone().set_requires_grad();
    const Tensor at = Tensor::from(Shape{2}, std::vector<int32_t>{2, 0}).to(Device::cuda);
    const int64_t before = copies_to_host();
    sum(index_select(table, at)).backward();
    return copies_to_host() != before;
  }();
  return read;
}

// Returns output and gradients of the explicit function on a device, without reads by the host.
Results differentiated(const GradientCase& test, Device device, Dtype dtype, bool may_copy = false) {
  std::vector<Tensor> x;
  for (const GradientCase::Input& input : test.inputs) {
    const bool floating = is_floating(input.value.dtype());
    x.push_back((floating ? input.value.to(dtype) : input.value).to(device).clone());
    if (floating) x.back().set_requires_grad();
  }
  const int64_t before = copies_to_host();
  const Tensor y = test.fast(x);
  check(y.device() == device, "the output is on the wrong device");
  backward(y, random_tensor(y.shape(), 7).to(y.dtype()).to(device));
  check(may_copy || copies_to_host() == before, "the host reads the device's memory");
  Results results = {{"the output", y.to_vector()}};
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].grad()) results.push_back({"the gradient of " + test.inputs[i].name, x[i].grad().to_vector()});
  return results;
}

// Returns "" if the numbers agree within `tolerance` of each result's size, else the difference.
std::string difference(const Results& cpu, const Results& cuda, double tolerance) {
  if (cpu.size() != cuda.size()) return "not the same gradients arrive";
  for (size_t i = 0; i < cpu.size(); ++i) {
    double size = 1, worst = 0;
    for (const double a : cpu[i].numbers) size = std::max(size, std::fabs(a));
    for (size_t e = 0; e < cpu[i].numbers.size(); ++e) {
      const double d = std::fabs(cpu[i].numbers[e] - cuda[i].numbers[e]);
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    }
    if (!(worst <= tolerance * size)) return cpu[i].what + " differs by " + std::to_string(worst / size / tolerance);
  }
  return "";
}

template <class F>
std::string or_error(const F& f) {
  try {
    return f();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::string difference(const RegisteredCase& registered, Dtype dtype, double tolerance) {
  return or_error([&] {
    const GradientCase test = make_case(registered);
    const bool by_index = registered.name == "embedding" || registered.name == "learned" ||
                          (registered.name == "relative" && registered.title.starts_with("sparsemax"));
    const bool may_copy = by_index && index_sums_copy_to_host();
    return difference(differentiated(test, Device::cpu, dtype), differentiated(test, Device::cuda, dtype, may_copy),
                      tolerance);
  });
}

constexpr bool sanitized = address_sanitizer || thread_sanitizer;

// ---- a whole model

struct Choice {
  std::string attention = "softmax", feed_forward = "dense", normalization = "layer", position = "learned";
};

class Model final : public Module {
 public:
  static constexpr int64_t context = 9, width = 16, vocabulary = 11;
  explicit Model(const Choice& c) : embedding_(vocabulary, width) {
    const int64_t heads = c.attention == "gau" ? 1 : 2;
    position_ = make_position(parse_spec(c.position), {.context = context, .width = width, .heads = heads});
    first_ = make_normalization(parse_spec(c.normalization), {.width = width});
    second_ = make_normalization(parse_spec(c.normalization), {.width = width});
    attention_ = make_attention(parse_spec(c.attention),
                                {.width = width, .heads = heads, .context = context, .position = position_.get()});
    feed_forward_ = make_feed_forward(parse_spec(c.feed_forward), {.width = width, .d_ff = 24});
    head_ = std::make_unique<Linear>(width, vocabulary, Linear::Options{});
    name_paths(*this);
  }
  Tensor forward(const Tensor& tokens, ForwardPass& pass) override {
    const Tensor x = (*position_)(embedding_(tokens, pass), pass);
    const Tensor y = attention_->call_with_residual((*first_)(x, pass), x, pass);
    return (*head_)(feed_forward_->call_with_residual((*second_)(y, pass), y, pass), pass);
  }
  void visit(Visitor& v) override {
    v("embedding", embedding_);
    v("position", position_);
    v("first", first_);
    v("attention", attention_);
    v("second", second_);
    v("feed_forward", feed_forward_);
    v("head", head_);
  }

 private:
  Embedding embedding_;
  std::unique_ptr<Position> position_;
  std::unique_ptr<Module> first_, second_;
  std::unique_ptr<Sublayer> attention_, feed_forward_;
  std::unique_ptr<Linear> head_;
};

// Returns loss and gradients of one step, packed or padded, on a device.
Results step(const Choice& choice, Device device, bool packed) {
  Model model(choice);
  convert(model, Dtype::f64);
  initialize(model, 5);
  move(model, device);
  const auto whole = [&](const Shape& shape, const std::vector<int32_t>& x) {
    return Tensor::from(shape, x).to(device);
  };
  const Tensor tokens = whole({2, 9}, {1, 5, 2, 8, 10, 3, 3, 7, 0, 4, 4, 9, 1, 0, 6, 2, 5, 8}),
               targets = whole({2, 9}, {5, 2, 8, 10, 3, 3, 7, 0, -1, 4, 9, 1, 0, 6, 2, -1, -1, -1});
  ForwardPass pass;
  pass.training = true, pass.rng = RandomKey{3, 4};
  if (packed)
    pass.document_ids = whole({2, 9}, {4, 4, 4, 4, 7, 7, 1, 1, 1, 0, 0, 2, 2, 2, 2, 2, 3, 3});
  else
    pass.lengths = whole({2}, {9, 6});
  const int64_t before = copies_to_host();
  const Tensor loss = cross_entropy(model(tokens, pass), targets);
  loss.backward();
  after_step(model);
  check(copies_to_host() == before || index_sums_copy_to_host(), "the host reads the device's memory");
  Results results = {{"the loss", loss.to_vector()}};
  for (const NamedParameter& p : parameters_of(model))
    if (p.parameter->value.grad()) results.push_back({p.path, p.parameter->value.grad().to_vector()});
  for (const auto& [path, buffer] : buffers_of(model)) results.push_back({path, buffer->to_vector()});
  return results;
}

}  // namespace

TEST_CASE("every registered layer gives the CPU's numbers on the device, forward and backward") {
  if (no_gpu()) return;
  const std::vector<RegisteredCase>& all = gradient_cases();
  REQUIRE(all.size() > 450);
  for (size_t i = 0; i < all.size(); i += sanitized ? 5 * one_of(5) : 1) {
    INFO(all[i].family, " / ", all[i].name, " / ", all[i].title);
    CHECK(difference(all[i], Dtype::f64, 1e-12) == "");
  }
}

TEST_CASE("single precision and bf16 give the CPU's numbers on the device within their rounding") {
  if (no_gpu()) return;
  const double epsilon = std::numeric_limits<float>::epsilon(), epsilon_of_bf16 = 0x1p-7;
  const auto is_one_of = [](const std::string& name, std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  int compared = 0;
  for (const RegisteredCase& c : gradient_cases()) {
    INFO(c.family, " / ", c.name, " / ", c.title);
    const bool pointwise = c.family == "activation" && is_one_of(c.name, {"silu", "relu", "gelu", "tanh", "elu"});
    const bool layer = (c.family == "normalization" && is_one_of(c.name, {"layer", "rms", "group"})) ||
                       (c.family == "feed_forward" && is_one_of(c.name, {"dense", "gated"})) ||
                       (c.family == "layer" && is_one_of(c.name, {"linear", "linear_split"})) ||
                       (c.family == "attention" && c.title.find("packed") != c.title.npos &&
                        c.title.find("entropy") == c.title.npos && c.title.find("penalty") == c.title.npos &&
                        is_one_of(c.name, {"softmax", "pointwise", "linear", "sparsemax", "rela"}));
    if (!pointwise && !layer) continue;
    ++compared;
    // A layer chains sums of at most 40 terms of size 1, each within 1e-6 of the absolute values'
    // sum. Intermediate bf16 values may be rounded either way: one unit in the last place each.
    CHECK(difference(c, Dtype::f32, pointwise ? 4 * epsilon : 4e-5) == "");
    CHECK(difference(c, Dtype::bf16, 4 * epsilon_of_bf16) == "");
  }
  CHECK(compared > 20);
}

// Returns output and gradients of attention over 70 tokens with weights F(s); no name: softmax.
Results attended(const std::string& activation, int64_t head_size, Device device) {
  std::vector<Tensor> x;
  for (uint64_t seed = 1; seed < 4; ++seed) {
    x.push_back(random_tensor({1, 70, 2, head_size}, seed).to(Dtype::bf16).to(device).clone());
    x.back().set_requires_grad();
  }
  const AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(head_size))};
  const auto function = activation.empty() ? std::optional<Activation>() : Activation(activation);
  Tensor p;
  if (function && function->parameter_count() > 0)
    p = random_tensor({2, function->parameter_count()}, 8).to(Dtype::f32).to(device).clone().set_requires_grad();
  const Tensor y = attention({.query = x[0], .key = x[1], .value = x[2], .parameters = p}, options, function).output;
  backward(y, random_tensor(y.shape(), 7).to(Dtype::bf16).to(device));
  Results results = {{"the output", y.to_vector()},
                     {"dq", x[0].grad().to_vector()},
                     {"dk", x[1].grad().to_vector()},
                     {"dv", x[2].grad().to_vector()}};
  if (p) results.push_back({"dp", p.grad().to_vector()});
  return results;
}

TEST_CASE("attention in bf16 weighted by every activation and by softmax gives the CPU's numbers") {
  if (no_gpu()) return;
  std::vector<std::string> names = nn::detail::activations().names();
  REQUIRE(names.size() >= 31);
  names.push_back("");
  for (const int64_t head_size : {20, 72})  // tensor cores pad them to 64 and 128
    for (size_t i = 0; i < names.size(); i += one_of(7)) {
      CAPTURE(names[i]);
      CAPTURE(head_size);
      const auto on = [&](Device device) { return attended(names[i], head_size, device); };
      // Tensor cores round weights and ds to bf16, the CPU does not; both round all results.
      CHECK(difference(on(Device::cpu), on(Device::cuda), 0x1p-6) == "");
    }
}

TEST_CASE("a block of every attention, feed-forward, normalization and position trains on the device") {
  if (no_gpu()) return;
  std::vector<Choice> all;
  for (const std::string& name : attentions().names()) all.push_back({.attention = name});
  for (const std::string& name : feed_forwards().names()) all.push_back({.feed_forward = name});
  for (const std::string& name : normalizations().names()) all.push_back({.normalization = name});
  for (const std::string& name : positions().names()) all.push_back({.position = name});
  for (const char* more : {"softmax(dropout=0.3)", "pointwise(relu, span=dynamic_span(6, R=3), persistent=2)",
                           "softmax(span=adaptive_span(6, R=3))", "sparsemax(dropout=0.2)",
                           "pointwise(softplus, alpha=learned(0.5), length=row_index)"})
    all.push_back({.attention = more});
  REQUIRE(all.size() > 30);
  for (size_t i = 0; i < all.size(); i += sanitized ? 5 * one_of(5) : 1)
    for (const bool packed : {false, true}) {
      const Choice& c = all[i];
      const std::string components = c.attention + ", " + c.feed_forward + ", " + c.normalization + ", " + c.position;
      CAPTURE(components);
      CAPTURE(packed);
      CHECK(or_error([&] { return difference(step(c, Device::cpu, packed), step(c, Device::cuda, packed), 1e-12); }) ==
            "");
    }
}

TEST_CASE("out-of-range targets make the loss NaN on the device, where kernels cannot throw") {
  if (no_gpu()) return;
  const Tensor logits = random_tensor({3, 4}, 1).to(Device::cuda);
  const auto loss = [&](const std::vector<int32_t>& targets) {
    return cross_entropy(logits, Tensor::from(Shape{3}, targets).to(Device::cuda)).item();
  };
  CHECK(std::isfinite(loss({0, 3, -1})));
  CHECK(std::isnan(loss({0, 4, -1})));
  CHECK(loss({-1, -1, -1}) == 0);
}

TEST_CASE("incremental decoding on the device gives the CPU's numbers without copies to the host") {
  if (no_gpu()) return;
  for (const char* attention : {"softmax", "linear", "gau", "softmax(span=adaptive_span(6, R=3))", "sparsemax",
                                "pointwise(relu, length=row_index)"})
    for (const char* position : {"rotary", "alibi", "learned", "sinusoidal"}) {
      const std::string components = std::string(attention) + ", " + position;
      if (components == "linear, alibi") continue;  // linear has no scores
      CAPTURE(components);
      const auto results = [&](Device device) {
        const NoGrad guard;
        Model model({.attention = attention, .position = position});
        convert(model, Dtype::f64);
        initialize(model, 5);
        move(model, device);
        Cache cache;
        ForwardPass pass;
        pass.cache = &cache;
        Results all;
        for (const std::vector<int32_t>& next : {std::vector<int32_t>{1, 5, 2, 8}, {3}, {0, 4}}) {
          const auto n = static_cast<int64_t>(next.size());
          const Tensor tokens = Tensor::from(Shape{1, n}, next).to(device);
          const int64_t before = copies_to_host();
          const Tensor logits = model(tokens, pass);
          check(copies_to_host() == before, "the host reads the device's memory");
          cache.length += n;
          all.push_back({"logits", logits.to_vector()});
        }
        return all;
      };
      CHECK(or_error([&] { return difference(results(Device::cpu), results(Device::cuda), 1e-12); }) == "");
    }
}

TEST_CASE("diagnostics of tensors on the device equal those on the CPU") {
  if (no_gpu()) return;
  const Tensor x = random_tensor({3, 5, 7}, 1), w = maximum(x, Tensor::zeros({1}, Dtype::f64)),
               there = w.to(Device::cuda);
  const auto is_same = [](double a, double b) { return std::fabs(a - b) <= 1e-12; };
  const Tensor entropy = row_entropy(w), gpu_entropy = row_entropy(there);
  CHECK(orrery::testing::largest_difference(entropy, gpu_entropy) <= 1e-12);
  CHECK(entropy_histogram(entropy, 2) == entropy_histogram(gpu_entropy, 2));
  CHECK(is_same(saturation_fraction(x, 2), saturation_fraction(x.to(Device::cuda), 2)));
  CHECK(is_same(zero_fraction(w), zero_fraction(there)));
  CHECK(is_same(dead_row_fraction(w), dead_row_fraction(there)));
  CHECK(is_same(top_fraction(w, 0.3), top_fraction(there, 0.3)));
  CHECK(is_same(variance_ratio(x, w), variance_ratio(x.to(Device::cuda), there)));
}
