// Products that apply an activation in registers, on a GPU or its emulation. They must equal the
// plain product with the host's activation bit by bit; whole numbers make all of it exact.
#include "engine/loops/loops.h"  // so that nvcc compiles this file

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/matmul/activation.cuh"
#include "engine/matmul/matmul.h"
#include "nn/formulas/activation.h"
#include "nn/formulas/epilogue.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/cuda/matmul/bent.h"

namespace orrery {
namespace {

using Numbers = std::vector<double>;

struct Form {
  int64_t m, n, k, batch = 1;
  bool bias = true;
  int64_t offset = 0;  // distance of both results from an aligned address
  int terms = 0;       // bf16 terms of an f32 element
};

template <class T>
void check_form(const Form& f) {
  CAPTURE(f.m);
  CAPTURE(f.n);
  CAPTURE(f.k);
  CAPTURE(f.offset);
  CAPTURE(f.terms);
  CAPTURE(sizeof(T));
  const int64_t size = f.batch * f.m * f.n;
  DeviceArray<T> a(Device::cuda, whole_numbers<T>(f.batch * f.m * f.k, 1)),
      b(Device::cuda, whole_numbers<T>(f.n * f.k, 2)), bias(Device::cuda, whole_numbers<T>(f.n, 3)),
      z(Device::cuda, whole_numbers<T>(size, 4)), c(Device::cuda, size + f.offset),
      second(Device::cuda, size + f.offset);
  cuda::Matmul<T> p{f.m, f.n, f.k, f.batch, {}, {}, {}, false, f.bias ? bias.input() : nullptr, nullptr};
  p.a = {a.input(), f.k, f.m * f.k, false};
  p.c[0] = {c.data() + f.offset, f.n};
  const auto results = [&](DeviceArray<T>& x) {
    Numbers all = x.read();
    REQUIRE(all.size() == static_cast<size_t>(size + f.offset));  // the guards are intact
    return Numbers(all.begin() + f.offset, all.end());
  };
  const auto product_alone = [&] {
    if constexpr (std::is_same_v<T, float>)
      cuda::multiply(p, f.terms);
    else
      cuda::multiply(p);
    return results(c);
  };
  const auto check_all = [&](const Numbers& kept, const Numbers& second_kept) {
    const Numbers found = results(c), found_second = results(second);
    size_t wrong = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      const auto rounded = [](double x) {
        return static_cast<double>(static_cast<Arithmetic<T>>(static_cast<T>(static_cast<Arithmetic<T>>(x))));
      };
      wrong += found[i] != rounded(kept[i]) || found_second[i] != rounded(second_kept[i]);
    }
    CHECK(wrong == 0);
  };

  p.b = {b.input(), f.k, 0, true};
  const Numbers before = product_alone();
  Numbers after = before;
  for (double& x : after) x = Bent{}.value(x);
  in_every_order([&] {
    cuda::multiply_with(p, f.terms, cuda::Activated<T, Bent>{{}, second.data() + f.offset, p.bias});
    check_all(before, after);
  });

