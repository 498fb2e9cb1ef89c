// Rounding of f32 sums on a device against f64 on a CPU. It must not grow with the number of terms.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/fused.h"
#include "nn/losses/base/loss.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/support/random_tensors.h"

namespace orrery::testing {

// Returns the RMS of the differences, divided by the RMS of the exact values.
inline double relative_error(const Tensor& found, const Tensor& exact) {
  const std::vector<double> x = found.to_vector(), y = exact.to_vector();
  REQUIRE(x.size() == y.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) difference += (x[i] - y[i]) * (x[i] - y[i]), size += y[i] * y[i];
  return std::sqrt(difference / size);
}

// Checks each result of f in f32 on the device against f64 on the same values. `bounds` has one
// relative error per result; the last one serves all further results.
inline void check_rounding(Device device, const std::vector<double>& bounds, const std::vector<Tensor>& given,
                           const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f) {
  std::vector<Tensor> narrow, wide;
  for (const Tensor& x : given) narrow.push_back(x.to(device)), wide.push_back(x.to(Dtype::f64));
  const std::vector<Tensor> found = f(narrow), exact = f(wide);
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(relative_error(found[i].to(Device::cpu), exact[i]) < bounds[std::min(i, bounds.size() - 1)]);
  }
}

inline Tensor floats(const Shape& shape, int seed, double mean = 0) {
  return random_tensor(shape, seed, Dtype::f32) + mean;
}

// Checks output and gradients of queries (small differences of large values), keys and values.
inline void check_long_softmax(Device device, int64_t keys, double factor = 1) {
  CAPTURE(keys);
  check_rounding(
      device, {factor * 3e-7, factor * 4e-6, factor * 6e-7, factor * 6e-7},
      {floats({1, 16, 2, 8}, 1), floats({1, keys, 2, 8}, 2), floats({1, keys, 2, 8}, 3, 1), floats({1, 16, 2, 8}, 4)},
      [](const std::vector<Tensor>& x) {
        const Tensor q = x[0].clone().set_requires_grad(), k = x[1].clone().set_requires_grad(),
                     v = x[2].clone().set_requires_grad();
        const AttentionOptions options{.mask = {.causal = false}, .scale = 0.35};
        const Tensor y = nn::attention({.query = q, .key = k, .value = v}, options).output;
        backward(y, x[3]);
        return std::vector<Tensor>{y.detach(), q.grad(), k.grad(), v.grad()};
      });
}

// Without fused multiply-add the products are rounded too: 2.6e-7 of the gradient at 2,048 tokens
// and 1.7e-7 at 8,192.
inline void check_long_linear_attention(Device device, int64_t tokens) {
  CAPTURE(tokens);
  const auto layer = nn::make_attention(parse_spec("linear"), {.width = 16, .heads = 2, .causal = true});
  nn::name_paths(*layer);
  nn::initialize(*layer, 1);
  check_rounding(device, {2.5e-7, 3.2e-7}, {floats({1, tokens, 16}, 1, 1), floats({1, tokens, 16}, 2)},
                 [&](const std::vector<Tensor>& x) {
                   nn::convert(*layer, x[0].dtype());
                   nn::move(*layer, x[0].device());
                   const Tensor leaf = x[0].clone().set_requires_grad();
                   nn::ForwardPass pass;
                   const Tensor y = (*layer)(leaf, pass);
                   backward(y, x[1]);
                   return std::vector<Tensor>{y.detach(), leaf.grad()};
                 });
}

inline void check_long_rows_and_columns(Device device, int64_t n) {
  CAPTURE(n);
  check_rounding(device, {2e-7}, {floats({8, n}, 1), floats({n, 8}, 2)}, [](const std::vector<Tensor>& x) {
    const Tensor logits = x[0].clone().set_requires_grad();
    const Tensor targets = Tensor::from(Shape{8}, std::vector<int32_t>(8, 5)).to(x[0].device());
    const Tensor loss = nn::cross_entropy(logits * 1.0, targets);
    loss.backward();
    return std::vector<Tensor>{sum(exp(x[0]), {1}), mean(x[0] * x[0], {1}), sum(exp(x[1]), {0}), loss.detach(),
                               logits.grad()};
  });
}

