// Aligned copies of operands whose rows do not begin at multiples of 16 bytes. A product on tensor
// cores reads its operands many times: 16 bytes at once if rows are aligned, else single elements.
//
// If B's rows run across several outputs of the product, each output's columns are aligned too.
#pragma once

#include <memory>

#include "cuda/matmul/matmul.cuh"

namespace orrery::cuda {

struct AlignedRows {
  static constexpr int chunk = 8;  // elements in 16 bytes
  const bf16* from;
  bf16* to;
  int64_t from_stride, to_stride;  // elements from row to row
  int64_t from_matrix, to_matrix;  // elements from matrix to matrix
  int64_t rows, matrices;
  int64_t from_begin[4], to_begin[4], count[4];  // of segments of a row, in elements; count 0: unused
  bool operator==(const AlignedRows&) const = default;
};

// Sets `to` to a copy kept for AlignedCopies or to a new one, which is queued. Gaps between
// segments of a row are zero.
std::shared_ptr<Workspace> copy_aligned_rows(AlignedRows& rows);

// A plan with aligned operands: the original ones, or copies that live as long as this object.
template <class Result>
class AlignedOperands {
 public:
  explicit AlignedOperands(const MatmulPlan<bf16, Result>& plan) : plan_(plan) {
    const Matmul<bf16, Result> p = plan.product;
    if (!plan.vectors_a) {
      const int64_t length[4] = {p.a.transposed ? p.m : p.k};
      a_ = copy(plan_.product.a, p.a.transposed ? p.k : p.m, p.batch, length, nullptr);
    }
    if (!plan.vectors_b) {
      int64_t length[4] = {p.k};
      if (!p.b.transposed)
        for (int i = 0; i < 4; ++i) length[i] = p.c[i].columns;
      b_ = copy(plan_.product.b, p.b.transposed ? p.n : p.k, p.batch, length, p.b.transposed ? nullptr : plan_.begins);
    }
    plan_.vectors_a = plan_.vectors_b = true;
  }
  const MatmulPlan<bf16, Result>& plan() const { return plan_; }

 private:
  static std::shared_ptr<Workspace> copy(Operand<bf16>& x, int64_t rows, int64_t batch, const int64_t (&length)[4],
                                         int64_t* begins) {
    AlignedRows r{};
    r.from = x.data, r.from_stride = x.row_stride, r.from_matrix = x.batch_stride;
    r.rows = rows, r.matrices = x.batch_stride ? batch : 1;
    int64_t from = 0;
    for (int i = 0; i < 4; ++i) {
      r.from_begin[i] = from, r.to_begin[i] = r.to_stride, r.count[i] = length[i];
      if (begins) begins[i] = r.to_stride;
      from += length[i], r.to_stride += matmul_tiles(length[i], AlignedRows::chunk) * AlignedRows::chunk;
    }
    r.to_matrix = rows * r.to_stride;
    std::shared_ptr<Workspace> workspace = copy_aligned_rows(r);
    x = {r.to, r.to_stride, x.batch_stride ? r.to_matrix : 0, x.transposed};
    return workspace;
  }
  MatmulPlan<bf16, Result> plan_;
  std::shared_ptr<Workspace> a_, b_;
};

}  // namespace orrery::cuda
