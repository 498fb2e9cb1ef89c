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
  bool share_a = false, share_b = false;  // the same A or B for the whole batch
  bool accumulate = false;                // C += A B
  // C may be several dense matrices, side by side in the columns of the product: their numbers of columns, which add up
  // to n.  All zero: one matrix.
  std::array<int64_t, 4> part_columns = {};
};

// A function that C goes through as soon as a block of it is complete, and while it is in the cache or in registers.
// It sees what C keeps, so that a backward that reads C again computes the slopes of the same function.
template <class C>
class EpilogueFunction {
 public:
  // On the CPU: `columns` elements from (row of C counted over the batch, first column, which counts within its part).
  // Every element is handed over once, in pieces of rows.
  virtual void row(int part, int64_t row, int64_t column, int64_t columns, C* c) const = 0;
  // A function of the host is no help on a GPU: there it queues the whole product, with kernels that were compiled for
  // this epilogue.
  virtual void on_card(const cuda::Matmul<C, C>& product, int parts_of_f32) const;  // an Error unless overridden

 protected:
  ~EpilogueFunction() = default;
};

// What is done to C: the bias and the residual are added, the element is rounded if C is bf16, then the function is
// called.
template <class C>
struct Epilogue {
  const EpilogueFunction<C>* function = nullptr;
  const C* bias = nullptr;      // n numbers: one for each column of the product
  const C* residual = nullptr;  // as large as C, which is then one matrix
  // m numbers, for the sums of A's rows over k, which are f32 and deterministic: a product dW = dy^T x makes db on the
  // way.  Only that product of bf16 to float on a GPU can; elsewhere it is an Error.
  C* row_sums = nullptr;
  bool accumulate_row_sums = false;  // else they are overwritten
};

// T, the elements of A and B, is float, double or bf16.  Those of C are the same, or float for bf16.  Elements of bf16
// are taken as they are (by avx512_bf16 subnormal ones as zero); their products, what is accumulated, the bias and the
// residual are added in f32 and rounded once.  The bits of the result depend on the sizes only, not on the threads.
// All pointers are to memory of the device.
template <class T, class C = T>
void multiply(Device device, const Product& p, const T* a, const T* b, std::initializer_list<C*> c,
              Epilogue<C> epilogue = {});

// While one lives, on this thread, no operand may change: a copy that a GPU makes of one, so that its rows are aligned,
// then serves all products that read it.
class UnchangedOperands {
 public:
  UnchangedOperands();

 private:
  std::shared_ptr<void> copies_;
};

// How products of f32 are reckoned on a GPU, in PyTorch's words:
//   highest    in f32, the default
//   high       of `parts` bf16 parts of every element, on tensor cores.  Of each product 2^-25 is lost with 3 parts,
//              nearly as in f32, and 3 2^-18 with 2, which are faster
//   medium     of elements rounded to bf16: 2^-8 is lost
// Sums are f32 always.  The CPU accepts the setting and computes `highest`; other dtypes never change.
enum class ProductPrecision : uint8_t { highest, high, medium };
void set_product_precision(ProductPrecision precision, int parts = 3);  // an Error unless parts is 2 or 3
ProductPrecision product_precision();
ProductPrecision parse_product_precision(const std::string& name);  // "highest", "high" or "medium"

// Whose kernels multiply on the CPU: our own "avx512_bf16", with vdpbf16ps, "avx512" or "avx2", or "openblas".  "auto",
// as at the start: the fastest of ours that this processor has, and OpenBLAS's where it has none.  An unknown one, or
// one that is not here, is an Error.
const char* product_kernels();
void use_product_kernels(std::string_view name);
std::string blas_description();  // which kernels, and OpenBLAS's version and choice for this processor

}  // namespace orrery
