// The tensor-core instructions, on a GPU or its emulation, against a second description of their
// layouts: the strides of CuTe.
#include "engine/loops/loops.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cuda/matmul/tensor_core.cuh"
#include "cuda/matmul/warp_group.cuh"
#include "engine/math/approx_float.h"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

// The v-th value of lane (t0, t1) = (lane % 4, lane / 4) is this element of a column-major matrix.
HOST_DEVICE unsigned index_in_a(unsigned t0, unsigned t1, unsigned v) {  // 16 x 16
  return 32 * t0 + t1 + 16 * (v & 1u) + 8 * (v >> 1 & 1u) + 128 * (v >> 2);
}
HOST_DEVICE unsigned index_in_b(unsigned t0, unsigned t1, unsigned v) {  // 8 (n) x 16 (k)
  return 16 * t0 + t1 + 8 * (v & 1u) + 64 * (v >> 1);
}
HOST_DEVICE unsigned index_in_d(unsigned t0, unsigned t1, unsigned v) {  // 16 x 8
  return 32 * t0 + t1 + 16 * (v & 1u) + 8 * (v >> 1);
}

__global__ void mma_kernel(const bf16* a, const bf16* b, float* d) {
  const unsigned t0 = threadIdx.x % 4, t1 = threadIdx.x / 4;
  uint32_t of_a[4], of_b[2];
  cuda::wait_for_earlier();
  for (unsigned r = 0; r < 4; ++r)
    of_a[r] = a[index_in_a(t0, t1, 2 * r)].bits | uint32_t{a[index_in_a(t0, t1, 2 * r + 1)].bits} << 16;
  for (unsigned r = 0; r < 2; ++r)
    of_b[r] = b[index_in_b(t0, t1, 2 * r)].bits | uint32_t{b[index_in_b(t0, t1, 2 * r + 1)].bits} << 16;
  float sum[4];
  for (unsigned v = 0; v < 4; ++v) sum[v] = d[index_in_d(t0, t1, v)];
  cuda::mma_m16n8k16(sum, of_a, of_b);
  for (unsigned v = 0; v < 4; ++v) d[index_in_d(t0, t1, v)] = sum[v];
}
TEST_CASE("mma: the layouts multiply two matrices and add the product to a third") {
  if (no_gpu()) return;
  const std::vector<bf16> a = whole_numbers<bf16>(256, 1), b = whole_numbers<bf16>(128, 2);
  const std::vector<float> d = whole_numbers<float>(128, 3);
  in_every_order([&] {
    DeviceArray<bf16> on_a(Device::cuda, a), on_b(Device::cuda, b);
    DeviceArray<float> on_d(Device::cuda, d);
    cuda::launch({"mma", 1, 32}, mma_kernel, on_a.input(), on_b.input(), on_d.data());
    const std::vector<double> got = on_d.read();
    REQUIRE(got.size() == 128);
    for (size_t m = 0; m < 16; ++m)
      for (size_t n = 0; n < 8; ++n) {
        float sum = d[m + 16 * n];
        for (size_t k = 0; k < 16; ++k) sum += static_cast<float>(a[m + 16 * k]) * static_cast<float>(b[n + 8 * k]);
        CHECK(got[m + 16 * n] == sum);
      }
  });
}

template <float (*Instruction)(float)>
__global__ void __launch_bounds__(1024) number_kernel(const float* x, float* y) {
  cuda::wait_for_earlier();
  y[threadIdx.x] = Instruction(x[threadIdx.x]);
}
// The emulation uses the CPU's functions for a GPU's instructions: their errors are 2^-18. Values
// that are not normal, or the least normal one, may stay or become 0 (engine/math/approx_float.h).
#if defined(EMULATE_CUDA)
constexpr bool emulated = true;
#else
constexpr bool emulated = false;
#endif

template <float (*Instruction)(float)>
void check_instruction(const std::vector<float>& x, double error_on_gpu, double (*exact)(double)) {
  const double error = emulated ? 0x1p-18 : error_on_gpu, smallest = emulated ? 0x1.000002p-126 : 0x1p-126;
  DeviceArray<float> from(Device::cuda, x), to(Device::cuda, x.size());
  cuda::launch({"instruction", 1, static_cast<unsigned>(x.size())}, number_kernel<Instruction>, from.input(),
               to.data());
  const std::vector<double> got = to.read();
  REQUIRE(got.size() == x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i]);
    const double all = exact(static_cast<double>(x[i])), expected = std::fabs(all) < smallest ? 0 : all;
    if (std::isnan(x[i]))
      CHECK(std::isnan(got[i]));
    else if (std::isinf(expected) || (expected == 0 && !emulated))
      CHECK(got[i] == expected);
    else if (expected == 0)
      CHECK(std::abs(got[i]) < smallest);
    else
      CHECK(std::abs(got[i] - expected) <= error * std::fabs(expected));
  }
}
TEST_CASE("ex2 and rcp: relative errors of 2^-22 and 2^-23, zeros for subnormal numbers, and limits") {
  if (no_gpu()) return;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0, 1, -1, 127, -126, -127, -infinity, infinity, std::numeric_limits<float>::quiet_NaN()};
  for (int i = -250; i < 250; ++i) x.push_back(static_cast<float>(i) * 0.17f);
  check_instruction<scalar::exp2_approximate>(x, 0x1p-22, [](double at) { return std::exp2(at); });
  for (float& at : x) at = at == -127 ? -0x1p127f : at * 1e-3f;
  check_instruction<scalar::reciprocal_approximate>(x, 0x1p-23, [](double at) { return 1 / at; });
}

