#include "engine/ops/ops.h"

#include <doctest/doctest.h>

#include "engine/checks/gradient_check.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;
using orrery::testing::whole_numbers;

namespace {

using Inputs = std::vector<Tensor>;
void check_case(const char* name, std::vector<Tensor> inputs, GradientCase::Function f) {
  GradientCase test;
  for (size_t i = 0; i < inputs.size(); ++i) test.inputs.push_back({"input " + std::to_string(i), inputs[i]});
  test.fast = std::move(f);
  const GradientReport report = check_gradients(test);
  INFO(std::string(name));
  for (const GradientRow& row : report.rows) {
    CAPTURE(row.input);
    CAPTURE(row.worst_element);
    CHECK(row.finite_difference_error <= 1e-9);
  }
}
struct Wrong {  // y = 2 x with a chosen derivative
  static constexpr const char* name = "wrong";
  double factor;
  Tensor forward(Saved&, const Tensor& x) const { return scale(x, 2); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {scale(dy, factor)}; }
};
Tensor positive(const Shape& shape, int seed) {
  return shift(exp(random_tensor(shape, seed)), 1);
}  // away from 0, where finite differences are inaccurate

}  // namespace

TEST_CASE("arithmetic broadcasts like NumPy, forward and backward") {
  const Tensor a = random_tensor({2, 3, 4}, 1);
  for (const Shape& other : {Shape{2, 3, 4}, Shape{4}, Shape{3, 1}, Shape{1}, Shape{2, 1, 4}, Shape{}}) {
    CAPTURE(other);
    const Tensor b = positive(other, 2);
    check_case("add", {a, b}, [](const Inputs& x) { return x[0] + x[1]; });
    check_case("subtract", {a, b}, [](const Inputs& x) { return x[1] - x[0]; });
    check_case("multiply", {a, b}, [](const Inputs& x) { return x[0] * x[1]; });
    check_case("divide", {a, b}, [](const Inputs& x) { return x[0] / x[1]; });
    check_case("maximum", {a, b}, [](const Inputs& x) { return maximum(x[0], x[1]); });
  }
  check_case("scale and shift", {a}, [](const Inputs& x) { return 3.0 * x[0] - 2.0; });
  CHECK((Tensor::from({2, 1}, {1, 2}) + Tensor::from({3}, {10, 20, 30})).to_vector() ==
        std::vector<double>{11, 21, 31, 12, 22, 32});
  const auto odd_shapes = [] { Tensor::zeros({2, 3}) + Tensor::zeros({2}); };
  expect_error(odd_shapes).names("add").value("(2, 3)").value("(2)").offers("equal or 1");
}

TEST_CASE("elementary functions") {
  const Tensor x = random_tensor({3, 5}, 1), p = positive({3, 5}, 2);
  check_case("exp", {x}, [](const Inputs& t) { return exp(t[0]); });
  check_case("log", {p}, [](const Inputs& t) { return log(t[0]); });
  check_case("sqrt", {p}, [](const Inputs& t) { return sqrt(t[0]); });
  check_case("tanh", {x}, [](const Inputs& t) { return tanh(t[0]); });
  check_case("erf", {x}, [](const Inputs& t) { return erf(t[0]); });
  check_case("reciprocal", {p}, [](const Inputs& t) { return reciprocal(t[0]); });
  check_case("abs", {p}, [](const Inputs& t) { return abs(-t[0]); });
  check_case("where", {x, p}, [](const Inputs& t) { return where(heaviside(t[0].detach()), t[0] * 2.0, t[1]); });
  CHECK(heaviside(Tensor::from({3}, {-1, 0, 2})).to_vector() == std::vector<double>{0, 0, 1});
  const Tensor integers = Tensor::zeros({3}, Dtype::i32);
  expect_error([&] { abs(integers); }).names("abs").value("i32").offers("Dtype::f32");
  expect_error([&] { heaviside(integers); }).names("heaviside").value("i32").offers("Dtype::f32");
}

TEST_CASE("where selects: a NaN in the other operand changes neither value nor gradient") {
  const Tensor x = Tensor::from({2}, {1, 2}).set_requires_grad();
  const Tensor y = where(Tensor::from({2}, {1, 0}), x * 3.0, Tensor::full({2}, NAN));
  CHECK(y.to_vector()[0] == 3);
  backward(y, Tensor::from({2}, {1, NAN}));
  CHECK(x.grad().to_vector()[0] == 3);
  CHECK(x.grad().to_vector()[1] == 0);
}

