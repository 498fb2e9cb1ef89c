// Fractions of a tensor that are saturated, exactly zero, or carried by few entries.
//   saturation     P(|alpha x| > 2): beyond, tanh' is at most 7.07 % of tanh'(0). Zhu et al. 2025, arXiv:2503.10622
//   zeros          P(w = 0): ReLU attention skips most keys, softmax none
//   dead rows      P(all w of a row = 0): ReLU attention may skip every key, and then outputs 0
//   top fraction   sum of the k largest w over sum of w, k a fraction of the row: softmax over many slots
//                  concentrates. Shen et al. 2023, arXiv:2302.06461
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::nn {
namespace {

struct IsSaturated {
  double alpha, threshold;
  template <class A>
  HOST_DEVICE double operator()(A x) const {
    const double u = alpha * static_cast<double>(x);
    return u > threshold || u < -threshold ? 1.0 : 0.0;
  }
};
struct IsZero {  // 1 if visible and zero; 1 if visible
  template <class A, class... Visible>
  HOST_DEVICE Values<double, 2> operator()(A weight, Visible... visible) const {
    const bool counted = ((visible != 0) && ...);  // true without a mask
    return {{counted && weight == 0 ? 1.0 : 0.0, counted ? 1.0 : 0.0}};
  }
};

}  // namespace

double saturation_fraction(const Tensor& x, double alpha, double threshold) {
  const Tensor count = Tensor::empty_like(x, Shape{}, Dtype::f64);
  sum_elements("saturation_fraction", IsSaturated{alpha, threshold}, out_sums<double>(count), row_of(x));
  return count.item() / static_cast<double>(std::max<int64_t>(1, x.numel()));
}

double zero_fraction(const Tensor& weights, const Tensor& visible) {
  const NoGrad guard;
  const Tensor zeros = Tensor::empty_like(weights, Shape{}, Dtype::f64), counted = Tensor::empty_like(zeros);
  const auto sum = [&](const auto&... mask) {
    sum_elements("zero_fraction", IsZero{}, out_sums<double>(zeros, counted), row_of(weights), row_of(mask)...);
  };
  if (visible)
    sum(broadcast_to(visible.to(weights.dtype()), weights.shape()));
  else
    sum();
  return zeros.item() / std::max(1.0, counted.item());
}

double dead_row_fraction(const Tensor& weights, const Tensor& visible) {
  const NoGrad guard;
  const Tensor one = Tensor::full_like(weights, {1}, 1);
  const Tensor counted = broadcast_to(visible ? visible.to(weights.dtype()) : one, weights.shape());
  const Tensor zero = Tensor::zeros_like(weights, {1});
  return zero_fraction(max(where(counted, abs(weights), zero), -1), max(counted, -1));
}

void for_each_row_chunk(const Tensor& x, const std::function<void(std::vector<double> rows)>& callback) {
  constexpr int64_t chunk_elements = 1 << 16;
  const int64_t width = x.size(-1), rows = width > 0 ? x.numel() / width : 0,
                chunk_rows = std::max<int64_t>(1, chunk_elements / std::max<int64_t>(1, width));
  const Tensor flat = x.detach().reshape(Shape{rows, width});
  for (int64_t row = 0; row < rows; row += chunk_rows)
    callback(flat.slice(row, std::min(rows, row + chunk_rows)).to_vector());
}

double top_fraction(const Tensor& weights, double fraction) {
  check(fraction > 0 && fraction <= 1, "top_fraction: the fraction of a row's entries must lie in (0, 1], not ",
        fraction);
  check(weights.shape().rank() >= 1 && weights.size(-1) >= 1, "top_fraction: weights of shape ", weights.shape(),
        " must have at least one element per row");
  const auto width = static_cast<std::ptrdiff_t>(weights.size(-1));
  const auto top = std::clamp<std::ptrdiff_t>(std::lround(fraction * static_cast<double>(width)), 1, width);
  double total = 0;
  int64_t counted = 0;
  for_each_row_chunk(weights, [&](std::vector<double> w) {
    for (auto row = w.begin(); row != w.end(); row += width) {
      std::transform(row, row + width, row, [](double x) { return x < 0 ? 0 : x; });
      std::nth_element(row, row + (top - 1), row + width, std::greater<>());
      const double all = std::accumulate(row, row + width, 0.0);
      if (all == 0) continue;
      total += std::accumulate(row, row + top, 0.0) / all;
      ++counted;
    }
  });
  return total / static_cast<double>(std::max<int64_t>(1, counted));
}

}  // namespace orrery::nn
