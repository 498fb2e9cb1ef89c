#include "engine/tensor/tensor.h"

#include <doctest/doctest.h>

#include <sstream>

#include "engine/ops/ops.h"
#include "engine/tensor/staging.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using orrery::testing::expect_error;
using orrery::testing::random_tensor;

TEST_CASE("shapes: sizes, axes from the end, errors") {
  const Shape s{2, 3, 4};
  CHECK(s.numel() == 24);
  CHECK(s[-1] == 4);
  CHECK(s.rows() == 6);
  CHECK(s.with(1, 7) == Shape{2, 7, 4});
  CHECK(s.without(-1) == Shape{2, 3});
  CHECK(Shape{}.numel() == 1);
  expect_error([&] { s.resolve(3); }).names("shape").value("axis 3").names("(2, 3, 4)").offers("-3 to 2");
  expect_error([] { Shape{1, 1, 1, 1, 1, 1, 1}; }).names("shape").offers(6);
}

TEST_CASE("bf16 rounds to nearest, ties to even, and keeps NaN and infinity") {
  CHECK(float(bf16(1.0f)) == 1.0f);
  CHECK(float(bf16(1.00390625f)) == 1.0f);  // a tie rounds to even
  CHECK(float(bf16(1.01171875f)) == 1.015625f);
  CHECK(float(bf16(INFINITY)) == INFINITY);
  CHECK(std::isnan(float(bf16(NAN))));
}

TEST_CASE("a copied tensor handle shares its numbers; clone does not") {
  const Tensor x = Tensor::from({2, 2}, {1, 2, 3, 4}), same = x, copy = x.clone();
  x.mutable_data<float>()[0] = 9;
  CHECK(same.to_vector() == std::vector<double>{9, 2, 3, 4});
  CHECK(copy.to_vector() == std::vector<double>{1, 2, 3, 4});
  CHECK(x.reshape({4}).raw() == x.raw());
  CHECK(x.slice(1, 2).to_vector() == std::vector<double>{3, 4});
  CHECK(x[1].shape() == Shape{2});
}

TEST_CASE("conversions between dtypes") {
  const Tensor x = Tensor::from({3}, {1.5, -2.25, 3}, Dtype::f64);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64})
    CHECK(x.to(dtype).to_vector() == std::vector<double>{1.5, -2.25, 3});
  CHECK(x.to(Dtype::i32).to_vector() == std::vector<double>{1, -2, 3});
}

TEST_CASE("errors name the operation, the values and a way out") {
  const Tensor x = Tensor::zeros({2, 3});
  expect_error([&] { x.item(); }).names("item").value(6).value("(2, 3)").offers("operator[]").offers("sum()");
  expect_error([&] { x.reshape({4}); }).names("reshape").value("(2, 3)").value(6).value("(4)").value(4);
  expect_error([&] { x.slice(1, 3); }).names("slice").value("1 to 3").value("(2, 3)").offers("end <= size");
  expect_error([] { Tensor::zeros(Shape{}).slice(0, 0); }).names("slice").value("0 to 0").value("()");
  expect_error([&] { x.data<double>(); }).names("tensor").value("f32").value("f64").offers(".to(Dtype::f64)");
  expect_error([&] { x + x.to(Dtype::f64); }).names("add").value("f32").value("f64").offers(".to(Dtype::f32)");
  expect_error([] { Tensor().shape(); }).names("tensor").value("undefined");
  expect_error([] { Tensor::from({2}, {1}); }).names("from").value(1).offers("(2)");
  expect_error([] { Tensor::from(Shape{2}, std::vector<int32_t>{1}); }).names("from").value(1).offers("(2)");
  expect_error([&] { x.set_grad(Tensor::zeros({3, 2})); }).names("set_grad").value("(3, 2)").offers("(2, 3)");
  const auto of_indices = [] { Tensor::from(Shape{1}, std::vector<int32_t>{1}).set_requires_grad(); };
  expect_error(of_indices).names("set_requires_grad").value("i32").offers(".to(Dtype::f32)");
  HostToDevice sent(x);
  expect_error([&] { sent.begin<double>(); }).names("host to device").value("f64").value("f32").offers("equal");
  DeviceToHost copies(x);
  for (int i = 0; i < 4; ++i) copies.fetch();
  for (const size_t ticket : {0u, 1u, 5u})
    expect_error([&] { copies.read<float>(ticket); }).names("device to host").value(ticket).value(4).offers("latest 3");
#if !defined(ORRERY_CUDA) && !defined(EMULATE_CUDA)
  expect_error([&] { x.to(Device::cuda); }).names("allocate").value("CUDA").offers("-DORRERY_CUDA=ON");
#endif
}

TEST_CASE("printing shows shape, dtype and the outer numbers") {
  std::ostringstream out;
  out << Tensor::from({2, 2}, {1, 2, 3, 4.5}) << "\n" << Tensor::full({10}, 1);
  CHECK(out.str() == "f32(2, 2)\n[[1, 2],\n [3, 4.5]]\nf32(10) [1, 1, 1, ..., 1, 1, 1]");
}

TEST_CASE("the allocator reuses blocks, counts them and reports out of memory with sizes") {
  const void* first = Tensor::zeros({1000}).raw();
  CHECK(Tensor::zeros({1000}).raw() == first);
  reset_peak(Device::cpu);
  const int64_t before = memory_use(Device::cpu).allocated;
  {
    const Tensor x = Tensor::zeros({1 << 20});
    CHECK(memory_use(Device::cpu).allocated - before >= 1 << 22);
    CHECK(memory_use(Device::cpu).allocated - before <= (1 << 22) * 9 / 8);
  }
  CHECK(memory_use(Device::cpu).allocated == before);
  CHECK(memory_use(Device::cpu).peak - before >= 1 << 22);
  release_cached(Device::cpu);
  set_memory_limit(Device::cpu, before + (1 << 20));
  const auto too_many = [] { Tensor::zeros({1 << 20}); };
  expect_error(too_many).names("memory").names("cpu").value("4194304 bytes").offers("batch").offers("context");
  set_memory_limit(Device::cpu, 0);
  release_cached(Device::cpu);
  CHECK(memory_use(Device::cpu).cached == 0);
}
