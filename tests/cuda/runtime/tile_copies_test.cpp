// Copies of tiles, on a GPU or its emulation, against plain loops, and the faults that the emulation
// finds.
#include "engine/loops/loops.h"  // so that nvcc compiles this file

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "cuda/matmul/tile_copies.cuh"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

enum class Mistake {
  none,
  not_shown,
  no_fence,
  not_stored,
  changed,
  few_bytes,
  many_bytes,
  not_waited,
  written,
  unaligned,
  outside,
  no_map,
  unaligned_bulk,
  overwritten
};
constexpr int lines = 16, tile_bytes = lines * 128, bulk_bytes = 48;
struct Shared {
  alignas(1024) unsigned char tile[tile_bytes];
  alignas(16) float bulk[bulk_bytes / 4];
  cuda::TransactionBarrier full;
};
struct Corner {
  int at[4];
};
// Loads a tile and adjacent numbers, copies the tile's memory to `raw`, negates it and stores it.
__global__ void __launch_bounds__(32)
    tile_kernel(const __grid_constant__ cuda::TensorMap from, const __grid_constant__ cuda::TensorMap to, Corner load,
                Corner store, const float* numbers, float* bulk, uint16_t* raw, Mistake mistake) {
  Shared& shared = cuda::shared_memory<Shared>();
  const int lane = static_cast<int>(threadIdx.x);
  const auto is = [&](Mistake one) { return mistake == one; };
  if (lane == 0) {
    shared.full.init(1);
    if (!is(Mistake::not_shown)) cuda::barriers_initialized();
  }
  cuda::wait_for_earlier();
  __syncthreads();
  if (lane == 0) {
    const int off = is(Mistake::unaligned) ? 64 : is(Mistake::outside) ? tile_bytes : 0;
    shared.full.expect(tile_bytes + bulk_bytes + (is(Mistake::few_bytes) ? -16 : is(Mistake::many_bytes) ? 16 : 0));
    if (is(Mistake::no_map))
      cuda::tile_load(shared.tile, cuda::TensorMap{}, shared.full, load.at);
    else
      cuda::tile_load(shared.tile + off, from, shared.full, load.at);
    cuda::bulk_load(shared.bulk, numbers + is(Mistake::unaligned_bulk), bulk_bytes, shared.full);
    if (is(Mistake::written)) shared.tile[5] = 0;
  }
  if (is(Mistake::not_waited)) return;
  shared.full.wait(0);
  for (int i = lane; i < tile_bytes / 2; i += 32) raw[i] = reinterpret_cast<const uint16_t*>(shared.tile)[i];
  if (lane < bulk_bytes / 4) bulk[lane] = shared.bulk[lane];
  __syncwarp();
  for (int chunk = lane; chunk < tile_bytes / 16; chunk += 32) {
    uint32_t x[4];
    std::memcpy(x, shared.tile + chunk * 16, 16);
    for (uint32_t& pair : x) pair ^= 0x80008000u;
    cuda::store_chunk(shared.tile + chunk * 16, x);
  }
  if (!is(Mistake::no_fence)) cuda::shared_written();
  __syncwarp();
  if (lane > 0) return;
  if (is(Mistake::overwritten))
    cuda::store_chunk(shared.tile, {}), cuda::tile_load(shared.tile, from, shared.full, load.at);
  cuda::tile_store(to, shared.tile, store.at);
  if (!is(Mistake::not_stored)) cuda::tile_stores_commit();
  if (is(Mistake::changed)) shared.tile[100] ^= 1;
  cuda::tile_stores_wait<0>();
}

constexpr int64_t size[4] = {88, 5, 3, 2}, stride[3] = {96, 96 * 5, 96 * 5 * 3}, count = 96 * 5 * 3 * 2;
int64_t index_of(int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
  const auto inside = [](int d, int64_t i) { return i >= 0 && i < size[d]; };
  if (!inside(0, i0) || !inside(1, i1) || !inside(2, i2) || !inside(3, i3)) return -1;
  return i0 + i1 * stride[0] + i2 * stride[1] + i3 * stride[2];
}
void copy_tile(Corner load, Corner store, Mistake mistake = Mistake::none) {
  const std::vector<bf16> in = whole_numbers<bf16>(count, 1);
  const std::vector<float> numbers = whole_numbers<float>(16, 2);
  DeviceArray<bf16> from(Device::cuda, in), to(Device::cuda, in);
  DeviceArray<float> on_numbers(Device::cuda, numbers), bulk(Device::cuda, bulk_bytes / 4);
  DeviceArray<uint16_t> raw(Device::cuda, tile_bytes / 2);
  const auto map = [&](const bf16* data) {
    return *cuda::tensor_map(
        {data, {size[0], size[1], size[2], size[3]}, {stride[0], stride[1], stride[2]}, {64, 4, 2, 2}});
  };
  cuda::launch({"tile", 1, 32, sizeof(Shared)}, tile_kernel, map(from.data()), map(to.data()), load, store,
               on_numbers.input(), bulk.data(), raw.data(), mistake);

  std::vector<double> expected_raw(tile_bytes / 2), expected = DeviceArray<bf16>(Device::cuda, in).read();
  for (int line = 0; line < lines; ++line)
    for (int e = 0; e < 64; ++e) {
      const auto index = [&](const Corner& c) {
        return index_of(c.at[0] + e, c.at[1] + line % 4, c.at[2] + line / 4 % 2, c.at[3] + line / 8);
      };
      const int64_t source = index(load), result = index(store);
      const bf16 value = source < 0 ? bf16(0.f) : in[static_cast<size_t>(source)];
      expected_raw[static_cast<size_t>(line * 64 + ((e / 8) ^ line % 8) * 8 + e % 8)] = value.bits;
      if (result >= 0) expected[static_cast<size_t>(result)] = -static_cast<double>(static_cast<float>(value));
    }
  CHECK(raw.read() == expected_raw);
  CHECK(to.read() == expected);
  CHECK(bulk.read() == std::vector<double>(numbers.begin(), numbers.begin() + bulk_bytes / 4));
}

