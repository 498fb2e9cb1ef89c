// Batched matrix products with transposes, several outputs, an epilogue, and accumulation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "engine/types/device.h"
#include "engine/types/dtype.h"

namespace orrery {

namespace cuda {
template <class T, class Result>
struct Matmul;  // cuda/matmul/matmul.h
}

// C (m, n) = A (m, k) B (k, n), `batch` times; all dense row-major.
struct Product {
  int64_t m, n, k;
  bool transpose_a = false;  // A is stored (k, m)
  bool transpose_b = false;  // B is stored (n, k)
  int64_t batch = 1;
  bool share_a = false, share_b = false;  // one A or B for the whole batch
  bool accumulate = false;                // C += A B
  // Column counts, which must sum to n (or multiply() throws), if C is several dense matrices, side
  // by side in the columns of the product. All zero: one matrix.
  std::array<int64_t, 4> output_columns = {};
  // Likewise if the stored rows of A are those of several dense matrices, side by side. Only products
  // of bf16 on a GPU, with batch 1, support them; others throw.
  std::array<int64_t, 4> a_columns = {};
};

// A function applied to each complete block of C while it is in the cache or in registers. It gets
// the values that C stores, so a backward that reads C computes derivatives of the same function.
template <class C>
class EpilogueFunction {
 public:
  // CPU: applies it to `columns` elements from (row, counted over the batch; column of the output).
  // Each element is passed once, in chunks of rows.
  virtual void row(int output, int64_t row, int64_t column, int64_t columns, C* c) const = 0;
  // GPU: queues the whole product with kernels compiled for this epilogue, because a GPU cannot
  // call a function of the host. bf16_terms: per f32 element (ProductPrecision); 0: none, in f32.
  virtual void on_gpu(const cuda::Matmul<C, C>& product, int bf16_terms) const;  // throws unless overridden

 protected:
  ~EpilogueFunction() = default;
};

// Steps on C: adds the bias and the residual, rounds the element if C is bf16, calls the function.
template <class C>
struct Epilogue {
  const EpilogueFunction<C>* function = nullptr;
  const C* bias = nullptr;      // n values, one for each column of the product; shared by the batch
  const C* residual = nullptr;  // as large as C, (batch, m, n), which is then one output
  // m values: f32, deterministic sums of the rows of A over k. So a product dW = dy^T x also gives
  // db. Only this product, of bf16 to float on a GPU, with batch 1, supports it; others throw.
  C* row_sums = nullptr;
  bool accumulate_row_sums = false;  // else they are overwritten
  bool may_wait = false;             // GPU: C and row_sums are gradients of leaves, written in the backward pass
};

// Computes the product. T, the type of A and B, is float, double or bf16; C has the same type, or
// float for bf16. Elements of bf16 are multiplied exactly (avx512_bf16 takes subnormals as zero).
// Products, accumulated values, bias and residual are added in f32 and rounded once. The bits of
// the result depend only on the sizes, not on the threads. All pointers are to device memory.
// a: one matrix, or as many as p.a_columns has.
template <class T, class C = T>
void multiply(Device device, const Product& p, const std::array<const T*, 4>& a, const T* b,
              std::initializer_list<C*> c, Epilogue<C> epilogue = {});
template <class T, class C = T>
void multiply(Device device, const Product& p, const T* a, const T* b, std::initializer_list<C*> c,
              Epilogue<C> epilogue = {}) {
  multiply(device, p, std::array<const T*, 4>{a}, b, c, epilogue);
}

// A guard: while it lives, the operands of this thread's products must not change. A GPU then makes
// one copy with aligned rows of an operand for all products that read it.
class UnchangedOperands {
 public:
  UnchangedOperands();

 private:
  std::shared_ptr<void> copies_;
};

// How f32 products are computed on a GPU (PyTorch's names):
//   highest    in f32, the default
//   high       with `terms` bf16 terms per element, on tensor cores; the relative error of a product is
//              2^-25 with 3 terms, nearly as in f32, and 3 * 2^-18 with 2 terms, which are faster
//   medium     with elements rounded to bf16; the relative error of a product is 2^-8
// Sums are always f32. The CPU accepts the setting but computes `highest`; other dtypes ignore it.
enum class ProductPrecision : uint8_t { highest, high, medium };
void set_product_precision(ProductPrecision precision, int terms = 3);  // throws unless terms is 2 or 3
ProductPrecision product_precision();
ProductPrecision parse_product_precision(const std::string& name);  // "highest", "high" or "medium"

// The kernels of products on the CPU: "avx512_bf16" (vdpbf16ps), "avx512" and "avx2" of this
// library, or "openblas". "auto", the default, is the fastest of the first three that the processor
// supports, or OpenBLAS if it supports none. An unknown or unsupported name throws.
const char* product_kernels();
void use_product_kernels(std::string_view name);
std::string blas_description();  // kernels in use, OpenBLAS's version and its choice for this processor

}  // namespace orrery
