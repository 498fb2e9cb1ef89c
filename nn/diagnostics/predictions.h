// Effect of random weights on the size of a signal at initialization: formulas of papers, which
// `orrery train --signal_propagation=yes` compares with measurements.
//
// A module's prediction is in its own file, next to the derivation: REGISTER_PREDICTION(Type).
// Sizes are mean squares. Formulas assume values of mean zero, independent of each other and of the
// scores, and scores and function arguments N(0, v). v and visibility are measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/base/module.h"

namespace orrery::nn {

// A group of an attention's queries that have the same number of visible keys.
struct QueryGroup {
  double keys;              // visible keys per query, with slots
  double keys_up_to_query;  // keys up to the query's own position, with slots
  double all;               // all keys, visible or not, with slots
  double fraction;          // fraction of all queries; adds up to 1 over an attention
};

// Measured inputs of a module; NaN if not measured.
struct InputStats {
  double mean_square;                    // scores, function arguments or normalization inputs
  double row_variance;                   // visible scores of a row, about the row's mean
  std::vector<QueryGroup> queries = {};  // for attentions
  int64_t channels = 0;                  // for normalizations
};

// Names of measured ratios of mean squares that formulas may predict.
namespace ratio {
constexpr const char* head_output = "head_output / value";
constexpr const char* hidden = "hidden / before F";
constexpr const char* slots = "output / slots' values";
constexpr const char* normalized = "output / input";
constexpr const char* gradient = "gradient of input / of output";
}  // namespace ratio

struct Prediction {
  const char* ratio;
  double value;
  std::string formula;
  double v;                // v of the formula
  double denominator = 0;  // denominator of the ratio if no hook captures it; else 0
};

// Returns the predictions of all registered types that match `module`.
std::vector<Prediction> predictions_of(const Module& module, const InputStats& stats);

using Predict = std::vector<Prediction> (*)(const Module& module, const InputStats& stats);
bool add_prediction(Predict predict);
// Type has   std::vector<Prediction> predicted(const InputStats& stats) const;
#define REGISTER_PREDICTION(Type)                                                                    \
  [[maybe_unused]] static const bool registered_prediction_##Type =                                  \
      ::orrery::nn::add_prediction([](const Module& module, const ::orrery::nn::InputStats& stats) { \
        const auto* const known = dynamic_cast<const Type*>(&module);                                \
        return known ? known->predicted(stats) : std::vector<::orrery::nn::Prediction>{};            \
      })

// ---- helpers for predictions

// Returns E f(x)^2 for x ~ N(0, v), by the trapezoid rule.
double mean_square(double v, const std::function<double(double x)>& f);

// Returns sum_j w_j^2 for the softmax w of n scores of variance v. For many scores N(mu, v):
//   sum exp(s)^2 -> n exp(2 mu + 2 v),   (sum exp(s))^2 -> n^2 exp(2 mu + v),   so the ratio -> exp(v) / n
// and to the first order in v it is (1 + v (1 - 1/n)) / n for every n, 1 for n = 1.  Both hold for
//   (1 + (exp(v) - 1) (1 - 1/n)) / n
double softmax_sum_of_squares(double v, double n);

// Returns the mean over queries of sum_j w_j^2 = Var o / Var v_j, for independent v_j of mean 0.
Prediction predicted_softmax_output(const InputStats& stats);

// Returns the mean over queries of f(queries).
template <class F>
double mean_over(const std::vector<QueryGroup>& queries, const F& f) {
  double sum = 0;
  for (const QueryGroup& group : queries) sum += group.fraction * (group.keys > 0 ? f(group) : 0);
  return sum;
}

}  // namespace orrery::nn
