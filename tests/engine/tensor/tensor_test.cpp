#include "engine/tensor/tensor.h"

#include <doctest/doctest.h>

#include <sstream>

#include "engine/ops/ops.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using orrery::testing::random_tensor;

TEST_CASE("shapes: sizes, axes from the end, errors") {
  const Shape s{2, 3, 4};
  CHECK(s.numel() == 24);
  CHECK(s[-1] == 4);
  CHECK(s.rows() == 6);
  CHECK(s.with(1, 7) == Shape{2, 7, 4});
  CHECK(s.without(-1) == Shape{2, 3});
  CHECK(Shape{}.numel() == 1);
  CHECK_THROWS_WITH_AS(s.resolve(3), "shape: no axis 3 in (2, 3, 4)", Error);
  CHECK_THROWS_WITH_AS((Shape{1, 1, 1, 1, 1, 1, 1}), "shape: at most 6 axes", Error);
}

TEST_CASE("bf16 rounds to nearest, ties to even, and keeps NaN and infinity") {
  CHECK(float(bf16(1.0f)) == 1.0f);
  CHECK(float(bf16(1.00390625f)) == 1.0f);  // a tie goes to the even neighbour
  CHECK(float(bf16(1.01171875f)) == 1.015625f);
  CHECK(float(bf16(INFINITY)) == INFINITY);
  CHECK(std::isnan(float(bf16(NAN))));
}

TEST_CASE("a tensor's handle shares its numbers; clone does not") {
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

TEST_CASE("errors name the operation, the values and the way out") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(x.item(), "item: the tensor has 6 elements, shape (2, 3); take one with operator[] or sum()",
                       Error);
  CHECK_THROWS_WITH_AS(x.reshape({4}), "reshape: (2, 3) has 6 elements, (4) has 4", Error);
  CHECK_THROWS_WITH_AS(x.slice(1, 3), "slice: rows 1 to 3 of shape (2, 3)", Error);
  CHECK_THROWS_WITH_AS(x.data<double>(), "tensor: holds f32, asked for f64; convert with .to(Dtype::f64)", Error);
  CHECK_THROWS_WITH_AS(x + x.to(Dtype::f64), "add: dtypes differ: f32 and f64; convert one with .to(Dtype::f32)",
                       Error);
  CHECK_THROWS_WITH_AS(Tensor().shape(), "tensor: undefined; it was never given a value", Error);
  CHECK_THROWS_WITH_AS(Tensor::from({2}, {1}), "from: 1 values for shape (2)", Error);
#if !defined(ORRERY_CUDA) && !defined(EMULATE_CUDA)
  CHECK_THROWS_WITH_AS(x.to(Device::cuda), "allocate: built without CUDA (configure with -DORRERY_CUDA=ON)", Error);
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
  const int64_t before = memory_use(Device::cpu).held;
  {
    const Tensor x = Tensor::zeros({1 << 20});
    CHECK(memory_use(Device::cpu).held - before >= 1 << 22);
    CHECK(memory_use(Device::cpu).held - before <= (1 << 22) * 9 / 8);
  }
  CHECK(memory_use(Device::cpu).held == before);
  CHECK(memory_use(Device::cpu).peak - before >= 1 << 22);
  release_cached(Device::cpu);
  set_memory_limit(Device::cpu, before + (1 << 20));
  CHECK_THROWS_AS(Tensor::zeros({1 << 20}), Error);
  try {
    Tensor::zeros({1 << 20});
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("allocate: out of memory on cpu: asked for 4194304 bytes") == 0);
    CHECK(std::string(error.what()).find("use a smaller batch or context") != std::string::npos);
  }
  set_memory_limit(Device::cpu, 0);
  release_cached(Device::cpu);
  CHECK(memory_use(Device::cpu).cached == 0);
}
