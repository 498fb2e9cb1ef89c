// Feed-forward layers for tests: random parameters, forward and backward.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "tests/support/random_tensors.h"

namespace orrery::testing {

using namespace orrery::nn;

using Layer = std::unique_ptr<Sublayer>;

// Returns an f64 layer with random parameters.
inline Layer layer_of(const std::string& spec, const FeedForwardOptions& options, int seed = 100) {
  Layer layer = make_feed_forward(parse_spec(spec), options);
  name_paths(*layer);
  convert(*layer, Dtype::f64);
  for (const NamedParameter& p : parameters_of(*layer))
    p.parameter->value.copy_from(random_tensor(p.parameter->value.shape(), ++seed) * 0.5);
  return layer;
}
inline Tensor& parameter(Sublayer& layer, const std::string& path) {
  for (const NamedParameter& p : parameters_of(layer))
    if (p.path == path) return p.parameter->value;
  fail("test: the layer has no parameter '", path, "'");
}

struct Result {
  Tensor y, dx;
};
template <class F>
Result differentiate(const F& f, const Tensor& x, const Tensor& dy) {
  const Tensor leaf = x.clone().set_requires_grad();
  const Tensor y = f(leaf);
  backward(y, dy);
  return {y.detach(), leaf.grad()};
}
inline Result run(Sublayer& layer, const Tensor& x, const Tensor& dy) {
  return differentiate(
      [&](const Tensor& leaf) {
        ForwardPass pass;
        return layer(leaf, pass);
      },
      x, dy);
}
// Returns the largest difference, divided by max(1, max |a|).
inline double difference(const Tensor& a, const Tensor& b) {
  return largest_difference(a, b) / std::max(1.0, max(abs(a.reshape(Shape{a.numel()})), 0).item());
}
inline double difference(const Result& a, const Result& b) {
  return std::max(difference(a.y, b.y), difference(a.dx, b.dx));
}

inline constexpr double exact = 1e-12;
inline const FeedForwardOptions sizes{.width = 5, .d_ff = 7};
inline const FeedForwardOptions without_bias{.width = 5, .d_ff = 7, .bias = false};

}  // namespace orrery::testing