struct Matrices {
  alignas(16) uint16_t element[4][8][8];
};
// out[lane][form][matrix][half]: form 0 as stored, form 1 transposed
__global__ void load_kernel(int32_t* out) {
  Matrices& shared = cuda::shared_memory<Matrices>();
  const unsigned lane = threadIdx.x;
  cuda::wait_for_earlier();
  for (unsigned i = lane; i < 256; i += 32)
    shared.element[i / 64][i / 8 % 8][i % 8] = static_cast<uint16_t>(i / 64 * 100 + i / 8 % 8 * 10 + i % 8);
  __syncwarp();
  uint32_t plain[4], transposed[4];
  cuda::load_matrices<false>(plain, shared.element[lane / 8][lane % 8]);
  cuda::load_matrices<true>(transposed, shared.element[lane / 8][lane % 8]);
  for (unsigned m = 0; m < 4; ++m)
    for (unsigned half = 0; half < 2; ++half) {
      out[lane * 16 + m * 2 + half] = static_cast<int32_t>(plain[m] >> half * 16 & 0xffffu);
      out[lane * 16 + 8 + m * 2 + half] = static_cast<int32_t>(transposed[m] >> half * 16 & 0xffffu);
    }
}
TEST_CASE("ldmatrix: element (r, c) of a matrix arrives in lane 4 r + c / 2, of its transpose in lane 4 c + r / 2") {
  if (no_gpu()) return;
  in_every_order([] {
    DeviceArray<int32_t> out(Device::cuda, 32 * 16);
    cuda::launch({"load", 1, 32, sizeof(Matrices)}, load_kernel, out.data());
    const std::vector<double> got = out.read();
    REQUIRE(got.size() == 512);
    for (size_t m = 0; m < 4; ++m)
      for (size_t r = 0; r < 8; ++r)
        for (size_t c = 0; c < 8; ++c) {
          const auto expected = static_cast<double>(m * 100 + r * 10 + c);
          CHECK(got[(4 * r + c / 2) * 16 + m * 2 + c % 2] == expected);
          CHECK(got[(4 * c + r / 2) * 16 + 8 + m * 2 + r % 2] == expected);
        }
  });
}

// ---- products of warp groups

