// What random weights do to the size of a signal before anything is learned: formulas of papers, against which
// `orrery train --probe=yes` holds what it measures.
//
// A part says what it predicts in its own file, where the derivation stands, by one line REGISTER_PREDICTION(Type).
// Sizes are mean squares.  All formulas assume values that are independent of each other and of the scores, with mean
// zero, and that scores and what a function is applied to are N(0, v).  v is measured, so is what is visible.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/base/module.h"

namespace orrery::nn {

// Queries of an attention that see equally much.
struct QueriesAlike {
  double keys;   // visible to each, slots counted
  double place;  // keys up to the query's own, slots counted
  double all;    // keys that there are, visible or not, slots counted
  double share;  // of all queries; the shares of an attention add up to 1
};

// What a part was given, as far as it was measured; no number where it was not.
struct Given {
  double mean_square;                      // of scores, of what a function is applied to, of what is normalized
  double row_variance;                     // of scores: within a row of visible ones, about the row's mean
  std::vector<QueriesAlike> queries = {};  // of an attention
  int64_t channels = 0;                    // of what is normalized
};

// Names of ratios of mean squares that are measured and may be predicted.
namespace ratio {
constexpr const char* read = "read / value";
constexpr const char* hidden = "hidden / before F";
constexpr const char* slots = "output / slots' values";
constexpr const char* normalized = "output / input";
constexpr const char* gradient = "gradient of input / of output";
}  // namespace ratio

struct Prediction {
  const char* ratio;
  double value;
  std::string formula;
  double v;          // in the formula
  double below = 0;  // what the ratio divides by, where no hook shows it; else 0
};

// Of every kind of part that has registered one.
std::vector<Prediction> predictions_of(const Module& part, const Given& given);

using Predict = std::vector<Prediction> (*)(const Module& part, const Given& given);
bool add_prediction(Predict predict);
// Type has   std::vector<Prediction> predicted(const Given& given) const;
#define REGISTER_PREDICTION(Type)                                                             \
  [[maybe_unused]] static const bool registered_prediction_##Type =                           \
      ::orrery::nn::add_prediction([](const Module& part, const ::orrery::nn::Given& given) { \
        const auto* const known = dynamic_cast<const Type*>(&part);                           \
        return known ? known->predicted(given) : std::vector<::orrery::nn::Prediction>{};     \
      })

// ---- for predictions

// E f(x)^2 for x ~ N(0, v), by the trapezoid rule.
double mean_square(double v, const std::function<double(double x)>& f);

// sum_j w_j^2 for the softmax w of n scores whose variance is v.  For many of them, N(mu, v):
//   sum exp(s)^2 -> n exp(2 mu + 2 v),   (sum exp(s))^2 -> n^2 exp(2 mu + v),   so the ratio -> exp(v) / n
// and to the first order in v it is (1 + v (1 - 1/n)) / n for every n, 1 for n = 1.  Both hold for
//   (1 + (exp(v) - 1) (1 - 1/n)) / n
double softmax_sum_of_squares(double v, double n);

// If the values are independent with mean 0, Var o = Var v_j sum_j w_j^2: the mean of the above over queries.
Prediction predicted_softmax_read(const Given& given);

// The mean over queries of f(queries).
template <class F>
double mean_over(const std::vector<QueriesAlike>& queries, const F& f) {
  double sum = 0;
  for (const QueriesAlike& alike : queries) sum += alike.share * (alike.keys > 0 ? f(alike) : 0);
  return sum;
}

}  // namespace orrery::nn
