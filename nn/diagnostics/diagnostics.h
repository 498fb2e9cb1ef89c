// Diagnostics for models that train worse than expected: functions of tensors, without gradient.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery::nn {

// ---- diagnostics/entropy.cpp

// Returns H = -sum_j p_j ln p_j in nats, p = max(w, 0) / sum max(w, 0), along the last axis:
// (..., n) -> (...), f64 or f32. A row without positive weight has entropy 0.
Tensor row_entropy(const Tensor& weights);
// Returns ln(T!) / T, the largest mean row entropy of causal attention over T positions (uniform).
double causal_entropy_ceiling(int64_t positions);
// Returns the fractions of entropies (such as one per head) in [0, 1/4), [1/4, 1/2), [1/2, 3/4) and
// [3/4, 1] of the ceiling. Entropies above the ceiling count as the last; NaN throws.
std::array<double, 4> entropy_histogram(const Tensor& entropies, double ceiling);

// ---- diagnostics/fractions.cpp

// Returns the fraction of elements with |alpha x| > threshold, where tanh and erf are flat.
double saturation_fraction(const Tensor& x, double alpha, double threshold = 2);
// Returns the fraction of exact zeros among the weights. A mask (broadcast to their shape)
// restricts this to weights with visible != 0.
double zero_fraction(const Tensor& weights, const Tensor& visible = {});
// Returns the fraction of rows (..., n) with only zero weights, that is queries that attend to
// nothing. Rows in which `visible` is 0 everywhere do not count.
double dead_row_fraction(const Tensor& weights, const Tensor& visible = {});
// Calls `callback` with chunks of rows of x, in order, as doubles; memory does not grow with x.
void for_each_row_chunk(const Tensor& x, const std::function<void(std::vector<double> rows)>& callback);
// Returns the fraction of positive row weight in the largest entries, mean over rows that have any.
// `fraction`: fraction of the entries, at least one entry; 0.002 of 4,096 slots are the 8 largest.
double top_fraction(const Tensor& weights, double fraction);

// ---- diagnostics/variance.cpp

// Returns mean (x - mean x)^2 over all elements.
double variance(const Tensor& x);
// Returns Var(output) / Var(residual) of a sublayer and its residual, each over all elements.
double variance_ratio(const Tensor& output, const Tensor& residual);

}  // namespace orrery::nn
