// Batched matrix products with transposes, several outputs, an epilogue, and accumulation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "engine/device.h"

namespace orrery {

// C (m, n) = A (m, k) B (k, n), `batch` times; all dense row-major.
struct Product {
  int64_t m, n, k;
  bool transpose_a = false;  // A is stored (k, m)
  bool transpose_b = false;  // B is stored (n, k)
  int64_t batch = 1;
  bool share_a = false, share_b = false;  // the same A or B for the whole batch
  bool accumulate = false;                // C += A B
  // C may be several dense matrices, side by side in the columns of the product: their numbers of columns, which add up
  // to n.  All zero: one matrix.
  std::array<int64_t, 4> part_columns = {};
};

// What is done to C as soon as a block of it is complete, and while it is in the cache or in registers: the bias and
// the residual are added, then a function is called.
//
// On the CPU that is `row`, with an object and (row of C counted over the batch, first column, columns, the elements).
// The column counts within its part.  Every element is handed over once, in pieces of rows.  A function of the host is
// no help on a GPU: there `whole` does the same to all rows of a part, by work that it queues behind the product.
template <class T>
struct Epilogue {
  const void* object = nullptr;
  void (*row)(const void* object, int part, int64_t row, int64_t column, int64_t columns, T* c) = nullptr;
  void (*whole)(const void* object, int part, int64_t rows, T* c) = nullptr;
  const T* bias = nullptr;      // n numbers: one for each column of the product
  const T* residual = nullptr;  // as large as C, which is then one matrix
};

// T is float or double.  How C is cut into tiles depends on the sizes only, and so do the bits of the result.
// All pointers are to memory of the device.
template <class T>
void multiply(Device device, const Product& p, const T* a, const T* b, std::initializer_list<T*> c,
              Epilogue<T> epilogue = {});

// "avx512", our own, or "openblas": chosen once by what the processor has.  Tests set it; an unknown or missing one is
// an Error.
const char* product_kernels();
void use_product_kernels(const char* name);
std::string blas_description();  // which kernels, and OpenBLAS's version and choice for this processor

}  // namespace orrery
