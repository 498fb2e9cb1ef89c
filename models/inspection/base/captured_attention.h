// Captured attention weights with the labels of their queries and keys.
#pragma once

#include "models/inspection/base/analysis.h"

namespace orrery::models {

struct CapturedAttention {
  std::string path;                           // "blocks.0.attention"
  Tensor weights;                             // (H, Tq, Tk + N), f32 or f64, on the CPU
  Tensor visible;                             // same shape: 1 where a query may attend to a key or slot, else 0
  int64_t keys = 0;                           // Tk; the columns after them are persistent slots
  InspectedExample::Labels queries, columns;  // labels; of columns: the keys' labels, then "slot 0", ...
  std::vector<double> reach;                  // per head and query: keys before its own within the span; empty: no span
  int64_t heads() const { return weights.size(0); }
  int64_t slots() const { return weights.size(2) - keys; }
};
// Captures every attention that has weights, in order of execution.
std::vector<CapturedAttention> capture_attentions(const InspectedExample& example);

}  // namespace orrery::models
