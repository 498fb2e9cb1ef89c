// What attentions read, as looks need it: weights with the words of their queries and keys.
#pragma once

#include "models/inspection/base/look.h"

namespace orrery::models {

struct AttentionSeen {
  std::string path;                 // "blocks.0.attention"
  Tensor weights;                   // (H, Tq, Tk + N), f32 or f64, on the CPU
  Tensor visible;                   // the same shape: 1 where a query sees a key or slot, else 0
  int64_t keys = 0;                 // Tk; the columns after them are persistent slots
  Subject::Words queries, columns;  // of the columns: the keys' words, then "slot 0", ...
  std::vector<double> reach;        // of each head and query, so many keys before its own; empty: there is no span
  int64_t heads() const { return weights.size(0); }
  int64_t slots() const { return weights.size(2) - keys; }
};
// Of every attention that has weights, in the order they act.
std::vector<AttentionSeen> see_attentions(const Subject& subject);

}  // namespace orrery::models