  p.b = {b.input(), f.n, 0, false};
  p.bias = nullptr;
  Numbers derivatives = product_alone(), values = z.read();
  for (size_t i = 0; i < derivatives.size(); ++i)
    derivatives[i] *= Bent{}.derivative(values[i]), values[i] = Bent{}.value(values[i]);
  in_every_order([&] {
    cuda::multiply_with(p, f.terms, cuda::ActivatedBackward<T, Bent>{{}, second.data() + f.offset, z.input()});
    check_all(derivatives, values);
  });
}

template <class T>
void check_forms() {
  for (const int64_t offset : {0, 1}) {
    check_form<T>({.m = 1, .n = 1, .k = 1, .offset = offset});
    check_form<T>({.m = 5, .n = 7, .k = 9, .bias = false, .offset = offset});
    check_form<T>({.m = 130, .n = 72, .k = 40, .offset = offset});
    check_form<T>({.m = 65, .n = 131, .k = 33, .batch = 2, .offset = offset});
    check_form<T>({.m = 20, .n = 36, .k = 1024, .offset = offset});  // split K
  }
  check_form<T>({.m = 3, .n = 5, .k = 0});
  check_form<T>({.m = 0, .n = 5, .k = 3});
}

TEST_CASE("products with an activation: values next to C and derivatives equal those of the product alone") {
  if (no_gpu()) return;
  check_forms<float>();
  check_forms<double>();
  check_forms<bf16>();
}
TEST_CASE("products with an activation: large tiles, and f32 elements split into bf16 terms") {
  if (no_gpu()) return;
  check_form<float>({.m = 128, .n = 128, .k = 16, .batch = 128});
  if (!thread_sanitizer) check_form<float>({.m = 130, .n = 68, .k = 19, .batch = 64, .offset = 1});
  for (const int terms : {1, 2, 3})
    for (const int64_t k : {40, 1024}) check_form<float>({.m = 37, .n = 68, .k = k, .terms = terms});
}

// Returns the error of a bf16 result in units in the last place of max(|exact|, floor).
double error_in_ulps(double result, double exact, double floor) {
  int exponent = 0;
  std::frexp(std::max(std::fabs(exact), floor), &exponent);
  const double error = std::fabs(result - exact) / std::ldexp(1.0, exponent - 8);
  return std::isnan(error) ? INFINITY : error;
}
TEST_CASE("products with an activation: values and derivatives of every bf16 number are rounded once") {
  if (no_gpu()) return;
  constexpr int64_t rows = 128, columns = 512;
  std::vector<bf16> numbers, unit(rows * rows), ones(rows * columns, bf16(1.0f));  // z = numbers, da = ones
  for (size_t i = 0; i < rows; ++i) unit[i * rows + i] = bf16(1.0f);
  for (uint32_t bits = 0; bits < rows * columns; ++bits) {
    const auto x = std::bit_cast<bf16>(static_cast<uint16_t>(bits));
    numbers.push_back(std::fabs(static_cast<float>(x)) <= 1e4f ? x : bf16());
  }
  DeviceArray<bf16> x(Device::cuda, numbers), one(Device::cuda, ones), a(Device::cuda, unit),
      c(Device::cuda, rows * columns), second(Device::cuda, rows * columns);
  cuda::Matmul<bf16> forward{rows, columns, rows, 1, {a.input(), rows, 0, false}, {}, {}, false, {}, {}};
  forward.c[0] = {c.data(), columns};
  cuda::Matmul<bf16> backward = forward;
  forward.b = {x.input(), rows, 0, true}, backward.b = {one.input(), columns, 0, false};
  for (const std::string& name : nn::activation_names()) {
    INFO(name);
    const nn::Activation f(name);
    const double floor = name == "tanhshrink" ? 1 : 0x1p-100;  // it cancels near zero, see its file
    const auto worst_of = [&](const Numbers& values, const Numbers& z, bool derivative) {
      double worst = 0;
      for (size_t i = 0; i < z.size(); ++i) {
        const double exact = derivative ? f.derivative(z[i]) : f.value(z[i]);
        if (std::fabs(exact) < 1e38) worst = std::max(worst, error_in_ulps(values[i], exact, derivative ? 1 : floor));
      }
      return worst;
    };
    const auto& role = f.role<nn::EpilogueRole<bf16>>();
    role.multiply(forward, 0, nullptr, second.data());
    CHECK(worst_of(second.read(), c.read(), false) <= 0.51);
    role.multiply_backward(backward, 0, x.input(), second.data());
    CHECK(worst_of(second.read(), x.read(), false) <= 0.51);
    CHECK(worst_of(c.read(), x.read(), true) <= 0.51);
  }
  for (const std::string& name : nn::learned_activation_names()) {  // against the tiles of a CPU
    INFO(name);
    const nn::Activation f(name);
    const std::vector<float> p(static_cast<size_t>(f.parameter_count()), 0.375f);  // exact in bf16
    DeviceArray<bf16> parameters(Device::cuda, std::vector<bf16>(p.size(), bf16(0.375f)));
    f.role<nn::EpilogueRole<bf16>>().multiply(forward, 0, parameters.input(), second.data());
    const Numbers values = second.read(), z = c.read();
    std::vector<float> exact(z.begin(), z.end());
    f.role<nn::TileRole<float>>().values(exact.data(), exact.data(), rows * columns, p.data());
    double worst = 0;
    for (size_t i = 0; i < z.size(); ++i)
      if (std::fabs(exact[i]) < 1e38f) worst = std::max(worst, error_in_ulps(values[i], exact[i], 0x1p-100));
    CHECK(worst <= 0.51);
  }
}

TEST_CASE("products with an activation: unsupported forms of products have an error message") {
  if (no_gpu()) return;
  DeviceArray<float> x(Device::cuda, 4);
  cuda::Matmul<float> p{2, 2, 1, 1, {x.input(), 1, 2, false}, {x.input(), 2, 2, false}, {}, false, nullptr, nullptr};
  p.c[0] = {x.data(), 2};
  const nn::Activation relu("relu");
  const auto other_form = [&] { relu.role<nn::EpilogueRole<float>>().multiply(p, 0, nullptr, x.data()); };
  expect_error(other_form).names("matmul").value("activation").offers("one output").offers("the result");

  struct OfHost final : EpilogueFunction<float> {  // must not be ignored silently
    void row(int, int64_t, int64_t, int64_t, float*) const override {}
  };
  const OfHost of_host;
  const auto for_host = [&] {
    multiply<float>(Device::cuda, {.m = 2, .n = 2, .k = 1}, x.input(), x.input(), {x.data()}, {.function = &of_host});
  };
  expect_error(for_host).names("epilogue").value("GPU").value("f32 to f32").offers("EpilogueFunction::on_gpu");
}

}  // namespace
}  // namespace orrery
