#include "nn/attentions/base/masked_matmul.h"

#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery::nn {
namespace {

Tensor masked_to_zero(const Tensor& x, const Tensor& mask) { return where(mask, x, Tensor::zeros_like(x, {1})); }

template <class A>
HOST_DEVICE bool is_finite(A x) {
  return x - x == 0;
}
struct FinitePart {  // x if finite, else 0
  template <class A>
  HOST_DEVICE A operator()(A x) const {
    return is_finite(x) ? x : A(0);
  }
};
template <class T>
struct FindNonFinite {  // 1 if row r has a non-finite element, else 0
  In<T> x;
  int32_t* non_finite;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> mine = x.at(r * row.n);
    int32_t* const out = non_finite;
    const int some = row.sum([=](int d) { return is_finite(mine[d]) ? 0 : 1; });
    row.once([=] { out[r] = some > 0; });
  }
};
struct CountNonFinite {  // counts these rows in each head
  const int32_t* non_finite;
  HOST_DEVICE int32_t operator()(int64_t i, int64_t) const { return non_finite[i]; }
};

// y_i += sum over j visible to i of w_ij x_j, for the non-finite elements of x only. If
// `transposed`, the first index of weights and mask is j.
template <class T>
struct AddNonFinite {
  using A = Arithmetic<T>;
  In<T> weights, mask, x;
  const int32_t *non_finite, *per_head;
  Out<T> y;
  int64_t rows, terms;
  bool transposed;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t head = r / rows, i = r % rows;
    if (per_head[head] == 0) return;
    const Out<T> out = y.at(r * row.n);
    for (int64_t j = 0; j < terms; ++j) {
      const int64_t term = head * terms + j, pair = transposed ? term * rows + i : r * terms + j;
      if (non_finite[term] == 0 || mask[pair] == 0) continue;
      const A w = weights[pair];
      const In<T> values = x.at(term * row.n);
      row.each([=](int d) {
        if (!is_finite(values[d])) out[d] += w * values[d];
      });
    }
  }
};

Tensor scores(const Tensor& q, const Tensor& k, const Tensor& mask) {
  return masked_to_zero(matmul(q, k, {.b = true}), mask);
}
// sum over j of w_ij x_j, or of w_ji x_j if transposed
Tensor sums(const Tensor& w, const Tensor& x, const Tensor& mask, bool transposed = false) {
  const Tensor masked = masked_to_zero(w, mask);
  const Tensor finite = Tensor::empty_like(x);
  const int64_t terms = x.size(-2), heads = x.shape().rows() / std::max<int64_t>(1, terms);
  const Tensor non_finite = Tensor::empty_like(x, Shape{heads, terms}, Dtype::i32),
               per_head = Tensor::empty_like(x, Shape{heads}, Dtype::i32);
  const int width = static_cast<int>(x.size(-1));
  dispatch(x.dtype(), "masked_matmul", [&]<class T>() {
    map(x.device(), x.numel(), FinitePart{}, finite.mutable_data<T>(), x.data<T>());
    rows(x.device(), non_finite.numel(), width, FindNonFinite<T>{{x.data<T>()}, non_finite.mutable_data<int32_t>()});
  });
  reduce(x.device(), heads, terms, 1, CountNonFinite{non_finite.data<int32_t>()}, per_head.mutable_data<int32_t>());
  const Tensor y = matmul(masked, finite, {.a = transposed});
  dispatch(x.dtype(), "masked_matmul", [&]<class T>() {
    rows(x.device(), y.shape().rows(), width,
         AddNonFinite<T>{{masked.data<T>()},
                         {mask.data<T>()},
                         {x.data<T>()},
                         non_finite.data<int32_t>(),
                         per_head.data<int32_t>(),
                         {y.mutable_data<T>()},
                         y.size(-2),
                         terms,
                         transposed});
  });
  return y;
}

template <bool Scores>  // scores of queries and keys, or sums of values by weights; each is the other's gradient
struct MaskedMatmul {
  static constexpr const char* name = Scores ? "masked_matmul_transposed" : "masked_matmul";
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b, const Tensor& mask) const {
    saved.save(a, b, mask);
    return Scores ? scores(a, b, mask) : sums(a, b, mask);
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &a = saved[0], &b = saved[1], &mask = saved[2];
    Gradients<3> d;
    if (saved.needs(0)) d[0] = Scores ? sums(dy, b, mask) : scores(dy, b, mask);
    if (saved.needs(1)) d[1] = Scores ? sums(dy, a, mask, true) : sums(a, dy, mask, true);
    return d;
  }
};

Shape pairs(const Tensor& a, const Tensor& b) { return a.shape().with(-1, b.size(-2)); }

}  // namespace

Tensor masked_matmul_transposed(const Tensor& query, const Tensor& key, const Tensor& mask) {
  return record(MaskedMatmul<true>{}, query, key, broadcast_to(mask.detach(), pairs(query, key)));
}
Tensor masked_matmul(const Tensor& weights, const Tensor& value, const Tensor& mask) {
  return record(MaskedMatmul<false>{}, weights, value, broadcast_to(mask.detach(), weights.shape()));
}

}  // namespace orrery::nn