TEST_CASE("products: every transposition, batched, one side shared") {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      CAPTURE(ta);
      CAPTURE(tb);
      const Shape a2 = ta ? Shape{4, 3} : Shape{3, 4}, b2 = tb ? Shape{5, 4} : Shape{4, 5};
      const auto batched = [](const Shape& s) { return Shape{2, s[0], s[1]}; };
      const auto f = [=](const Inputs& x) { return matmul(x[0], x[1], {ta, tb}); };
      check_case("2 x 2", {random_tensor(a2, 1), random_tensor(b2, 2)}, f);
      check_case("3 x 3", {random_tensor(batched(a2), 1), random_tensor(batched(b2), 2)}, f);
      check_case("3 x 2", {random_tensor(batched(a2), 1), random_tensor(b2, 2)}, f);
      check_case("2 x 3", {random_tensor(a2, 1), random_tensor(batched(b2), 2)}, f);
    }
  CHECK(matmul(Tensor::from({2, 2}, {1, 2, 3, 4}), Tensor::from({2, 1}, {5, 6})).to_vector() ==
        std::vector<double>{17, 39});
  const auto transposed = [] { matmul(Tensor::zeros({4, 16, 64}), Tensor::zeros({32, 64})); };
  expect_error(transposed).names("matmul").value("(4, 16, 64)").value("(32, 64)").offers("transpose_b");
  const auto unequal = [] { matmul(Tensor::zeros({2, 3}), Tensor::zeros({4, 5})); };
  expect_error(unequal).names("matmul").value("(2, 3)").value("(4, 5)").offers("3 and 4 must be equal");
}

TEST_CASE("products in f32 and bf16 agree with f64 on whole numbers, for any tiles") {
  for (const int64_t n : {1, 7, 65, 300}) {
    const Tensor a = whole_numbers({n, 2 * n + 1}, 1), b = whole_numbers({2 * n + 1, n + 3}, 2), c = matmul(a, b);
    CHECK(largest_difference(matmul(a.to(Dtype::f32), b.to(Dtype::f32)), c.to(Dtype::f32)) == 0);
    CHECK(largest_difference(matmul(a.to(Dtype::bf16), b.to(Dtype::bf16)), c.to(Dtype::bf16)) == 0);
    double by_hand = 0;
    for (int64_t k = 0; k < 2 * n + 1; ++k) by_hand += a.to_vector()[k] * b.to_vector()[k * (n + 3)];
    CHECK(c.to_vector()[0] == by_hand);
  }
}

TEST_CASE("reductions along any axes") {
  const Tensor x = random_tensor({2, 3, 4, 5}, 1);
  for (const std::vector<int>& axes :
       {std::vector<int>{}, {0}, {1}, {3}, {0, 1}, {1, 3}, {0, 2}, {-1, -2}, {0, 1, 2, 3}})
    for (const bool keep : {false, true}) {
      check_case("sum", {x}, [&](const Inputs& t) { return sum(t[0], axes, keep); });
      check_case("mean", {x}, [&](const Inputs& t) { return mean(t[0], axes, keep); });
    }
  CHECK(sum(x, {1}).shape() == Shape{2, 4, 5});
  CHECK(sum(x, {1}, true).shape() == Shape{2, 1, 4, 5});
  for (const int axis : {0, 1, -1}) check_case("max", {x * 100.0}, [&](const Inputs& t) { return max(t[0], axis); });
  CHECK(max(Tensor::from({2, 3}, {1, 5, 5, 7, 2, 3}), 1).to_vector() == std::vector<double>{5, 7});
  CHECK(argmax(Tensor::from({2, 3}, {1, 5, 5, 7, 2, 3})).to_vector() == std::vector<double>{1, 0});
  const Tensor big = whole_numbers({100003}, 3, Dtype::f32);
  double exact = 0;
  for (const double v : big.to_vector()) exact += v;
  CHECK(sum(big).item() == exact);
}