struct Lines {  // lines of 64 values of k
  alignas(1024) unsigned char a[64 * 128];
  alignas(1024) unsigned char b[256 * 128];
};
// Returns the byte offset of element (index, k), as in cuda/matmul/warp_group.cuh.
HOST_DEVICE int offset_in_lines(bool along_k, int index, int k) {
  const int line = along_k ? index : index / 64 * 64 + k, element = along_k ? k : index % 64;
  return line * 128 + ((element / 8) ^ (line % 8)) * 16 + element % 8 * 2;
}
enum class ASource { along_k, along_rows, registers };
// d += a b, or d = a b without `accumulate`, for a (64, 64), b (64, N), both stored [mn][k], and d
// (64, N); in four products.
template <ASource A, bool BTransposed, int Eights>
__global__ void __launch_bounds__(128) group_product_kernel(const bf16* a, const bf16* b, float* d, bool accumulate) {
  constexpr int columns = Eights * 8, row_stride = 64 * 128;
  constexpr bool a_transposed = A == ASource::along_rows;
  Lines& shared = cuda::shared_memory<Lines>();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, first_row = thread / 32 * 16 + lane / 4;
  cuda::wait_for_earlier();
  for (int i = thread; i < 64 * 64; i += 128)
    *reinterpret_cast<bf16*>(shared.a + offset_in_lines(!a_transposed, i / 64, i % 64)) = a[i];
  for (int i = thread; i < columns * 64; i += 128)
    *reinterpret_cast<bf16*>(shared.b + offset_in_lines(!BTransposed, i / 64, i % 64)) = b[i];
  uint32_t registers[4][4];
  for (int sixteen = 0; sixteen < 4; ++sixteen)
    for (int r = 0; r < 4; ++r)
      std::memcpy(&registers[sixteen][r], &a[(first_row + r % 2 * 8) * 64 + sixteen * 16 + lane % 4 * 2 + r / 2 * 8],
                  4);
  cuda::shared_written();
  __syncthreads();
  const auto index = [&](int j, int v) { return (first_row + v / 2 * 8) * columns + j * 8 + lane % 4 * 2 + v % 2; };
  float sum[Eights][4];
  for (int j = 0; j < Eights; ++j)
    for (int v = 0; v < 4; ++v) sum[j][v] = d[index(j, v)];
  cuda::group_products_begin();
#pragma unroll
  for (unsigned sixteen = 0; sixteen < 4; ++sixteen) {
    const unsigned of_a = sixteen * (a_transposed ? 16 * 128 : 32), of_b = sixteen * (BTransposed ? 16 * 128 : 32);
    const auto b_lines = cuda::SharedOperand::at(cuda::shared_address(shared.b) + of_b, row_stride);
    const bool adds = accumulate || sixteen > 0;
    if constexpr (A == ASource::registers)
      cuda::group_product<BTransposed>(sum, registers[sixteen], b_lines, adds);
    else
      cuda::group_product<a_transposed, BTransposed>(
          sum, cuda::SharedOperand::at(cuda::shared_address(shared.a) + of_a, row_stride), b_lines, adds);
  }
  cuda::group_products_commit();
  cuda::group_products_wait<0>();
  cuda::fence_sums(sum);
  for (int j = 0; j < Eights; ++j)
    for (int v = 0; v < 4; ++v) d[index(j, v)] = sum[j][v];
}
template <ASource A, bool BTransposed, int Eights>
void check_group_product(bool accumulate) {
  constexpr size_t columns = Eights * 8;
  CAPTURE(static_cast<int>(A));
  CAPTURE(BTransposed);
  CAPTURE(columns);
  CAPTURE(accumulate);
  const std::vector<bf16> a = whole_numbers<bf16>(64 * 64, 1), b = whole_numbers<bf16>(int64_t{64} * columns, 2);
  const std::vector<float> d = whole_numbers<float>(int64_t{64} * columns, 3);
  DeviceArray<bf16> on_a(Device::cuda, a), on_b(Device::cuda, b);
  DeviceArray<float> on_d(Device::cuda, d);
  cuda::launch({"group product", 1, 128, sizeof(Lines)}, group_product_kernel<A, BTransposed, Eights>, on_a.input(),
               on_b.input(), on_d.data(), accumulate);
  const std::vector<double> got = on_d.read();
  REQUIRE(got.size() == d.size());
  int wrong = 0;
  for (size_t m = 0; m < 64; ++m)
    for (size_t n = 0; n < columns; ++n) {
      float sum = accumulate ? d[m * columns + n] : 0;
      for (size_t k = 0; k < 64; ++k) sum += static_cast<float>(a[m * 64 + k]) * static_cast<float>(b[n * 64 + k]);
      wrong += got[m * columns + n] != sum;
    }
  CHECK(wrong == 0);
}
template <int Eights>
void check_group_products() {
  check_group_product<ASource::along_k, false, Eights>(true);
  check_group_product<ASource::along_rows, false, Eights>(true);
  check_group_product<ASource::registers, false, Eights>(false);
  if constexpr (Eights > 1) {
    check_group_product<ASource::along_k, true, Eights>(false);
    check_group_product<ASource::along_rows, true, Eights>(true);
    check_group_product<ASource::registers, true, Eights>(true);
  }
}
TEST_CASE("products of warp groups: operands along k, along the rows and in registers, every number of columns") {
  if (no_gpu() || !cuda::warp_groups()) return;
  check_group_products<1>();
  check_group_products<4>();
  check_group_products<8>();
  check_group_products<12>();
  check_group_products<20>();
  check_group_products<24>();
  check_group_products<32>();
  in_every_order([] { check_group_products<16>(); });
}

#if defined(EMULATE_CUDA)
__global__ void bad_load_kernel(const uint16_t* in, int index) {
  uint32_t matrix[4];
  const void* const row = in ? in : &cuda::shared_memory<Matrices>().element[0][0][0] + index;
  cuda::load_matrices<false>(matrix, row);
}
TEST_CASE("ldmatrix: addresses that a GPU does not accept are errors") {
  const auto load = [](const uint16_t* in, int index) {
    return [=] { cuda::launch({"load", 1, 32, sizeof(Matrices)}, bad_load_kernel, in, index); };
  };
  DeviceArray<int32_t> elsewhere(Device::cuda, 8);
  load(nullptr, 248)();
  expect_fault(load(nullptr, 4)).names("ldmatrix").value("address").offers(16).names("instructions_test.cpp:");
  for (const auto& outside : {load(nullptr, 256), load(reinterpret_cast<const uint16_t*>(elsewhere.input()), 0)})
    expect_fault(outside).names("ldmatrix").value("address").value("outside").offers("shared memory");
}
#endif

}  // namespace
}  // namespace orrery
