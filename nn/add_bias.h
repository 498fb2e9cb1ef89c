// An epilogue of a product: adds the bias and the residual to a tile of the result while it is in the cache.
#pragma once

#include <array>

#include "engine/matmul.h"

namespace orrery::nn {

template <class T>
struct AddBias {  // c += bias + residual
  const T* bias = nullptr;
  const T* residual = nullptr;
  int64_t row_size = 0;               // of the residual
  std::array<int64_t, 4> first = {};  // column of each part in the bias

  static void row(const void* object, int part, int64_t row, int64_t column, int64_t columns, T* c) {
    const AddBias& my = *static_cast<const AddBias*>(object);
    if (my.bias) {
      const T* const b = my.bias + my.first[static_cast<size_t>(part)] + column;
      for (int64_t i = 0; i < columns; ++i) c[i] += b[i];
    }
    if (my.residual) {
      const T* const r = my.residual + row * my.row_size + column;
      for (int64_t i = 0; i < columns; ++i) c[i] += r[i];
    }
  }
  Epilogue<T> epilogue() const { return bias || residual ? Epilogue<T>{this, row} : Epilogue<T>{}; }
};

}  // namespace orrery::nn
