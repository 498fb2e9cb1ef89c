// Copies of tiles between device and shared memory by the hardware (PTX cp.async.bulk), of compute
// capability 9.0. One thread starts a copy; no thread computes its addresses. It first calls
// wait_for_earlier() (launch.cuh), because a copy may access device memory as soon as it starts. The
// emulation (tests/support/tile_copies.h) follows the PTX manual.
//
// A tile (tensor_map.h) is lines of 128 bytes in shared memory as in warp_group.cuh, in the order of dimensions 1, 2
// and 3; the first aligns to 1,024 bytes. `at`: coordinates in the tensor of its first element, which may be negative.
//   tile_load(to, map, barrier, at)     starts a copy to shared memory; elements outside the tensor become 0. The
//                                       barrier expects the bytes of the whole tile
//   bulk_load(to, from, bytes, barrier) the same for adjacent bytes; both addresses and `bytes` are multiples of 16
//   tile_store(map, from, at)           starts a copy to device memory; elements outside the tensor are not written
//   tile_stores_commit()                makes a group of the stores that this thread started since its last commit
//   tile_stores_wait<N>()               returns when at most N groups of this thread, the youngest, are not read. Until
//                                       then their source must not be written to; a thread waits for all before it ends
//
// Copies see writes of threads to shared memory only after shared_written(), called by the threads that wrote, and a
// barrier. These functions write for them, so that the emulation finds a missing shared_written():
//   store_matrices(row, x)              writes four 8 x 8 matrices of 16-bit elements, called by all 32 lanes of a warp
//                                       together. Lane 8 m + r gives the address of row r of matrix m, 16 aligned
//                                       bytes; x[m] has the elements that load_matrices would return
//   store_chunk(to, x)                  writes 16 aligned bytes
#pragma once

#include "cuda/matmul/arrivals.cuh"
#include "cuda/matmul/warp_group.cuh"
#include "cuda/runtime/tensor_map.h"

namespace orrery::cuda {

#if defined(__CUDACC__)

__device__ inline void tile_load(void* to, const TensorMap& map, TransactionBarrier& barrier, const int (&at)[4]) {
  ORRERY_90A(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
      : "memory");
}
__device__ inline void bulk_load(void* to, const void* from, int bytes, TransactionBarrier& barrier) {
  ORRERY_90A("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                 shared_address(to)),
             "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier))
             : "memory");
}
__device__ inline void tile_store(const TensorMap& map, const void* from, const int (&at)[4]) {
  ORRERY_90A("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(&map),
             "r"(shared_address(from)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
             : "memory");
}
__device__ inline void tile_stores_commit() { ORRERY_90A("cp.async.bulk.commit_group;" ::: "memory"); }
template <int InFlight>
__device__ void tile_stores_wait() {
  ORRERY_90A("cp.async.bulk.wait_group.read %0;" ::"n"(InFlight) : "memory");
}
__device__ inline void store_matrices(void* row, const uint32_t (&x)[4]) {
  ORRERY_90A("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)), "r"(x[0]),
             "r"(x[1]), "r"(x[2]), "r"(x[3])
             : "memory");
}
__device__ inline void store_chunk(void* to, const uint32_t (&x)[4]) {
  *static_cast<uint4*>(to) = uint4{x[0], x[1], x[2], x[3]};
}

#else

inline void tile_load(void* to, const TensorMap& map, TransactionBarrier& barrier, const int (&at)[4],
                      Site site = Site::current()) {
  cuda_on_cpu::load_tile(to, &map, &barrier, at, site);
}
inline void bulk_load(void* to, const void* from, int bytes, TransactionBarrier& barrier, Site site = Site::current()) {
  cuda_on_cpu::load_bulk(to, from, static_cast<unsigned>(bytes), &barrier, site);
}
inline void tile_store(const TensorMap& map, const void* from, const int (&at)[4], Site site = Site::current()) {
  cuda_on_cpu::tile_stores().start(&map, from, at, site);
}
inline void tile_stores_commit(Site site = Site::current()) { cuda_on_cpu::tile_stores().commit(site); }
template <int InFlight>
void tile_stores_wait(Site site = Site::current()) {
  cuda_on_cpu::tile_stores().wait(InFlight, site);
}
inline void store_matrices(void* row, const uint32_t (&x)[4], Site site = Site::current()) {
  cuda_on_cpu::check_matrix_row("stmatrix", row, site);
  cuda_on_cpu::StoreMatrix mine{x, {}};
  cuda_on_cpu::warp_operation(~0u, cuda_on_cpu::store_matrix, &mine, site);
  cuda_on_cpu::hidden_writes().write(row);
  std::memcpy(row, mine.row, 16);  // here, so that sanitizers attribute the write to this call
}
inline void store_chunk(void* to, const uint32_t (&x)[4]) {
  cuda_on_cpu::hidden_writes().write(to);
  std::memcpy(to, x, 16);
}

#endif

}  // namespace orrery::cuda
