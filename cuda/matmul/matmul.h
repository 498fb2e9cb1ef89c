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

// C (m, n) = A (m, k) B (k, n), `batch` times, row-major. C is one to four dense matrices, the
// outputs (batch, m, columns), side by side in the columns of the product. Elements of A and B are
// T, those of C are Result; sums are in Arithmetic<T>.
template <class T, class Result = T>
struct Matmul {
  int64_t m, n, k, batch;
  Operand<T> a, b;
  struct Output {
    Result* data;
    int64_t columns;
  };
  Output c[4];             // outputs; their columns add up to n; 0 columns: unused
  bool accumulate;         // C += A B
  const Result* bias;      // n numbers, added to every row of the product; may be null
  const Result* residual;  // added to C, which is then one matrix of this size; may be null
  // Destination of the m sums of A's rows over k, or null. If A is an output gradient dy, stored
  // (k, m), and C the gradient of weights, they are the gradient of the biases. Only bf16 products
  // with f32 results, batch = 1, A stored (k, m) and B stored (k, n) support them.
  Arithmetic<T>* row_sums = nullptr;
  bool accumulate_row_sums = false;  // else they are overwritten
  // Up to four matrices whose stored rows, side by side, are those of A, in place of `a.data`;
  // 0 columns: unused. Only bf16 products with batch = 1 support them.
  struct Part {
    const T* data;
    int64_t columns, row_stride;
  };
  Part a_parts[4] = {};
  bool may_wait = false;  // C and row_sums may be written later (cuda/runtime/waiting.h)
};

// Queues the product. The order of its sums depends on the sizes alone, and so do its bits.
//
// terms: 0 multiplies in f32; 1, 2 or 3: bf16 terms per element, multiplied on tensor cores.
void multiply(const Matmul<float>& product, int terms = 0);
void multiply(const Matmul<double>& product);
void multiply(const Matmul<bf16>& product);  // on tensor cores
void multiply(const Matmul<bf16, float>& product);

// A guard: while it lives, the operands of this thread's products must not change. The copy that a
// product makes of an operand with unaligned rows is kept for the next product that reads it.
class AlignedCopies {
 public:
  AlignedCopies();
  ~AlignedCopies();
  AlignedCopies(const AlignedCopies&) = delete;
};

}  // namespace orrery::cuda
