#include "engine/autograd/autograd.h"

#include <doctest/doctest.h>

#include "engine/autograd/recompute.h"
#include "engine/ops/ops.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

Tensor leaf(const Shape& shape, int seed) { return random_tensor(shape, seed).set_requires_grad(); }

struct NoBackward {
  static constexpr const char* name = "no_backward";
  Tensor forward(Saved&, const Tensor& x) const { return x.clone(); }
};
struct ReturnsInput {
  static constexpr const char* name = "returns_input";
  Tensor forward(Saved&, const Tensor& x) const { return x; }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {dy}; }
};
struct Halves {  // two outputs: x / 2 and 3 x
  static constexpr const char* name = "halves";
  std::array<Tensor, 2> forward(Saved&, const Tensor& x) const { return {scale(x, 0.5), scale(x, 3)}; }
  Gradients<1> backward(const Saved&, const std::array<Tensor, 2>& dy) const {
    if (!dy[0] || !dy[1]) return {dy[0] ? scale(dy[0], 0.5) : scale(dy[1], 3)};
    return {scale(dy[0], 0.5) + scale(dy[1], 3)};
  }
};
struct TakesOver {  // writes its gradient over the saved tensor if it may
  static constexpr const char* name = "takes_over";
  static inline const void* written = nullptr;
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.save(x);
    return sum(x);
  }
  Gradients<1> backward(const Saved& saved, const Tensor&) const {
    const Tensor dx = saved.take(0);
    written = dx.raw();
    dx.copy_from(Tensor::full(dx.shape(), 1, dx.dtype()));
    return {dx};
  }
};

}  // namespace

TEST_CASE("gradients of a small expression, used several times") {
  const Tensor x = leaf({3}, 1), y = leaf({3}, 2);
  const Tensor z = x * y + x;
  backward(z * z, Tensor::full({3}, 1, Dtype::f64));
  for (int i = 0; i < 3; ++i) {
    const double a = x.to_vector()[i], b = y.to_vector()[i], w = a * b + a;
    CHECK(x.grad().to_vector()[i] == doctest::Approx(2 * w * (b + 1)));
    CHECK(y.grad().to_vector()[i] == doctest::Approx(2 * w * a));
  }
}

TEST_CASE("gradients accumulate over calls of backward") {
  const Tensor x = leaf({2}, 1);
  sum(x * 3.0).backward();
  sum(x * 4.0).backward();
  CHECK(x.grad().to_vector() == std::vector<double>{7, 7});
  x.zero_grad();
  CHECK(!x.grad());
}

TEST_CASE("a shared gradient is not overwritten: both inputs of an addition have separate gradients") {
  const Tensor x = leaf({2}, 1), y = leaf({2}, 2);
  sum(x + y).backward();
  sum(x * 5.0).backward();
  CHECK(x.grad().to_vector() == std::vector<double>{6, 6});
  CHECK(y.grad().to_vector() == std::vector<double>{1, 1});
}

TEST_CASE("a gradient with a fixed buffer is written there; the first write replaces the old content") {
  const Tensor x = leaf({2}, 1), home = Tensor::full({2}, 99, Dtype::f64);
  x.impl()->gradient = home;
  x.impl()->has_fixed_gradient = true;
  x.zero_grad();
  sum(x * 3.0).backward();
  CHECK(home.to_vector() == std::vector<double>{3, 3});
  sum(x * 4.0).backward();
  CHECK(home.to_vector() == std::vector<double>{7, 7});
  x.zero_grad();
  CHECK(x.grad().to_vector() == std::vector<double>{0, 0});
}

TEST_CASE("several outputs; an unused one has no gradient") {
  const Tensor x = leaf({2}, 1);
  const auto both = record(Halves{}, x);
  sum(both[0] + both[1]).backward();
  CHECK(x.grad().to_vector() == std::vector<double>{3.5, 3.5});
  const Tensor y = leaf({2}, 1);
  sum(record(Halves{}, y)[1]).backward();
  CHECK(y.grad().to_vector() == std::vector<double>{3, 3});
}

TEST_CASE("a chain of 200,000 additions is recorded, differentiated and freed") {
  const Tensor x = leaf({1}, 1);
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = y + x;
  y.backward();
  CHECK(x.grad().item() == 200001);
  Tensor z = x;
  for (int i = 0; i < 200000; ++i) z = z + 1.0;  // freed without backward
}

TEST_CASE("an operation without a backward throws when recorded, naming itself") {
  const Tensor x = leaf({2}, 1);
  expect_error([&] { record(NoBackward{}, x); }).names("no_backward").offers("detach()").offers("NoGrad");
  const NoGrad guard;
  CHECK(record(NoBackward{}, x).to_vector() == x.to_vector());
}

TEST_CASE("misuse has error messages") {
  const Tensor x = leaf({2}, 1);
  expect_error([&] { record(ReturnsInput{}, x); }).names("returns_input").value("input").offers("x.detach()");
  const Tensor y = sum(exp(x));
  y.backward();
  expect_error([&] { y.backward(); }).names("backward").names("sum").offers("forward");
  const Tensor kept = x.detach().clone(), w = leaf({2}, 3), z = sum(w * kept);
  kept.mutable_data<double>()[0] = 5;
  expect_error([&] { z.backward(); }).names("backward").names("multiply").value("(2)").offers("clone()");
  expect_error([&] { exp(x).backward(); }).names("backward").value("2 elements").offers("backward(y, dy)");
  expect_error([&] { backward(exp(x), Tensor::zeros({3})); }).names("backward").value("(3)").offers("(2)");
  expect_error([&] { sum(x.detach()).backward(); }).names("backward").names("tensor").value("gradient");
  expect_error([&] { exp(x).set_requires_grad(); }).names("set_requires_grad").value("operation").offers("detach()");
}

TEST_CASE("backward may overwrite a saved value that has no other owner") {
  const Tensor x = leaf({4}, 1);
  const Tensor kept_elsewhere = exp(x);
  record(TakesOver{}, kept_elsewhere).backward();
  CHECK(TakesOver::written != kept_elsewhere.raw());
  const void* buffer = nullptr;
  const Tensor loss = [&] {
    const Tensor temporary = x + 1.0;
    buffer = temporary.raw();
    return record(TakesOver{}, temporary);
  }();
  loss.backward();
  CHECK(TakesOver::written == buffer);
}

TEST_CASE("recompute repeats the forward instead of saving its tensors, with equal gradients, also of parameters") {
  const Tensor x = leaf({3}, 1), w = leaf({3}, 2);
  const auto f = [&](const Tensor& t) { return exp(t * w) * t; };
  sum(f(x)).backward();
  const Tensor dx = x.grad().clone(), dw = w.grad().clone();
  x.zero_grad(), w.zero_grad();
  sum(recompute(f, x)).backward();
  CHECK(largest_difference(x.grad(), dx) == 0);
  CHECK(largest_difference(w.grad(), dw) == 0);
  w.zero_grad();
  sum(recompute(f, x.detach())).backward();  // only the parameter inside needs a gradient
  CHECK(largest_difference(w.grad(), dw) == 0);
}

TEST_CASE("nothing is recorded under NoGrad") {
  const Tensor x = leaf({2}, 1);
  const NoGrad guard;
  CHECK(!exp(x).requires_grad());
}
