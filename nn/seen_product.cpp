#include "nn/seen_product.h"

#include <cmath>

#include "engine/autograd.h"
#include "engine/dispatch.h"
#include "engine/ops.h"

namespace orrery::nn {
namespace {

Tensor only_seen(const Tensor& x, const Tensor& seen) { return where(seen, x, Tensor::zeros({1}, x.dtype())); }

// y_i += sum over the j that i sees of w_ij x_j, for those numbers of x that are not finite.  Of `transposed` weights
// and masks the first index is j.
template <class T>
void add_not_finite(const Tensor& y, const Tensor& w, const Tensor& x, const Tensor& seen, bool transposed) {
  using A = Arithmetic<T>;
  const int64_t terms = x.size(-2), width = x.size(-1), rows = y.size(-2);
  const T *const weights = w.data<T>(), *const sees = seen.data<T>(), *const numbers = x.data<T>();
  T* const sums = y.mutable_data<T>();
  for (int64_t at = 0; at < x.count(); ++at) {
    const A value = static_cast<A>(numbers[at]);
    if (std::isfinite(value)) continue;
    const int64_t d = at % width, j = at / width % terms, head = at / width / terms;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t pair = head * rows * terms + (transposed ? j * rows + i : i * terms + j);
      if (static_cast<A>(sees[pair]) == 0) continue;
      T& sum = sums[(head * rows + i) * width + d];
      sum = static_cast<T>(static_cast<A>(sum) + static_cast<A>(weights[pair]) * value);
    }
  }
}

template <class T>
bool all_finite(const Tensor& x) {
  using A = Arithmetic<T>;
  const T* const numbers = x.data<T>();
  bool finite = true;
  for (int64_t i = 0; i < x.count(); ++i) finite &= static_cast<A>(numbers[i]) - static_cast<A>(numbers[i]) == 0;
  return finite;
}
template <class T>
Tensor finite_part(const Tensor& x) {
  const Tensor y = x.clone();
  T* const numbers = y.mutable_data<T>();
  for (int64_t i = 0; i < y.count(); ++i)
    if (!std::isfinite(static_cast<Arithmetic<T>>(numbers[i]))) numbers[i] = T(0);
  return y;
}

Tensor scores(const Tensor& q, const Tensor& k, const Tensor& seen) {
  return only_seen(matmul(q, k, {.b = true}), seen);
}
// sum over j of w_ij x_j, or of w_ji x_j if transposed
Tensor sums(const Tensor& w, const Tensor& x, const Tensor& seen, bool transposed = false) {
  const Tensor kept = only_seen(w, seen);
  return dispatch(x.dtype(), "seen_sum", [&]<class T>() {
    if (all_finite<T>(x)) return matmul(kept, x, {.a = transposed});
    const Tensor y = matmul(kept, finite_part<T>(x), {.a = transposed});
    add_not_finite<T>(y, kept, x, seen, transposed);
    return y;
  });
}

struct SeenScores {
  static constexpr const char* name = "seen_scores";
  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& seen) const {
    saved.keep(q, k, seen);
    return scores(q, k, seen);
  }
  Gradients<3> backward(const Saved& saved, const Tensor& ds) const {
    const Tensor &q = saved[0], &k = saved[1], &seen = saved[2];
    Gradients<3> d;
    if (saved.needs(0)) d[0] = sums(ds, k, seen);
    if (saved.needs(1)) d[1] = sums(ds, q, seen, true);
    return d;
  }
};

struct SeenSum {
  static constexpr const char* name = "seen_sum";
  Tensor forward(Saved& saved, const Tensor& w, const Tensor& v, const Tensor& seen) const {
    saved.keep(w, v, seen);
    return sums(w, v, seen);
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &w = saved[0], &v = saved[1], &seen = saved[2];
    Gradients<3> d;
    if (saved.needs(0)) d[0] = scores(dy, v, seen);
    if (saved.needs(1)) d[1] = sums(w, dy, seen, true);
    return d;
  }
};

Shape pairs(const Tensor& a, const Tensor& b) { return a.shape().with(-1, b.size(-2)); }

}  // namespace

Tensor seen_scores(const Tensor& query, const Tensor& key, const Tensor& seen) {
  return record(SeenScores{}, query, key, broadcast_to(seen.detach(), pairs(query, key)));
}
Tensor seen_sum(const Tensor& weights, const Tensor& value, const Tensor& seen) {
  return record(SeenSum{}, weights, value, broadcast_to(seen.detach(), weights.shape()));
}

}  // namespace orrery::nn