// Checks output and gradients of the input and the weight, whose rows are summed twice each way.
inline void check_long_norms(Device device, int64_t n) {
  CAPTURE(n);
  check_rounding(device, {1e-6}, {floats({4, n}, 1, 1), floats({n}, 2, 1), floats({4, n}, 3, 1)},
                 [](const std::vector<Tensor>& x) {
                   std::vector<Tensor> all;
                   const auto add = [&](const auto& normalized) {
                     const Tensor leaf = x[0].clone().set_requires_grad(), weight = x[1].clone().set_requires_grad();
                     const Tensor y = normalized(leaf, weight);
                     backward(y, x[2]);
                     all.insert(all.end(), {y.detach(), leaf.grad(), weight.grad()});
                   };
                   add([](const Tensor& leaf, const Tensor& w) { return nn::layer_norm(leaf, w, Tensor(), 1e-5); });
                   add([](const Tensor& leaf, const Tensor& w) { return nn::rms_norm(leaf, w, 1e-5); });
                   return all;
                 });
}

// The square of the norm of a gradient is summed in f64.
inline void check_long_gradient(Device device, int64_t n) {
  CAPTURE(n);
  check_rounding(device, {1e-12}, {floats({n}, 1)}, [](const std::vector<Tensor>& x) {
    const Tensor total = Tensor::empty_like(x[0], Shape{}, Dtype::f64);
    nn::sum_of_squares(x[0], total);
    return std::vector<Tensor>{total};
  });
}

// Equal terms may all be rounded in one direction. A CPU sums columns 256 rows at a time.
inline void check_long_equal_sums(Device device, int64_t n) {
  CAPTURE(n);
  check_rounding(device, {1e-6, 1e-6, 4e-6, 1e-6},
                 {Tensor::full({n}, 0.1, Dtype::f32), Tensor::full({n / 4, 4}, 0.1, Dtype::f32)},
                 [](const std::vector<Tensor>& x) {
                   return std::vector<Tensor>{sum(x[0]), mean(x[0]), sum(x[1], {0}), sum(x[1], {1})};
                 });
}

inline void check_long_row_of_table(Device device, int64_t n) {
  CAPTURE(n);
  const Tensor indices = Tensor::from(Shape{n}, std::vector<int32_t>(static_cast<size_t>(n), 1));
  check_rounding(device, {3e-7}, {floats({n, 8}, 1, 1)}, [&](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{index_add(x[0], indices.to(x[0].device()), 3).slice(1, 2)};
  });
}

inline void check_long_span_gradient(Device device, int64_t queries) {
  CAPTURE(queries);
  const Shape shape{1, queries, 2, 8};
  check_rounding(
      device, {1.2e-6},
      {floats(shape, 1), floats(shape, 2), floats(shape, 3), floats(shape, 4), Tensor::full({2}, 20, Dtype::f32)},
      [&](const std::vector<Tensor>& x) {
        const Tensor span = x[4].clone().set_requires_grad();
        const Tensor y = nn::attention({.query = x[0], .key = x[1], .value = x[2], .span = span},
                                       {.mask = {.window = 48}, .scale = 0.35, .ramp = 16})
                             .output;
        backward(y, x[3]);
        return std::vector<Tensor>{span.grad()};
      });
}

// Every tile adds an equal term: F is the identity, queries are 1, and each pair has one gradient of
// its score. Products add up to 64 equal terms one by one.
inline void check_long_distance_gradients(Device device, int64_t queries) {
  CAPTURE(queries);
  const auto full = [](const Shape& shape, double value) { return Tensor::full(shape, value, Dtype::f32); };
  const Shape shape{8, queries, 2, 1};
  check_rounding(device, {6e-7}, {full(shape, 1), full(shape, 0.3), full({32, 1}, 0), full({2, 32}, 0)},
                 [](const std::vector<Tensor>& x) {
                   const Tensor embedding = x[2].clone().set_requires_grad(), bias = x[3].clone().set_requires_grad();
                   const Tensor y = nn::attention({.query = x[0],
                                                   .key = x[0],
                                                   .value = x[1],
                                                   .relative_embedding = embedding,
                                                   .relative_bias = bias},
                                                  {.mask = {.window = 32}}, nn::Activation("identity"))
                                        .output;
                   backward(y, x[0]);
                   return std::vector<Tensor>{embedding.grad(), bias.grad()};
                 });
}

}  // namespace orrery::testing
