// Exact conversions between feed-forwards, and to attention.
#include "nn/feed_forwards/base/conversions.h"

#include <doctest/doctest.h>

#include <cmath>

#include "nn/attentions/base/fused.h"
#include "tests/support/feed_forward_layers.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

TEST_CASE("a dense feed-forward is attention over its own weights") {
  const int64_t rows = 6, width = 5, slots = 7;
  const Tensor x = random_tensor({1, rows, 1, width}, 1), dy = random_tensor({1, rows, 1, width}, 2);
  for (const std::string& name : nn::detail::activations().names()) {
    INFO(name);
    const Activation f(name);
    const Tensor dense_in = random_tensor({slots, width}, 3).set_requires_grad(),
                 dense_out = random_tensor({width, slots}, 4).set_requires_grad();
    const Tensor in = dense_in.clone().set_requires_grad(), out = dense_out.clone().set_requires_grad();
    Tensor dense_p, p;
    if (const int64_t n = f.parameter_count())
      dense_p = random_tensor({n}, 5).set_requires_grad(), p = dense_p.clone().set_requires_grad();
    const Result dense = differentiate(
        [&](const Tensor& q) { return dense_feed_forward(q, f, dense_in, {}, dense_out, {}, {}, dense_p); }, x, dy);
    const Result attended = differentiate(
        [&](const Tensor& q) {
          const AttentionInputs reading{.query = q,
                                        .key = in.reshape(Shape{1, slots, 1, width}),
                                        .value = transpose(out).reshape(Shape{1, slots, 1, width}),
                                        .parameters = p};
          return attention(reading, {.mask = {.causal = false}}, f).output;
        },
        x, dy);
    CHECK(difference(dense, attended) <= exact);
    CHECK(difference(dense_in.grad(), in.grad()) <= exact);
    CHECK(difference(dense_out.grad(), out.grad()) <= exact);
    if (p) CHECK(difference(dense_p.grad(), p.grad()) <= exact);
  }
}

TEST_CASE("the slots of a layer, attended over, give its output and every gradient, biases too") {
  const Tensor x = random_tensor({2, 3, 6}, 1), dy = random_tensor({2, 3, 6}, 2);
  for (const char* spec : {"dense(gelu)", "dense(prelu)", "memory(relu)", "memory(silu, slots=4)", "memory(xielu)",
                           "memory(softmax, scale=0.3)", "persistent", "persistent(heads=3, slots=4)"}) {
    INFO(spec);
    const FeedForwardOptions options{.width = 6, .d_ff = 7};
    const Layer layer = layer_of(spec, options), same = layer_of(spec, options);
    const Result by_layer = run(*layer, x, dy);
    const Result by_slots =
        differentiate([&](const Tensor& leaf) { return attention_over_slots(leaf, slot_weights(*same)); }, x, dy);
    CHECK(difference(by_layer, by_slots) <= exact);
    const auto one = parameters_of(*layer), other = parameters_of(*same);
    for (size_t i = 0; i < one.size(); ++i) {
      INFO(one[i].path);
      REQUIRE(other[i].parameter->value.grad().defined());
      CHECK(difference(one[i].parameter->value.grad(), other[i].parameter->value.grad()) <= exact);
    }
  }
}

TEST_CASE("dense(F) and memory(F) convert into each other exactly, for every activation") {
  const Tensor x = random_tensor({2, 3, 5}, 1), dy = random_tensor({2, 3, 5}, 2);
  for (const FeedForwardOptions& options : {sizes, without_bias})
    for (const std::string& name : nn::detail::activations().names()) {
      INFO(name);
      const Layer dense = layer_of("dense(" + name + ")", options, 100),
                  memory = layer_of("memory(" + name + ")", options, 200),
                  back = layer_of("dense(" + name + ")", options, 300);
      copy_slots(*dense, *memory);
      copy_slots(*memory, *back);
      const Result one = run(*dense, x, dy), other = run(*memory, x, dy);
      CHECK(difference(one, other) <= exact);
      CHECK(difference(parameter(*dense, "input.weight").grad(), parameter(*memory, "key").grad()) <= exact);
      CHECK(difference(transpose(parameter(*dense, "output.weight").grad()), parameter(*memory, "value").grad()) <=
            exact);
      if (options.bias) {
        CHECK(difference(parameter(*dense, "input.bias").grad(), parameter(*memory, "key_bias").grad()) <= exact);
        CHECK(difference(parameter(*dense, "output.bias").grad(), parameter(*memory, "value_bias").grad()) <= exact);
      }
      const auto before = parameters_of(*dense), after = parameters_of(*back);
      for (size_t i = 0; i < before.size(); ++i)
        CHECK(largest_difference(before[i].parameter->value, after[i].parameter->value) == 0);
    }
}

