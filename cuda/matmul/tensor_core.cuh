// PTX instructions without a CUDA C++ function, for sm_80 and later; scalar ones are in
// engine/math. The emulation follows their descriptions in the PTX manual.
//
// Asynchronous copies from global to shared memory, started by each thread separately:
//   cp_async<Bytes>(to, from, valid)   starts one of 4, 8 or 16 bytes, to which both addresses are aligned.  The first
//                                      `valid` bytes are copied, the others become zero; with valid = 0 none is read.
//                                      Without `valid` all are copied
//   cp_async_commit()                  makes a group of the copies that were started since the last commit
//   cp_async_wait<N>()                 returns when at most N groups, the youngest, have not arrived.  Copies of
//                                      other threads are visible after their wait and a barrier
//
// Tensor cores, called by all 32 lanes of a warp together:
//   mma_m16n8k16(d, a, b, c)           d = c + a b, or without c d += a b, for A (16, 16), B (16, 8) of bf16 and C, D
//                                      (16, 8) of f32.  With group = lane / 4 and pair = lane % 4 * 2:
//                                        a[r] holds A[group + r % 2 * 8][pair + r / 2 * 8], in its lower half, and the
//                                        element on its right,
//                                        b[r] holds B[pair + r * 8][group] and the element below it,
//                                        d[2 h], d[2 h + 1] are D[group + h * 8][pair] and the element on its right, as
//                                      c's are of C
//   load_matrices<Transposed>(x, row)  reads four 8 x 8 matrices of 16-bit elements from shared memory.  Lane 8 m + r
//                                      gives the address of row r of matrix m, 16 aligned bytes.  x[m] then holds
//                                      elements [lane / 4][pair] and [lane / 4][pair + 1] of matrix m, or of its
//                                      transpose
//
// Halves of a register:
//   round_pair(lower, upper)           two floats as bf16, rounded to the nearest, ties to even
//   round_positive_pair(lower, upper)  max(x, 0) of each as bf16; NaN for NaN
//   lower_of_pair(x), upper_of_pair(x) their values
//
// For the compiler:
//   in_register(x)                     returns x and hides its computation from the compiler, which might otherwise
//                                      repeat it in each iteration of a loop
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "engine/types/dtype.h"

namespace orrery::cuda {

#if defined(__CUDACC__)

__device__ inline unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

template <int Bytes>
__device__ void cp_async(void* to, const void* from, int valid) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  const auto shared = shared_address(to);
  const auto global = __cvta_generic_to_global(from);
  if constexpr (Bytes == 16)  // .cg bypasses the L1 cache
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(Bytes), "r"(valid)
                 : "memory");
}
template <int Bytes>
__device__ void cp_async(void* to, const void* from) {
  static_assert(Bytes == 16);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int InFlight>
__device__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(InFlight) : "memory");
}

__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t* b, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t* b) {
  mma_m16n8k16(d, a, b, d);
}
template <bool Transposed>
__device__ void load_matrices(uint32_t (&x)[4], const void* row) {
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline uint32_t round_pair(float lower, float upper) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
  return pair;
}

__device__ inline uint32_t round_positive_pair(float lower, float upper) {
  uint32_t pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
  return pair;
}

__device__ inline int in_register(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
template <class T>
__device__ T* in_register(T* x) {
  asm volatile("" : "+l"(x));
  return x;
}

#else

using Site = cuda_on_cpu::Site;

template <int Bytes>
void cp_async(void* to, const void* from, int valid, Site site = Site::current()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  cuda_on_cpu::copies().start(to, from, Bytes, static_cast<unsigned>(valid), site);
}
template <int Bytes>
void cp_async(void* to, const void* from, Site site = Site::current()) {
  cp_async<Bytes>(to, from, Bytes, site);
}
inline void cp_async_commit() { cuda_on_cpu::copies().commit(); }
template <int InFlight>
void cp_async_wait() {
  cuda_on_cpu::copies().wait(InFlight);
}

inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t* b, Site site = Site::current()) {
  cuda_on_cpu::Mma mine{d, a, b};
  cuda_on_cpu::warp_operation(~0u, cuda_on_cpu::mma, &mine, site);
}
inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t* b, const float (&c)[4],
                         Site site = Site::current()) {
  std::memcpy(d, c, sizeof d);
  mma_m16n8k16(d, a, b, site);
}
template <bool Transposed>
void load_matrices(uint32_t (&x)[4], const void* row, Site site = Site::current()) {
  cuda_on_cpu::check_matrix_row("ldmatrix", row, site);
  unsigned char bytes[16];  // read here, so that sanitizers attribute the read to this call
  std::memcpy(bytes, row, 16);
  cuda_on_cpu::LoadMatrix mine{bytes, x, 4, Transposed};
  cuda_on_cpu::warp_operation(~0u, cuda_on_cpu::load_matrix, &mine, site);
}

inline uint32_t round_pair(float lower, float upper) {
  return bf16(lower).bits | static_cast<uint32_t>(bf16(upper).bits) << 16;
}
inline uint32_t round_positive_pair(float lower, float upper) {
  return round_pair(lower < 0 ? 0.f : lower, upper < 0 ? 0.f : upper);
}

template <class T>
T in_register(T x) {
  return x;
}

#endif

__device__ inline float lower_of_pair(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
__device__ inline float upper_of_pair(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

}  // namespace orrery::cuda
