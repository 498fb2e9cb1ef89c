// Diagnostics: what to look at when a model trains worse than it should.  Functions of tensors, without gradient.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery::nn {

// ---- diagnostics/entropy.cpp

// H = -sum_j p_j ln p_j in nats, p = max(w, 0) / sum max(w, 0), along the last axis: (..., n) -> (...), f64 or f32.  A
// row without positive weight has entropy 0.
Tensor row_entropy(const Tensor& weights);
// ln(T!) / T: the mean row entropy of uniform causal attention over T positions, which no causal attention exceeds.
double causal_entropy_ceiling(int64_t positions);
// Shares of the entropies (one for each head, say) in [0, 1/4), [1/4, 1/2), [1/2, 3/4) and [3/4, 1] of the ceiling.
// Above the ceiling counts as the last; an entropy that is not a number is an error.
std::array<double, 4> entropy_histogram(const Tensor& entropies, double ceiling);

// ---- diagnostics/shares.cpp

// Share of the elements with |alpha x| > threshold: where tanh and erf are flat.
double saturation_share(const Tensor& x, double alpha, double threshold = 2);
// Share of exact zeros among the weights; among those with visible != 0 if a mask (of a shape that broadcasts) is
// given.
double zero_share(const Tensor& weights, const Tensor& visible = {});
// Share of the rows (..., n) whose weights are all zero, though there is something to see: queries that read nothing.
// Rows in which `visible` is 0 everywhere do not count.
double dead_row_share(const Tensor& weights, const Tensor& visible = {});
// Passes the rows of x, in order and as doubles, a few at a time: the memory does not grow with x.
void each_some_rows(const Tensor& x, const std::function<void(std::vector<double> rows)>& take);
// The part of a row's positive weight that its largest `share` of entries carries, mean over the rows that have any:
// share 0.002 of 4,096 slots are the 8 largest; at least one.
double top_share(const Tensor& weights, double share);

// ---- diagnostics/variance.cpp

// mean (x - mean x)^2 over all elements.
double variance(const Tensor& x);
// Variance of a sublayer's output over that of the residual it is added to, each over all elements.
double variance_ratio(const Tensor& output, const Tensor& residual);

}  // namespace orrery::nn
