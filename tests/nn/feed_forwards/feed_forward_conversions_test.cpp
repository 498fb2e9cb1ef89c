// The exact ways from one feed-forward to another, and to attention.
#include "nn/feed_forwards/base/conversions.h"

#include <doctest/doctest.h>

#include <cmath>

#include "nn/attentions/base/fused.h"
#include "tests/support/feed_forward_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

TEST_CASE("a dense feed-forward is attend over its own weights") {
  const int64_t rows = 6, width = 5, slots = 7;
  const Tensor x = random_tensor({1, rows, 1, width}, 1), dy = random_tensor({1, rows, 1, width}, 2);
  for (const std::string& name : activation_names()) {
    INFO(name);
    const Activation f(name);
    const Tensor dense_in = random_tensor({slots, width}, 3).set_requires_grad(),
                 dense_out = random_tensor({width, slots}, 4).set_requires_grad();
    const Tensor in = dense_in.clone().set_requires_grad(), out = dense_out.clone().set_requires_grad();
    const Result dense =
        differentiate([&](const Tensor& q) { return dense_feed_forward(q, f, dense_in, {}, dense_out, {}); }, x, dy);
    const Result attended = differentiate(
        [&](const Tensor& q) {
          const AttentionInputs reading{.query = q,
                                        .key = in.reshape(Shape{1, slots, 1, width}),
                                        .value = transpose(out).reshape(Shape{1, slots, 1, width})};
          return attention(reading, {.mask = {.causal = false}}, f).output;
        },
        x, dy);
    CHECK(difference(dense, attended) <= exact);
    CHECK(difference(dense_in.grad(), in.grad()) <= exact);
    CHECK(difference(dense_out.grad(), out.grad()) <= exact);
  }
}

TEST_CASE("the slots of a layer, attended over, give its output and every gradient, biases too") {
  const Tensor x = random_tensor({2, 3, 6}, 1), dy = random_tensor({2, 3, 6}, 2);
  for (const char* spec : {"dense(gelu)", "memory(relu)", "memory(silu, slots=4)", "memory(softmax, scale=0.3)",
                           "persistent", "persistent(heads=3, slots=4)"}) {
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
    for (const std::string& name : activation_names()) {
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
    // <x, K> = <x, sqrt(C) kappa> / sqrt(C) and V = sqrt(N) nu, or all that without the roots
    const double key = scaled == "yes" ? 1 : 1 / std::sqrt(5), value = scaled == "yes" ? std::sqrt(7) : 1;
    CHECK(difference(parameter(*memory, "key").grad() * key,
                     parameter(*persistent, "slots.key").grad().reshape(Shape{7, 5})) <= exact);
    CHECK(difference(parameter(*memory, "value").grad() * value,
                     parameter(*persistent, "slots.value").grad().reshape(Shape{7, 5})) <= exact);
    CHECK(largest_difference(parameter(*memory, "key"), parameter(*back, "key")) <= 1e-15);
    CHECK(largest_difference(parameter(*memory, "value"), parameter(*back, "value")) <= 1e-15);
  }
}

TEST_CASE("conversions that cannot be exact are refused") {
  const auto error = [](const std::string& from, const std::string& to, const FeedForwardOptions& from_options = sizes,
                        const FeedForwardOptions& to_options = sizes) -> std::string {
    const Layer a = layer_of(from, from_options), b = layer_of(to, to_options);
    try {
      copy_slots(*a, *b);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(error("dense(relu)", "memory(relu)") == "");
  CHECK(error("dense(relu)", "memory(relu)", without_bias, sizes) == "");
  CHECK(error("dense(relu)", "memory(relu)", sizes, without_bias) ==
        "copy_slots: the keys have biases, which the other layer has no place for; make it with biases, or set them to "
        "0");
  CHECK(error("dense(relu)", "memory(softmax)") ==
        "copy_slots: slots that are read with relu into a layer that reads with softmax; both must have one function");
  CHECK(error("dense(elu(0.5))", "memory(elu)") ==
        "copy_slots: slots that are read with elu(alpha=0.5) into a layer that reads with elu; both must have one "
        "function");
  CHECK(error("dense(relu)", "memory(relu, slots=8)") ==
        "copy_slots: (7, 1, 5) slots into (8, 1, 5); (slots, heads, channels of a head) must be the same in both");
  CHECK(error("persistent(heads=5)", "memory(softmax)") ==
        "copy_slots: (7, 5, 1) slots into (7, 1, 5); (slots, heads, channels of a head) must be the same in both");
  CHECK(error("gated", "dense(relu)") ==
        "slot_weights: this layer is not made of slots that are read; dense, memory and persistent are");
  CHECK(error("memory(softmax, norm=layer)", "persistent") ==
        "memory: norm=layer stands between the slots and y; only norm=none can be converted");
  CHECK(error("memory(softmax)", "persistent(projections=yes)") ==
        "persistent: projections=yes puts linear layers around the slots; only projections=no can be converted");
  CHECK(error("dense(prelu)", "memory(relu)") ==
        "dense: 'prelu' has parameters to learn, which a function that reads slots cannot have here; use one without, "
        "such as relu");
}

TEST_CASE("biases of 0 are no obstacle to a conversion") {
  const Layer dense = layer_of("dense(relu)", sizes), memory = layer_of("memory(relu)", without_bias);
  for (const char* bias : {"input.bias", "output.bias"})
    parameter(*dense, bias).copy_from(Tensor::zeros_like(parameter(*dense, bias)));
  copy_slots(*dense, *memory);
  const Tensor x = random_tensor({4, 5}, 1), dy = random_tensor({4, 5}, 2);
  CHECK(difference(run(*dense, x, dy), run(*memory, x, dy)) <= exact);
}
