// Properties of each feed-forward.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/hooks.h"
#include "engine/system/parallel.h"
#include "nn/feed_forwards/base/conversions.h"
#include "tests/support/feed_forward_layers.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

TEST_CASE("a softmax memory is softmax(scale x K^T) V") {
  const Layer memory = layer_of("memory(softmax, scale=0.6)", sizes);
  const Tensor x = random_tensor({2, 3, 5}, 1);
  const Tensor e = exp(matmul(x, parameter(*memory, "key"), {.b = true}) * 0.6);
  ForwardPass pass;
  CHECK(largest_difference((*memory)(x, pass), matmul(e / sum(e, {-1}, true), parameter(*memory, "value"))) <= exact);
}

TEST_CASE("every feed-forward adds the residual, and feed_forward=none returns it") {
  const Tensor x = random_tensor({2, 3, 5}, 1), residual = random_tensor({2, 3, 5}, 2);
  for (const char* spec : {"dense(gelu)", "dense(prelu)", "gated(silu)", "gated(prelu)", "memory(relu)",
                           "memory(prelu)", "memory(relu, norm=layer)", "memory(softmax)",
                           "memory(softmax, norm=layer)", "persistent", "persistent(projections=yes)", "none"}) {
    INFO(spec);
    const Layer layer = layer_of(spec, sizes);
    ForwardPass pass;
    CHECK(largest_difference(layer->call_with_residual(x, residual, pass), (*layer)(x, pass) + residual) <= exact);
  }
  const Layer none = layer_of("none", sizes);
  ForwardPass pass;
  CHECK(none->call_with_residual(x, residual, pass).impl() == residual.impl());
  CHECK(none->is_noop());
  CHECK(!layer_of("dense", sizes)->is_noop());
  CHECK(largest_difference((*none)(x, pass), Tensor::zeros_like(x)) == 0);
  CHECK(count_parameters(*none) == 0);
}

TEST_CASE("gated is the product of an activation and a linear part, with the named units as members") {
  const Tensor x = random_tensor({4, 5}, 1);
  for (const char* unit : {"sigmoid", "relu", "gelu", "silu", "identity"}) {
    INFO(unit);
    const Layer layer = layer_of(std::string("gated(") + unit + ")", sizes);
    const auto half = [&](const char* name, int64_t begin) { return parameter(*layer, name).slice(begin, begin + 7); };
    const Tensor gate = matmul(x, half("input.weight", 0), {.b = true}) + half("input.bias", 0);
    const Tensor up = matmul(x, half("input.weight", 7), {.b = true}) + half("input.bias", 7);
    const Tensor y = matmul(Activation(unit)(gate) * up, parameter(*layer, "output.weight"), {.b = true}) +
                     parameter(*layer, "output.bias");
    ForwardPass pass;
    CHECK(largest_difference((*layer)(x, pass), y) <= exact);
  }
}

TEST_CASE("gated has d_ff hidden units, or two thirds of it") {
  const auto slots = [](const std::string& spec, int64_t inner) {
    const Layer layer = layer_of(spec, {.width = 5, .d_ff = inner});
    return parameter(*layer, "output.weight").size(1);
  };
  CHECK(slots("gated", 12) == 12);
  CHECK(slots("gated(two_thirds=yes)", 12) == 8);
  CHECK(slots("gated(two_thirds=yes)", 2048) == 1365);
  CHECK(slots("gated(two_thirds=yes)", 4) == 3);
  CHECK(slots("gated(two_thirds=yes)", 1) == 1);
  const FeedForwardOptions options{.width = 5, .d_ff = 12, .bias = false};
  CHECK(count_parameters(*layer_of("gated(two_thirds=yes)", options)) == count_parameters(*layer_of("dense", options)));
}

namespace {

// Returns the number of f32 values saved for backward between y and its leaves.
int64_t kept(const Tensor& y) {
  std::vector<Edge> pending{y.impl()->edge};
  int64_t bytes = 0;
  while (!pending.empty()) {
    const Edge edge = pending.back();
    pending.pop_back();
    if (!edge.node) continue;
    bytes += edge.node->saved.bytes();
    for (const Edge& input : edge.node->saved.edges()) pending.push_back(input);
  }
  return bytes / 4;
}

}  // namespace

