// Targets of an example, and their probabilities and loss, by which analyses measure effects.
#pragma once

#include <span>
#include <vector>

#include "models/inspection/base/inspected_example.h"

namespace orrery::models {

// The target of each row of the logits.
struct Targets {
  std::vector<int32_t> by_row;  // -1: no target
  bool known;                   // false: no row has a target; these are the model's most likely tokens or classes
  size_t last() const;          // the last row with a target; throws if there is none
  std::string described() const { return known ? "the target" : "the model's prediction"; }
};
Targets targets_of(const InspectedExample& example, const Tensor& logits);

// Returns ln p of one token or class, p = softmax of a row of logits, whose largest is at `top`.
double log_probability(std::span<const double> row, int32_t target, int32_t top);
// Returns ln p of the target of each row of logits (rows, choices); NaN where the target is -1.
std::vector<double> log_probabilities(const Tensor& logits, std::span<const int32_t> targets);
// Returns minus the mean of ln p over the rows with a target; NaN if there are none.
double loss_of(const Tensor& logits, std::span<const int32_t> targets);
int32_t most_likely(std::span<const double> row);  // index of the first maximum
// Returns the rank of `target` in a row of logits, from 1; 1: no logit is larger.
int64_t rank_of(std::span<const double> row, int32_t target);
// Returns the indices of the largest values, largest first, at most `count`.
std::vector<int32_t> largest(std::span<const double> row, int64_t count);

// Returns labels of the rows of logits: those of the positions of module `path` if the numbers
// match, else "whole example", for a row of the whole example.
InspectedExample::Labels row_labels(const InspectedExample& example, const std::string& path, int64_t rows);

}  // namespace orrery::models