TEST_CASE("layout") {
  const Tensor x = random_tensor({2, 3, 4}, 1), y = random_tensor({2, 5, 4}, 2);
  check_case("permute", {x}, [](const Inputs& t) { return permute(t[0], {2, 0, 1}); });
  check_case("transpose", {x}, [](const Inputs& t) { return transpose(t[0]); });
  check_case("slice", {x}, [](const Inputs& t) { return slice(t[0], 1, 1, 3); });
  check_case("leading slice", {x}, [](const Inputs& t) { return t[0].slice(1, 2); });
  check_case("reshape", {x}, [](const Inputs& t) { return t[0].reshape({6, 4}); });
  check_case("concatenate", {x, y}, [](const Inputs& t) { return concatenate({t[0], t[1]}, 1); });
  check_case("broadcast_to", {random_tensor({3, 1}, 3)}, [](const Inputs& t) { return broadcast_to(t[0], {2, 3, 4}); });
  CHECK(transpose(Tensor::from({2, 3}, {1, 2, 3, 4, 5, 6})).to_vector() == std::vector<double>{1, 4, 2, 5, 3, 6});
  const std::vector<Tensor> parts = split(x, 3, 1);
  CHECK(largest_difference(concatenate(parts, 1), x) == 0);
  for (const int count : {2, 0})
    expect_error([&] { split(x, count, 1); })
        .names("split")
        .names("axis 1")
        .value("(2, 3, 4)")
        .value(count)
        .offers("divisor of 3");
  const auto outside = [&] { slice(x, 1, 2, 5); };
  expect_error(outside).names("slice").value("2 to 5").names("axis 1").value("(2, 3, 4)").offers("end <= size");
  const auto backwards = [&] { slice(x, 1, 2, 1); };
  expect_error(backwards).names("slice").value("2 to 1").names("axis 1").value("(2, 3, 4)").offers("begin <= end");
  const auto narrower = [&] { broadcast_to(x, {2, 3, 1}); };
  expect_error(narrower).names("broadcast_to").value("(2, 3, 4)").value("(2, 3, 1)").offers("size 1");
  const auto other_shape = [&] { concatenate({x, random_tensor({2, 3, 5})}, 1); };
  expect_error(other_shape).names("concatenate").value("(2, 3, 4)").value("(2, 3, 5)").offers("axis 1");
}

TEST_CASE("indexing") {
  const std::vector<int32_t> rows = {2, 0, 2, 1, 2, 2};
  const Tensor at = Tensor::from({2, 3}, rows);
  check_case("index_select", {random_tensor({4, 3}, 1)}, [&](const Inputs& t) { return index_select(t[0], at); });
  check_case("index_add", {random_tensor({2, 3, 3}, 1)}, [&](const Inputs& t) { return index_add(t[0], at, 4); });
  check_case("gather_last", {random_tensor({2, 3, 3}, 1)}, [&](const Inputs& t) { return gather_last(t[0], at); });
  CHECK(one_hot(Tensor::from({2}, std::vector<int32_t>{1, 0}), 3).to_vector() == std::vector<double>{0, 1, 0, 1, 0, 0});
  const auto outside = [&] { index_select(Tensor::zeros({2, 3}), at); };
  expect_error(outside).names("index_select").value("index 2").names("position 0").offers("0 to 1");
  const auto of_number = [&] { gather_last(Tensor::zeros(Shape{}), at); };
  expect_error(of_number).names("gather_last").value("(2, 3)").value("()");
  const auto of_floats = [] { index_select(Tensor::zeros({2, 3}), Tensor::zeros({2})); };
  expect_error(of_floats).names("index_select").names("indices").offers("i32").value("f32");
  const auto of_cube = [&] { index_select(Tensor::zeros({4, 3, 2}), at); };
  expect_error(of_cube).names("index_select: the table").names("two axes").value("(4, 3, 2)");
  const auto narrow = [&] { add_rows_in_place(Tensor::zeros({4, 3}), Tensor::zeros({2, 3, 2}), at); };
  expect_error(narrow).names("index_add").value("(2, 3, 2)").offers("(2, 3, 3)");
  const auto unequal = [] { sum_of(Tensor::zeros({4, 3}), Tensor::zeros({3, 4})); };
  expect_error(unequal).names("sum_of").value("(4, 3)").value("(3, 4)").names("equal");
}

TEST_CASE("casts and moves convert the gradient back to the dtype and device of their input") {
  const Tensor dy = whole_numbers({2, 3}, 4);
  for (const Dtype before : {Dtype::f64, Dtype::f32, Dtype::bf16})
    for (const Dtype after : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      const Tensor x = whole_numbers({2, 3}, 3, before).set_requires_grad();
      backward(cast(x, after), dy.to(after));
      CHECK(x.grad().dtype() == before);
      CHECK(largest_difference(x.grad().to(Dtype::f64), dy) == 0);
    }
  const Tensor x = whole_numbers({2, 3}, 3).set_requires_grad();
  backward(orrery::move(x, Device::cpu), dy);
  CHECK(x.grad().device() == Device::cpu);
  CHECK(largest_difference(x.grad(), dy) == 0);
}

TEST_CASE("the gradient check finds wrong derivatives") {
  const Tensor x = random_tensor({3}, 1);
  const auto report = [&](double factor) {
    return check_gradients({{{"x", x}},
                            [=](const Inputs& t) { return record(Wrong{factor}, t[0]); },
                            [](const Inputs& t) { return t[0] * 2.0; }});
  };
  CHECK(report(2).passed);
  CHECK(!report(-2).passed);
  CHECK(!report(2 + 1e-6).passed);
  CHECK(!report(2 + 1e-10).passed);  // the reference detects an error below the accuracy of finite differences
  CHECK(!report(NAN).passed);
}