TEST_CASE("feed-forwards save the tensors that their headers state, and the parameters") {
  const int64_t rows = 6, width = 8, slots = 16;
  const auto saved_by = [&](const char* spec) {
    const Layer layer = make_feed_forward(parse_spec(spec), {.width = width, .d_ff = slots, .bias = false});
    name_paths(*layer);
    initialize(*layer, 1);
    ForwardPass pass;
    return kept((*layer)(random_tensor({rows, width}, 1, Dtype::f32).set_requires_grad(), pass));
  };
  CHECK(saved_by("dense") == rows * width + rows * slots + 2 * slots * width);
  CHECK(saved_by("gated") == rows * width + 2 * rows * slots + 3 * slots * width);
  CHECK(saved_by("memory(relu)") == rows * width + rows * slots + 2 * slots * width);
  CHECK(saved_by("memory(softmax)") == 2 * rows * width + rows + 2 * slots * width);
  CHECK(saved_by("memory(softmax, norm=layer)") ==
        2 * rows * width + rows + 2 * slots * width + rows * width + 2 * rows + width);
  CHECK(saved_by("persistent(heads=2)") == 2 * rows * width + 2 * rows + 2 * slots * width);
}

TEST_CASE("a gated feed-forward is bit-identical for any number of threads, and bf16 is near f32") {
  const auto run_as = [](Dtype dtype, int threads) {
    const int before = thread_count();
    set_thread_count(threads);
    const auto leaf = [&](const Shape& shape, int seed) {
      return random_tensor(shape, seed).to(Dtype::bf16).to(dtype).clone().set_requires_grad();
    };
    const Tensor x = leaf({130, 24}, 1), in = leaf({2 * 300, 24}, 2), out = leaf({24, 300}, 3);
    const Tensor y = gated_feed_forward(x, Activation("silu"), in, {}, out, {});
    backward(y, random_tensor({130, 24}, 4).to(dtype));
    set_thread_count(before);
    return std::vector<Tensor>{y.detach(), x.grad(), in.grad(), out.grad()};
  };
  const auto one = run_as(Dtype::f32, 1), three = run_as(Dtype::f32, 3), half = run_as(Dtype::bf16, 3);
  for (size_t i = 0; i < one.size(); ++i) {
    INFO("result ", i);
    CHECK(largest_difference(one[i], three[i]) == 0);
    CHECK(half[i].dtype() == Dtype::bf16);
    CHECK(largest_difference(one[i], half[i].to(Dtype::f32)) <=
          0.005 * max(abs(one[i].reshape(Shape{one[i].numel()})), 0).item());
  }
}

TEST_CASE("gated and memory accept learned activations and train them") {
  for (const std::string name : {"leaky_relu_learned", "prelu", "xielu"})
    for (const std::string family : {"gated", "memory"}) {
      INFO(family, " ", name);
      const Layer layer = make_feed_forward(parse_spec(family + "(" + name + ")"), {.width = 4, .d_ff = 8});
      name_paths(*layer);
      initialize(*layer, 1);
      ForwardPass pass;
      const Tensor y = (*layer)(random_tensor({5, 4}, 3, Dtype::f32) * 50.0, pass);
      sum(y * y).backward();
      CHECK(parameter(*layer, "activation").numel() == Activation(name).parameter_count());
      for (const NamedParameter& p : parameters_of(*layer)) {
        INFO(p.path);
        CHECK(sum(abs(p.parameter->value.grad())).item() > 0);
      }
    }
}

TEST_CASE("a softmax memory has a small output at initialization, which norm=layer scales to variance 1") {
  const int64_t width = 64, slots = 4096, rows = 200;
  const Tensor x = random_tensor({rows, width}, 1, Dtype::f32) * (1 / (0.02 * std::sqrt(64)));  // scores of variance 1
  const auto variance = [&](const std::string& spec) {
    const Layer layer = make_feed_forward(parse_spec(spec), {.width = width, .d_ff = slots, .layers = 1});
    name_paths(*layer);
    initialize(*layer, 1);
    if (parameters_of(*layer).size() > 1)  // values of std 0.02
      parameter(*layer, "value").copy_from(parameter(*layer, "value") * std::sqrt(2));
    ForwardPass pass;
    const NoGrad guard;
    const Tensor y = (*layer)(x, pass);
    return mean(y * y).item();
  };
  const double bare = variance("memory(softmax)");
  CHECK(bare == doctest::Approx(0.02 * 0.02 * std::exp(1) / slots).epsilon(0.15));
  CHECK(variance("memory(softmax, norm=layer)") == doctest::Approx(1).epsilon(0.001));
  CHECK(variance("memory(softmax, norm=layer, epsilon=1e-5)") == doctest::Approx(bare / 1e-5).epsilon(0.1));
}

TEST_CASE("persistent slots are N(0, 1) in use at initialization, for any stored scale") {
  for (const std::string scaled : {"yes", "no"}) {
    const Layer layer = make_feed_forward(parse_spec("persistent(slots=512, heads=2, scaled=" + scaled + ")"),
                                          {.width = 64, .d_ff = 7});
    name_paths(*layer);
    initialize(*layer, 1);
    const SlotWeights used = slot_weights(*layer);
    CHECK(used.key.shape() == Shape{512, 2, 32});
    CHECK(used.scale == 1 / std::sqrt(32));
    CHECK(mean(used.key * used.key).item() == doctest::Approx(1).epsilon(0.03));
    CHECK(mean(used.value * used.value).item() == doctest::Approx(1).epsilon(0.03));
  }
}

