// Offsets beyond 32 bits: rows are so far apart that they begin beyond element 2^31. The gaps are
// never touched and need no memory. Adjacent rows must give the same bits.
#include <doctest/doctest.h>

#include "engine/loops/loops.h"

#if defined(EMULATE_CUDA)

#include <algorithm>
#include <vector>

#include "cuda/attention/attention.h"
#include "cuda/matmul/matmul.h"
#include "engine/ops/ops.h"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

template <class T>
class Rows {  // rows of an array, `stride` elements apart
 public:
  Rows(const std::vector<T>& numbers, int64_t columns, int64_t stride)
      : columns_(columns), stride_(stride), count_(static_cast<int64_t>(numbers.size()) / columns) {
    cuda_on_cpu::options.memory = int64_t{15} << 30;
    data_ = static_cast<T*>(cuda::allocate(((count_ - 1) * stride_ + columns_) * int64_t{sizeof(T)}));
    REQUIRE(data_);
    for (int64_t row = 0; row < count_; ++row)
      cuda::copy(data_ + row * stride_, true, numbers.data() + row * columns_, false, bytes_of_row());
  }
  ~Rows() {
    cuda::free(data_);
    cuda_on_cpu::options = {};
  }
  Rows(const Rows&) = delete;
  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> numbers(static_cast<size_t>(count_ * columns_));
    for (int64_t row = 0; row < count_; ++row)
      cuda::copy(numbers.data() + row * columns_, false, data_ + row * stride_, true, bytes_of_row());
    return numbers;
  }

 private:
  int64_t bytes_of_row() const { return columns_ * int64_t{sizeof(T)}; }
  int64_t columns_, stride_, count_;
  T* data_ = nullptr;
};

// A (3, 24), its transpose, or B: the three stored rows of that operand are `stride` apart.
template <class T>
std::vector<double> product(int64_t stride, bool far_a, bool transposed, int terms) {
  constexpr int64_t rows = 3, columns = 24, other = 8;
  const Rows<T> far(whole_numbers<T>(rows * columns, 1), columns, stride);
  cuda::Matmul<T> p{};
  const int64_t k = far_a == transposed ? rows : columns, side = far_a == transposed ? columns : rows;
  DeviceArray<T> near(Device::cuda, whole_numbers<T>(k * other, 2)), c(Device::cuda, side * other);
  p.m = far_a ? side : other, p.n = far_a ? other : side, p.k = k, p.batch = 1;
  p.a = far_a ? cuda::Operand<T>{far.data(), stride, 0, transposed} : cuda::Operand<T>{near.input(), k, 0, false};
  p.b = far_a ? cuda::Operand<T>{near.input(), other, 0, false} : cuda::Operand<T>{far.data(), stride, 0, transposed};
  p.c[0] = {c.data(), p.n};
  if constexpr (std::is_same_v<T, float>)
    cuda::multiply(p, terms);
  else
    cuda::multiply(p);
  return c.read();
}

TEST_CASE("large offsets: products of operands whose rows begin beyond element 2^31") {
  if (address_sanitizer) return;             // its shadow of such an array needs memory
  constexpr int64_t far = int64_t{1} << 30;  // the third row is beyond 2^31
  for (const bool far_a : {true, false})
    for (const bool transposed : {true, false})
      for (const int64_t gap : {8, 1}) {  // rows that are aligned to 16 bytes, and others
        CAPTURE(far_a);
        CAPTURE(transposed);
        CAPTURE(gap);
        CHECK(product<bf16>(far + gap, far_a, transposed, 0) == product<bf16>(24, far_a, transposed, 0));
        for (const int terms : {0, 3})
          CHECK(product<float>(far + gap, far_a, transposed, terms) == product<float>(24, far_a, transposed, terms));
      }
}

// A token holds q, k, v, o, do, dq, dk and dv, with two heads each.
template <class T>
std::vector<T> attention(int64_t stride) {
  constexpr int64_t tokens = 6, heads = 2, size = 64, width = heads * size, arrays = 8;
  std::vector<T> numbers = whole_numbers<T>(tokens * arrays * width, 3);
  for (T& x : numbers) x = static_cast<T>(static_cast<Arithmetic<T>>(x) / 4);
  const Rows<T> all(numbers, arrays * width, stride);
  DeviceArray<float> log_sum(Device::cuda, heads * tokens);
  const auto array = [&](int64_t n) -> TensorView<float> {
    return {reinterpret_cast<float*>(all.data() + n * width), stride};
  };
  const auto input = [&](int64_t n) { return TensorView<const float>{array(n).data, stride}; };
  AttentionProblem<float> p;
  p.queries = p.keys = tokens, p.first = 0, p.batch = 1, p.query_heads = p.kv_heads = heads;
  p.head_size = p.value_size = size, p.is_bf16 = std::is_same_v<T, bf16>, p.scale = 0.125f;
  p.query = input(0), p.key = input(1), p.value = input(2), p.output = array(3), p.log_sum = log_sum.data();
  cuda::softmax_attention<float>().forward(p);
  p.output_gradient = input(4);
  p.gradients.query = array(5), p.gradients.key = array(6), p.gradients.value = array(7);
  cuda::softmax_attention<float>().backward(p);
  return all.read();
}

template <class T>
void check_far_attention() {
  constexpr int64_t near = 1024, far = (int64_t{1} << 29) + near;  // the fifth token is beyond 2^31
  const std::vector<T> side_by_side = attention<T>(near), apart = attention<T>(far);
  CHECK(std::equal(apart.begin(), apart.end(), side_by_side.begin(),
                   [](T a, T b) { return static_cast<Arithmetic<T>>(a) == static_cast<Arithmetic<T>>(b); }));
}
TEST_CASE("large offsets: attention to tokens that begin beyond element 2^31") {
  if (address_sanitizer) return;
  check_far_attention<float>();
  check_far_attention<bf16>();
}

TEST_CASE("large offsets: rows beyond element 2^31 are gathered and added to") {
  if (address_sanitizer) return;
  constexpr int64_t columns = 1024, rows = (int64_t{1} << 21) + 9;
  cuda_on_cpu::options.memory = int64_t{15} << 30;
  {
    const Tensor table = Tensor::empty({rows, columns}, Dtype::bf16, Device::cuda);
    const std::vector<int32_t> wanted{0, 1 << 21, static_cast<int32_t>(rows - 1)};
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Tensor row = Tensor::full({columns}, static_cast<double>(i + 1), Dtype::bf16, Device::cuda);
      table[wanted[i]].copy_from(row);
    }
    const Tensor indices = Tensor::from({3}, wanted).to(Device::cuda);
    for (const double times : {1.0, 2.0}) {
      const Tensor selected = index_select(table, indices);
      const std::vector<double> got = selected.to_vector();
      for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == times * static_cast<double>(i / columns + 1));
      add_rows_in_place(table, selected, indices);
    }
  }
  release_cached(Device::cuda);
  cuda_on_cpu::options = {};
}

}  // namespace
}  // namespace orrery

#endif
