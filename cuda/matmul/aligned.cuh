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
  struct Segment {                 // of a row
    const bf16* from;              // in the first row
    int64_t stride;                // elements from row to row
    int64_t to_begin, count;       // in elements; count 0: unused
    bool operator==(const Segment&) const = default;
  };
  Segment segments[4];
  bf16* to;
  int64_t to_stride;               // elements from row to row
  int64_t from_matrix, to_matrix;  // elements from matrix to matrix
  int64_t rows, matrices;
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
    auto& parts = plan_.product.a_parts;
    if (!plan.vectors_a || (parts[0].columns && !in_whole_steps(plan))) {
      AlignedRows rows{};
      for (int i = 0; i < 4; ++i) rows.segments[i] = {parts[i].data, parts[i].row_stride, 0, parts[i].columns};
      if (!parts[0].columns) rows.segments[0] = {p.a.data, p.a.row_stride, 0, p.a.transposed ? p.m : p.k};
      a_ = copy(plan_.product.a, p.a.transposed ? p.k : p.m, p.batch, rows, p.a.transposed);
      for (int i = 0; i < 4; ++i) {
        if (p.a.transposed && parts[i].columns)
          parts[i] = {rows.to + rows.segments[i].to_begin, parts[i].columns, rows.to_stride};
        else
          parts[i] = {};
      }
    }
    if (!plan.vectors_b) {
      AlignedRows rows{};
      int64_t begin = 0;
      for (int i = 0; i < 4 && !p.b.transposed; begin += p.c[i++].columns)
        if (p.c[i].columns) rows.segments[i] = {p.b.data + begin, p.b.row_stride, 0, p.c[i].columns};
      if (p.b.transposed) rows.segments[0] = {p.b.data, p.b.row_stride, 0, p.k};
      b_ = copy(plan_.product.b, p.b.transposed ? p.n : p.k, p.batch, rows, true);
      for (int i = 0; i < 4 && !p.b.transposed; ++i) plan_.begins[i] = rows.segments[i].to_begin;
    }
    plan_.vectors_a = plan_.vectors_b = true;
  }
  const MatmulPlan<bf16, Result>& plan() const { return plan_; }

 private:
  // Returns true if each step along k, of at most 64, is in one part of A.
  static bool in_whole_steps(const MatmulPlan<bf16, Result>& plan) {
    constexpr int64_t step = 64;
    bool whole = plan.splits == 1 || plan.length % step == 0;
    for (const auto& part : plan.product.a_parts) whole = whole && part.columns % step == 0;
    return whole || plan.product.a.transposed;
  }
  // Segments begin at multiples of 16 bytes if `separate`; else they are adjacent.
  static std::shared_ptr<Workspace> copy(Operand<bf16>& x, int64_t rows, int64_t batch, AlignedRows& to,
                                         bool separate) {
    const auto whole = [](int64_t n) { return matmul_tiles(n, AlignedRows::chunk) * AlignedRows::chunk; };
    int64_t end = 0;
    for (auto& segment : to.segments)
      if (segment.count) segment.to_begin = end, end += separate ? whole(segment.count) : segment.count;
    to.to_stride = whole(end);
    to.from_matrix = x.batch_stride, to.rows = rows, to.matrices = x.batch_stride ? batch : 1;
    to.to_matrix = rows * to.to_stride;
    std::shared_ptr<Workspace> workspace = copy_aligned_rows(to);
    x = {to.to, to.to_stride, x.batch_stride ? to.to_matrix : 0, x.transposed};
    return workspace;
  }
  MatmulPlan<bf16, Result> plan_;
  std::shared_ptr<Workspace> a_, b_;
};

}  // namespace orrery::cuda