TEST_CASE("heads of persistent slots have their own channels and their own slots") {
  const FeedForwardOptions options{.width = 6, .d_ff = 7};
  const Layer all = layer_of("persistent(heads=2)", options),
              one = layer_of("persistent(scale=0)", {.width = 3, .d_ff = 7});
  const Tensor x = random_tensor({4, 6}, 1);
  ForwardPass pass;
  const NoGrad guard;
  const Tensor y = (*all)(x, pass);
  for (const int64_t h : {0, 1}) {
    for (const char* name : {"slots.key", "slots.value"})
      parameter(*one, name).copy_from(slice(parameter(*all, name), 1, h, h + 1));
    CHECK(largest_difference(slice(y, 1, 3 * h, 3 * h + 3), (*one)(slice(x, 1, 3 * h, 3 * h + 3), pass)) <= exact);
  }
}

TEST_CASE("dropout of persistent weights acts in training, by the pass's rng key") {
  const Layer layer = layer_of("persistent(dropout=0.5)", sizes);
  const Tensor x = random_tensor({4, 5}, 1);
  const auto y = [&](bool training, uint64_t key) {
    ForwardPass pass;
    pass.training = training, pass.rng = RandomKey{key, 0};
    const NoGrad guard;
    return (*layer)(x, pass);
  };
  CHECK(largest_difference(y(false, 1), y(false, 2)) == 0);
  CHECK(largest_difference(y(true, 1), y(true, 1)) == 0);
  CHECK(largest_difference(y(true, 1), y(false, 1)) > 1e-3);
  CHECK(largest_difference(y(true, 1), y(true, 2)) > 1e-3);
}

TEST_CASE("hooks capture the weights of slots") {
  for (const char* spec : {"memory(softmax)", "persistent(heads=1)"}) {
    const Layer layer = layer_of(spec, sizes);
    const Tensor x = random_tensor({2, 3, 5}, 1);
    ForwardPass pass;
    Tensor captured;
    const Hooks hooks({"hidden"}, [&](const std::string&, const Tensor& w) { captured = w; });
    const Tensor y = (*layer)(x, pass);
    REQUIRE(captured.defined());
    CHECK(captured.shape() == Shape{2, 1, 3, 7});
    CHECK(largest_difference(sum(captured, {-1}), Tensor::full({2, 1, 3}, 1, Dtype::f64)) <= exact);
    const Tensor value = as_matrix(slot_weights(*layer).value);
    CHECK(largest_difference(matmul(captured.reshape(Shape{6, 7}), value), y.reshape(Shape{6, 5})) <= exact);
  }
}

TEST_CASE("settings of feed-forwards are checked at construction") {
  const auto error = [](const std::string& spec) {
    return expect_error([&] { make_feed_forward(parse_spec(spec), sizes); });
  };
  error("memory(relu, scale=0.5)").names("memory").names("scale").value("0.5").names("softmax").names("relu").offers(1);
  error("memory(softmax(2))").names("memory").value("'softmax(2)'").names("softmax").offers("scale");
  error("memory(relu, d_ff=-1)").names("memory").names("d_ff").value(-1).offers(0);
  error("memory(relu, slots=-1)").names("memory").names("slots").value(-1).offers(0);  // former name of d_ff
  error("memory(relu, norm=rms)").names("memory").names("norm").value("'rms'").offers("none, layer");
  error("memory(sofmax)").names("memory").value("'sofmax'").offers("'softmax'");
  error("memory(softmax, epsilon=0)").names("memory").names("epsilon").value(0).offers(0);
  error("persistent(heads=2)").names("persistent").names("heads").value(2).offers("width (5)");
  error("persistent(heads=0)").names("persistent").names("heads").value(0).offers(1);
  error("persistent(dropout=1)").names("persistent").names("dropout").value(1).offers(1);
  error("dense(d_ff=3)").names("dense(d_ff=3)").value("d_ff=3").names("memory").offers("dense takes activation");
  error("dense(slots=3)").names("dense(slots=3)").value("slots=3").names("persistent").offers("dense takes activation");
  error("gated(swosh)").names("gated(swosh)").names("activation").value("'swosh'").offers("'swish' (silu)");
  error("gated(silu, three_thirds=yes)").names("gated").value("'three_thirds'").offers("'two_thirds'");
  error("none(3)").names("none").value("'3'");
}
