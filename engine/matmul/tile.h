// A tile of a product, the work of one core, and the kernels that compute it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/types/dtype.h"

namespace orrery::detail::matmul {

// Element (r, c) is at data[r * stride + c], or, transposed, at data[c * stride + r].
template <class T>
struct Operand {
  const T* data;
  int64_t stride;
  bool transposed;
};

template <class T, class Element = T>
struct Tile {  // C (m, n) = [C +] A (m, k) B (k, n) of elements that T holds exactly; row r of C is at c + r * stride
  int64_t m, n, k;  // k: at least 1
  Operand<Element> a, b;
  T* c;
  int64_t stride;
  bool accumulate;
};

// A callback that is called once for each block of the tile when complete; blocks cover the tile.
struct Completion {
  const void* object = nullptr;
  void (*block)(const void* object, int64_t row, int64_t rows, int64_t column, int64_t columns) = nullptr;
};

constexpr int64_t rows_of_packed_b = 512;  // rows that a packed panel of B serves before it is packed again

template <class T, class Element = T>
struct TileKernel {
  void (*multiply)(const Tile<T, Element>&, const Completion&, T* workspace);
  // Returns the number of workspace elements for tiles of at most (m, n); 64-byte aligned.
  int64_t (*workspace)(int64_t m, int64_t n, int64_t k);
};

struct Kernels {
  const char* name;
  TileKernel<float> f32;
  TileKernel<double> f64;
  TileKernel<float, orrery::bf16> bf16;
};

extern const Kernels avx2, avx512;                        // kernels_avx2.cpp, kernels_avx512.cpp
extern const TileKernel<float, orrery::bf16> bf16_pairs;  // kernels_avx512_bf16.cpp
extern const Kernels openblas;                            // blas.cpp

std::string openblas_description();

}  // namespace orrery::detail::matmul
