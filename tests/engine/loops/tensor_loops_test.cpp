// The loops over tensors: the arguments that a formula receives, and operands that are rejected.
#include <doctest/doctest.h>

#include "engine/loops/tensor_loops.h"
#include "tests/support/message.h"

using namespace orrery;
using orrery::testing::expect_error;

namespace {

struct Normal {  // y = w (x - mean) factor + r, and the mean; an optional copy of y in bf16
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t r, In<T> w, In<double> none, A factor, Out<T> y, Out<bf16> copy,
                              A& mean) const {
    const A m = row.sum([&](int i) { return x[i]; }) / static_cast<A>(row.n);
    row.each([&](int i) {
      y[i] = w[i] * (x[i] - m) * factor + static_cast<A>(r);
      if (copy) copy[i] = static_cast<float>(y[i]);
    });
    row.once([&] { mean = none ? A(-1) : m; });
  }
};
struct Weighted {  // x w_column m_row, and the row
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A x, A w, A m, int64_t r) const {
    return {{x * w * m, static_cast<A>(r)}};
  }
};
struct Square {
  template <class A>
  HOST_DEVICE double operator()(A x) const {
    return static_cast<double>(x) * static_cast<double>(x);
  }
};
struct Shifted {
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A x, A y, In<A> shift) const {
    return {{x + shift[0], x * y}};
  }
};

using Numbers = std::vector<double>;

}  // namespace

TEST_CASE("each_row passes rows, whole tensors, numbers and the row's index to a formula, in every dtype") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    const Tensor x = Tensor::from(Shape{2, 3}, {1, 2, 6, -4, 0, 1}, dtype),
                 w = Tensor::from(Shape{3}, {1, 2, -1}, dtype);
    const Tensor factor = Tensor::from(Shape{2}, {1, 0.5}, arithmetic_dtype(dtype)), y = Tensor::empty_like(x),
                 mean = empty_computed(x, Shape{2}), copy = Tensor::empty(x.shape(), Dtype::bf16, Device::cpu);
    CHECK(mean.dtype() == (dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32));
    for (const Tensor& written : {copy, Tensor()})
      each_row("test", Normal{}, row_of(x), row_index(), broadcast(w), broadcast<double>(Tensor()), per_row(factor),
               out_row(y), optional_out_row<bf16>(written), out_per_row(mean));
    CHECK(mean.to_vector() == Numbers{3, -1});
    CHECK(y.to_vector() == Numbers{-2, -2, -3, -0.5, 2, 0});
    CHECK(copy.to_vector() == y.to_vector());
  }
}

TEST_CASE("sum_rows, sum_elements and each_element pass elements and shared numbers to a formula") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    const Tensor x = Tensor::from(Shape{2, 3}, {1, 2, 6, -4, 0, 1}, dtype),
                 w = Tensor::from(Shape{3}, {1, 2, -1}, dtype);
    const Tensor m = Tensor::from(Shape{2}, {1, 2}, arithmetic_dtype(dtype)), a = empty_computed(x, Shape{3}),
                 b = Tensor::empty_like(a), total = Tensor::empty(Shape{}, Dtype::f64, Device::cpu);
    sum_rows("test", Weighted{}, out_sums(a, b), row_of(x), broadcast(w), per_row(m), row_index());
    CHECK(a.to_vector() == Numbers{-7, 4, -8});
    CHECK(b.to_vector() == Numbers{1, 1, 1});
    sum_elements("test", Square{}, out_sums<double>(total), row_of(x));
    CHECK(total.item() == 58);
    const Tensor shifted = Tensor::empty_like(x), product = Tensor::empty_like(x);
    each_element("test", Shifted{}, out_elements(shifted, product), row_of(x), row_of(x), broadcast<Computed>(m));
    CHECK(shifted.to_vector() == Numbers{2, 3, 7, -3, 1, 2});
    CHECK(product.to_vector() == Numbers{1, 4, 36, 16, 0, 1});
  }
}

TEST_CASE("operands that do not fit the first one have error messages") {
  const Tensor x = Tensor::zeros(Shape{2, 3}), other = Tensor::zeros(Shape{2, 4}), one = Tensor::zeros(Shape{1});
  const auto rows_of = [&](const Tensor& w, const Tensor& factor) {
    return expect_error([&] {
      each_row("test", Normal{}, row_of(x), row_index(), broadcast(x), broadcast<double>(Tensor()), per_row(factor),
               out_row(w), optional_out_row<bf16>(Tensor()), out_per_row(Tensor::zeros(Shape{2})));
    });
  };
  rows_of(other, Tensor::zeros(Shape{2})).names("test").names("operand").value("(2, 4)").offers("2 x 3 elements");
  rows_of(x, one).names("test").names("numbers").value("(1)").offers("per row").offers(2);
  rows_of(Tensor(), Tensor::zeros(Shape{2})).names("test").names("operand").value("undefined").offers("give all");
  const auto sums = [&] { sum_elements("test", Square{}, out_sums<double>(other), row_of(x)); };
  expect_error(sums).names("test").names("result").value("(2, 4) on cpu").offers("numel 1 on cpu");
}
