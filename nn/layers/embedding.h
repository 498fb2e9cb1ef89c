// Embedding: looks up the rows of a table by token id.
#pragma once

#include "nn/base/module.h"

namespace orrery::nn {

class Embedding final : public Module {
 public:
  Embedding(int64_t entries, int64_t width, Initialization init = normal(0.02)) : weight(Shape{entries, width}, init) {
    weight.is_lookup_table = true;
  }
  Tensor forward(const Tensor& indices, ForwardPass& pass) override;  // (...) i32 -> (..., width)
  void visit(Visitor& v) override { v("weight", weight); }

  Parameter weight;  // (entries, width)
};

}  // namespace orrery::nn
