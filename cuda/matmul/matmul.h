// Matrix products on a GPU, for plain C++: sizes and pointers to device memory.
#pragma once

#include <cstdint>

#include "engine/types/dtype.h"

namespace orrery::cuda {

template <class T>
struct Operand {
  const T* data;
  int64_t row_stride;    // elements from one stored row to the next
  int64_t batch_stride;  // elements from one matrix of the batch to the next; 0: the same for all
  bool transposed;       // A is stored (k, m), B (n, k)
};

// C (m, n) = A (m, k) B (k, n), `batch` times, row-major.  C is one to four dense matrices (batch, m, columns), side by
// side in the columns of the product.
// Elements of A and B are T, those of C are Result; sums are taken in Arithmetic<T>.
template <class T, class Result = T>
struct Matmul {
  int64_t m, n, k, batch;
  Operand<T> a, b;
  struct Part {
    Result* data;
    int64_t columns;
  };
  Part c[4];               // their columns add up to n; those that are not used have none
  bool accumulate;         // C += A B
  const Result* bias;      // n numbers, added to every row of the product; may be null
  const Result* residual;  // as large as C, which is then one matrix, and added to it; may be null
  // Where the sums of A's rows over k go, m numbers, or null.  If A is a gradient dy of rows of outputs, stored (k, m),
  // and C the gradient of weights, they are that of the biases.  Only products on tensor cores of one A, stored so, and
  // one B, stored (k, n), into f32 make them.
  Arithmetic<T>* row_sums = nullptr;
  bool accumulate_row_sums = false;  // else they are overwritten
};

// Queued, as all work.  The same sizes give the same bits.
//
// parts: 0 multiplies in f32; 1, 2 or 3 take so many bf16 parts of every element to the tensor cores.
void multiply(const Matmul<float>& product, int parts = 0);
void multiply(const Matmul<double>& product);
void multiply(const Matmul<bf16>& product);  // on tensor cores
void multiply(const Matmul<bf16, float>& product);

// While one lives, on this thread, no operand of a product may change: the copy that is made of one whose rows are not
// aligned is kept for the next product that reads it.
class AlignedCopies {
 public:
  AlignedCopies();
  ~AlignedCopies();
  AlignedCopies(const AlignedCopies&) = delete;
};

}  // namespace orrery::cuda
