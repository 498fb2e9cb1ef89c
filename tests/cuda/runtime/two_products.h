// A kernel whose warp groups have different tasks, as those of products and attention: one copies
// tiles, one multiplies, one finishes the results and stores them. In the mutation test each
// barrier, arrival, wait and fence of this file is removed in turn.
//
//   z = round(a b^T + bias) v,  f = relu(z)      a (m, k), b (64, k), bias (64) in f32, v (64, 64), z and f (m, 64)
//
// A block computes tiles of 64 rows. A step of `a` and `b` is 64 of k.
#pragma once

#include "cuda/matmul/tile_copies.cuh"
#include "cuda/runtime/launch.cuh"

namespace orrery::two_products {

inline constexpr int stages = 2, side = 64, tile_bytes = side * 128, bias_bytes = side * 4;
struct Shared {
  alignas(1024) unsigned char a[stages][tile_bytes];
  alignas(1024) unsigned char b[stages][tile_bytes];
  alignas(1024) unsigned char v[tile_bytes];
  alignas(1024) unsigned char z[tile_bytes];
  alignas(1024) unsigned char f[tile_bytes];
  alignas(16) float bias[side];
  cuda::TransactionBarrier full[stages], empty[stages], v_full, taken;
};
struct Maps {
  cuda::TensorMap a, b, v, z, f;
};
enum : int { z_staged = 1, f_staged = 2 };  // named barriers

__device__ inline void copy_tiles(Shared& shared, const Maps& maps, const float* bias, int steps, int tiles) {
  shared.v_full.expect(tile_bytes + bias_bytes);
  cuda::tile_load(shared.v, maps.v, shared.v_full, {0, 0, 0, 0});
  cuda::bulk_load(shared.bias, bias, bias_bytes, shared.v_full);
  cuda::PipelineStage<stages> stage;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x))
    for (int step = 0; step < steps; ++step, stage.advance()) {
      shared.empty[stage.index].wait(stage.parity ^ 1);
      shared.full[stage.index].expect(2 * tile_bytes);
      cuda::tile_load(shared.a[stage.index], maps.a, shared.full[stage.index], {step * side, tile * side, 0, 0});
      cuda::tile_load(shared.b[stage.index], maps.b, shared.full[stage.index], {step * side, 0, 0, 0});
    }
  cuda::allow_next();
}

__device__ inline cuda::SharedOperand operand(const unsigned char* tile, int bytes) {
  return cuda::SharedOperand::at(cuda::shared_address(tile) + static_cast<unsigned>(bytes), tile_bytes);
}

__device__ inline void multiply(Shared& shared, int steps, int tiles) {
  const int thread = static_cast<int>(threadIdx.x) % cuda::group_threads, lane = thread % 32;
  const bool is_leader = thread == 0;
  cuda::PipelineStage<stages> stage;
  unsigned taken = 1;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    float s[side / 8][4], o[side / 8][4];
    uint32_t w[4][4];  // rounded s: A of the second product
    int last = 0;
    for (int step = 0; step < steps; ++step, stage.advance()) {
      shared.full[stage.index].wait(stage.parity);
      cuda::group_products_begin();
#pragma unroll
      for (int i = 0; i < 4; ++i)
        cuda::group_product<false, false>(s, operand(shared.a[stage.index], i * 32),
                                          operand(shared.b[stage.index], i * 32), step > 0 || i > 0);
      cuda::group_products_commit();
      cuda::group_products_wait<1>();  // the step before
      if (is_leader && step > 0) shared.empty[last].arrive();
      last = stage.index;
    }
    cuda::group_products_wait<0>();
    cuda::fence_sums(s);
    if (is_leader) shared.empty[last].arrive();
    if (tile == static_cast<int>(blockIdx.x)) shared.v_full.wait(0);
#pragma unroll
    for (int j = 0; j < side / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const add = &shared.bias[j * 8 + lane % 4 * 2];
        w[j / 2][j % 2 * 2 + half] = cuda::round_pair(s[j][2 * half] + add[0], s[j][2 * half + 1] + add[1]);
      }
    cuda::group_products_begin();
#pragma unroll
    for (int i = 0; i < 4; ++i) cuda::group_product<true>(o, w[i], operand(shared.v, i * 16 * 128), i > 0);
    cuda::group_products_commit();
    cuda::group_products_wait<0>();
    cuda::fence_sums(o);
    shared.taken.wait(taken);
    taken ^= 1;
    const int row = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t x[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) x[m] = cuda::round_pair(o[2 * i + m / 2][m % 2 * 2], o[2 * i + m / 2][m % 2 * 2 + 1]);
      cuda::store_matrices(shared.z + row * 128 + ((2 * i + lane / 16) ^ row % 8) * 16, x);
    }
    cuda::shared_written();
    cuda::named_arrive(z_staged, 256);
  }
}

__device__ inline void finish(Shared& shared, const Maps& maps, int tiles) {
  const int thread = static_cast<int>(threadIdx.x) % cuda::group_threads;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    cuda::named_sync(z_staged, 256);
    if (thread == 0) cuda::tile_store(maps.z, shared.z, {0, tile * side, 0, 0});
    for (int chunk = thread; chunk < tile_bytes / 16; chunk += cuda::group_threads) {
      uint32_t x[4];
      for (int i = 0; i < 4; ++i) {
        const uint32_t pair = reinterpret_cast<const uint32_t*>(shared.z)[chunk * 4 + i];
        x[i] = cuda::round_pair(fmaxf(cuda::lower_of_pair(pair), 0), fmaxf(cuda::upper_of_pair(pair), 0));
      }
      cuda::store_chunk(shared.f + chunk * 16, x);
    }
    cuda::shared_written();
    cuda::named_sync(f_staged, cuda::group_threads);
    if (thread == 0) {
      cuda::tile_store(maps.f, shared.f, {0, tile * side, 0, 0});
      cuda::tile_stores_commit();
      cuda::tile_stores_wait<0>();
      shared.taken.arrive();
    }
  }
}

// Three warp groups: of the first, one lane copies.
__global__ void __launch_bounds__(384, 1)
    kernel(const __grid_constant__ Maps maps, const float* bias, int steps, int tiles) {
  Shared& shared = cuda::shared_memory<Shared>();
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / cuda::group_threads, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      shared.full[s].init(1);
      shared.empty[s].init(1);
    }
    shared.v_full.init(1);
    shared.taken.init(1);
    cuda::barriers_initialized();
  }
  cuda::wait_for_earlier();
  __syncthreads();
  if (group == 0) {
    cuda::give_registers<40>();
    if (threadIdx.x < 32 && cuda::elected()) copy_tiles(shared, maps, bias, steps, tiles);
  } else if (group == 1) {
    cuda::take_registers<232>();
    multiply(shared, steps, tiles);
  } else {
    cuda::take_registers<232>();
    finish(shared, maps, tiles);
  }
}

}  // namespace orrery::two_products