TEST_CASE("memory(softmax) and persistent slots with an empty context convert into each other exactly") {
  const Tensor x = random_tensor({2, 3, 5}, 1), dy = random_tensor({2, 3, 5}, 2);
  for (const std::string scaled : {"yes", "no"}) {
    INFO("scaled=", scaled);
    const Layer memory = layer_of("memory(softmax)", sizes, 100),
                persistent = layer_of("persistent(scaled=" + scaled + ")", sizes, 200),
                back = layer_of("memory(softmax)", sizes, 300);
    copy_slots(*memory, *persistent);
    copy_slots(*persistent, *back);
    CHECK(difference(run(*memory, x, dy), run(*persistent, x, dy)) <= exact);
    // <x, K> = <x, sqrt(C) kappa> / sqrt(C) and V = sqrt(N) nu, or both without the roots
    const double key = scaled == "yes" ? 1 : 1 / std::sqrt(5), value = scaled == "yes" ? std::sqrt(7) : 1;
    CHECK(difference(parameter(*memory, "key").grad() * key,
                     parameter(*persistent, "slots.key").grad().reshape(Shape{7, 5})) <= exact);
    CHECK(difference(parameter(*memory, "value").grad() * value,
                     parameter(*persistent, "slots.value").grad().reshape(Shape{7, 5})) <= exact);
    CHECK(largest_difference(parameter(*memory, "key"), parameter(*back, "key")) <= 1e-15);
    CHECK(largest_difference(parameter(*memory, "value"), parameter(*back, "value")) <= 1e-15);
  }
}

TEST_CASE("conversions that cannot be exact are rejected") {
  const auto copier = [](const std::string& from, const std::string& to, const FeedForwardOptions& from_options = sizes,
                         const FeedForwardOptions& to_options = sizes) {
    return [a = std::shared_ptr(layer_of(from, from_options)), b = std::shared_ptr(layer_of(to, to_options))] {
      copy_slots(*a, *b);
    };
  };
  CHECK_NOTHROW(copier("dense(relu)", "memory(relu)")());
  CHECK_NOTHROW(copier("dense(relu)", "memory(relu)", without_bias, sizes)());
  const auto with_bias = copier("dense(relu)", "memory(relu)", sizes, without_bias);
  expect_error(with_bias).names("copy_slots").names("keys").value("biases").offers("make it with biases").offers(0);
  struct Refused {
    const char *from, *to;
    std::vector<std::string> terms;  // in the order of the message
  };
  const std::vector<Refused> refused = {
      {"dense(relu)", "memory(softmax)", {"copy_slots", "relu", "softmax", "same function"}},
      {"dense(elu(0.5))", "memory(elu)", {"copy_slots", "elu(alpha=0.5)", "elu", "same function"}},
      {"dense(relu)", "memory(relu, slots=8)", {"copy_slots", "(7, 1, 5)", "(8, 1, 5)", "(slots, heads, channels"}},
      {"persistent(heads=5)", "memory(softmax)", {"copy_slots", "(7, 5, 1)", "(7, 1, 5)", "(slots, heads, channels"}},
      {"gated", "dense(relu)", {"slot_weights", "slots", "dense, memory or persistent"}},
      {"memory(softmax, norm=layer)", "persistent", {"memory", "norm=layer", "norm=none"}},
      {"memory(softmax)", "persistent(projections=yes)", {"persistent", "projections=yes", "projections=no"}},
      {"dense(prelu)", "memory(relu)", {"copy_slots", "prelu", "relu", "same function"}}};
  for (const auto& [from, to, terms] : refused) {
    Message message = expect_error(copier(from, to));
    for (const std::string& term : terms) message.names(term);
  }
}

TEST_CASE("biases of 0 do not prevent a conversion") {
  const Layer dense = layer_of("dense(relu)", sizes), memory = layer_of("memory(relu)", without_bias);
  for (const char* bias : {"input.bias", "output.bias"})
    parameter(*dense, bias).copy_from(Tensor::zeros_like(parameter(*dense, bias)));
  copy_slots(*dense, *memory);
  const Tensor x = random_tensor({4, 5}, 1), dy = random_tensor({4, 5}, 2);
  CHECK(difference(run(*dense, x, dy), run(*memory, x, dy)) <= exact);
}
