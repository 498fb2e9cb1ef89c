// Answers: a token or class of a row of the logits, against another one.
#pragma once

#include "models/inspection/base/analysis.h"
#include "models/inspection/base/targets.h"

namespace orrery::models {

struct Answer {
  int64_t row;
  int32_t answer, against;
};
struct Answers {
  std::vector<Answer> rows;
  std::string name, against;  // "'e'", or "the target" for several rows
  bool whole_example = false;  // the logits have one row, as those of an image
};
// Returns the answers that the settings choose. Rows: --position; else the last one, if --answer or --against is
// given; else all rows with a target. Without --answer: the target of the row, or the model's prediction if it has
// none. Without --against: the most likely other one. Throws if a name or position is unknown.
Answers answers_of(const InspectedExample& example, const Tensor& logits, const AnalysisSettings& settings);
Answers last_of(const InspectedExample& example, const Answers& answers);  // those of the last row alone

// Returns numbers like the logits (rows, choices): `answer` and `against`, over the number of rows, at each
// answer's places, else 0. Products with the logits add up to a mean over the rows.
Tensor direction(const Answers& answers, const Tensor& logits, double answer, double against);
// Returns " at position 7", or ", as means over 63 positions", or nothing for a whole example.
std::string describe_rows(const Answers& answers);

// Runs the example in evaluation mode with a graph, and adds the gradients of sum(logits * of(logits)) to tensors
// that hooks have put in place of values and that require a gradient. Parameters get none.
void run_backward(const InspectedExample& example, const std::function<Tensor(const Tensor& logits)>& of);
// Returns the gradient of such a tensor times a value, f64 on the CPU; zeros if the logits do not depend on it.
Tensor gradient_times(const Tensor& leaf, const Tensor& value);

}  // namespace orrery::models
