// Y = A B over leading axes.  With G = dY:  dA = G B^T,  dB = A^T G;  with transposed operands:
//   Y = A B^T:  dA = G B, dB = G^T A.      Y = A^T B:  dA = B G^T, dB = A G.
//   Y = A^T B^T:  dA = B^T G^T, dB = G^T A^T.
// If one operand has no leading axes, its gradient is one product over all rows, or a batch sum.
#include "engine/matmul/matmul.h"

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

struct Sizes {
  int64_t batch, m, n, k;
  bool share_a, share_b;
  Shape y;
};

Shape leading(const Shape& shape) { return shape.without(-1).without(-1); }

Sizes sizes_of(const Tensor& a, const Tensor& b, Transposed t) {
  check_same_kind("matmul", a, b);
  check(a.shape().rank() >= 2 && b.shape().rank() >= 2, "matmul: operands must have at least 2 axes, not ", a.shape(),
        " x ", b.shape());
  const int64_t m = a.size(t.a ? -1 : -2), k = a.size(t.a ? -2 : -1), inner = b.size(t.b ? -1 : -2),
                n = b.size(t.b ? -2 : -1);
  if (k != inner)
    fail("matmul: inner sizes differ: ", a.shape(), " x ", b.shape(),
         k == n ? "; did you mean transpose_b?" : text("; ", k, " and ", inner, " must be equal"));
  const Shape in_a = leading(a.shape()), in_b = leading(b.shape());
  check(in_a == in_b || in_a.rank() == 0 || in_b.rank() == 0, "matmul: leading axes differ: ", a.shape(), " x ",
        b.shape(), "; they must be equal, or one operand must have none");
  Shape y = in_a.rank() > 0 ? in_a : in_b;
  const int64_t batch = y.numel();
  y.append(m), y.append(n);
  return {batch, m, n, k, in_a.rank() == 0 && batch > 1, in_b.rank() == 0 && batch > 1, y};
}

template <class T>
void run(const Sizes& s, const Tensor& a, const Tensor& b, Transposed t, const Tensor& y) {
  Product p{.m = s.m,
            .n = s.n,
            .k = s.k,
            .transpose_a = t.a,
            .transpose_b = t.b,
            .batch = s.batch,
            .share_a = s.share_a,
            .share_b = s.share_b};
  if (s.share_b && !t.a) p.m *= p.batch, p.batch = 1, p.share_b = false;  // one product over all rows
  multiply<T>(a.device(), p, a.data<T>(), b.data<T>(), {y.mutable_data<T>()});
}

struct Matmul {
  static constexpr const char* name = "matmul";
  Transposed t;

  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.save(a, b);
    const Sizes s = sizes_of(a, b, t);
    const Tensor y = Tensor::empty_like(a, s.y);
    dispatch(a.dtype(), name, [&]<class T>() { run<T>(s, a, b, t, y); });
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& g) const {
    const Tensor &a = saved[0], &b = saved[1];
    const auto product = [](const Tensor& x, bool tx, const Tensor& y, bool ty) { return matmul(x, y, {tx, ty}); };
    Gradients<2> d;
    if (saved.needs(0)) d[0] = reduce_to(t.a ? product(b, t.b, g, true) : product(g, false, b, !t.b), a.shape());
    if (saved.needs(1)) {
      const bool shared = b.shape().rank() == 2 && a.shape().rank() > 2 && !t.a;
      if (shared) {  // one product over the rows of all batches
        const Tensor flat_a = a.reshape(Shape{a.shape().rows(), a.size(-1)}),
                     flat_g = g.reshape(Shape{g.shape().rows(), g.size(-1)});
        d[1] = t.b ? product(flat_g, true, flat_a, false) : product(flat_a, true, flat_g, false);
      } else {
        d[1] = reduce_to(t.b ? product(g, true, a, t.a) : product(a, !t.a, g, false), b.shape());
      }
    }
    return d;
  }
  static Tensor reduce_to(const Tensor& g, const Shape& shape) {
    if (g.shape() == shape) return g;
    return sum(g.reshape(Shape{leading(g.shape()).numel(), g.size(-2), g.size(-1)}), {0});
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Transposed transposed) { return record(Matmul{transposed}, a, b); }

}  // namespace orrery