TEST_CASE("tile copies: lines are swizzled, elements outside the tensor are zeros and are not stored") {
  if (no_gpu() || !cuda::warp_groups()) return;
  at_every_landing([] {
    copy_tile({{0, 0, 0, 0}}, {{0, 0, 0, 0}});
    copy_tile({{16, 1, 1, 0}}, {{24, 0, 1, 0}});
    copy_tile({{64, 3, 2, 1}}, {{-8, -2, -1, 1}});
    copy_tile({{-56, -3, 2, -1}}, {{72, 4, 2, 1}});
    copy_tile({{3, 5, 0, 0}}, {{5, 2, 0, 0}});
  });
}

struct Matrices {
  alignas(16) uint16_t element[4][8][8];
};
__global__ void store_kernel(uint16_t* out) {
  Matrices& shared = cuda::shared_memory<Matrices>();
  const unsigned lane = threadIdx.x;
  cuda::wait_for_earlier();
  uint32_t x[4];
  for (unsigned m = 0; m < 4; ++m) x[m] = (m * 64 + lane * 2) | (m * 64 + lane * 2 + 1) << 16;
  cuda::store_matrices(shared.element[lane / 8][lane % 8], x);
  __syncwarp();
  for (unsigned i = lane; i < 256; i += 32) out[i] = shared.element[i / 64][i / 8 % 8][i % 8];
}
TEST_CASE("stmatrix: lane 4 r + c / 2 gives element (r, c) of a matrix") {
  if (no_gpu() || !cuda::warp_groups()) return;
  std::vector<double> ascending;
  for (int i = 0; i < 256; ++i) ascending.push_back(i);
  in_every_order([&] {
    DeviceArray<uint16_t> out(Device::cuda, 256);
    cuda::launch({"store", 1, 32, sizeof(Matrices)}, store_kernel, out.data());
    CHECK(out.read() == ascending);
  });
}

#if defined(EMULATE_CUDA)
TEST_CASE("tile copies: missing fences and waits, wrong bytes and addresses are errors") {
  const auto fault = [](Mistake mistake) {
    return expect_fault([=] { copy_tile({{0, 0, 0, 0}}, {{0, 0, 0, 0}}, mistake); });
  };
  at_every_landing([&] {
    fault(Mistake::not_shown).names("transaction barrier").value("initialization").names("tile_copies_test.cpp:");
    fault(Mistake::no_fence).names("tile copy").offers("shared_written()").names("tile_copies_test.cpp:");
    fault(Mistake::not_stored).names("tile copy").value("started").names("tile_copies_test.cpp:");
    fault(Mistake::changed).names("tile copy").value("source changed").names("tile_copies_test.cpp:");
    fault(Mistake::few_bytes).names("transaction barrier").value("16 bytes more").names("tile_copies_test.cpp:");
    fault(Mistake::many_bytes).names("deadlock").value("lacks").value("16 bytes");
    fault(Mistake::unaligned).names("tile copy").offers("128 bytes").names("tile_copies_test.cpp:");
    fault(Mistake::outside).names("tile copy").value("outside").names("tile_copies_test.cpp:");
    fault(Mistake::no_map).names("tile copy").value("tensor map").names("tile_copies_test.cpp:");
    fault(Mistake::unaligned_bulk).names("bulk copy").offers("multiple of 16").names("tile_copies_test.cpp:");
    fault(Mistake::overwritten).names("tile copy").offers("shared_written()").names("tile_copies_test.cpp:");
  });
  fault(Mistake::not_waited).names("copy").value("lands").names("tile_copies_test.cpp:");
  fault(Mistake::written).names("copy").value("wrote").names("tile_copies_test.cpp:");
}
#endif

}  // namespace
}  // namespace orrery
