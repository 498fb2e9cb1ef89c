// Warp group products (wgmma): instructions of compute capability 9.0 that multiply matrices in
// shared memory on all tensor cores of a multiprocessor at once. nvcc supports them only for
// architecture 90a, whose code runs on no other GPU; warp_groups() returns true if they are
// available. The emulation follows the PTX manual's description of wgmma.
//
// A warp group is 128 threads, four warps from a multiple of four on, which call these together:
//   group_product<ATransposed, BTransposed>(d, a, b, accumulate)
//                                      starts d += a b, or d = a b without `accumulate`, for A (64, 16), B (16, N) of
//                                      bf16 and N = 8, 32, 64, 96, 128, 160, 192 or 256. Warp w holds rows 16 w to
//                                      16 w + 15 of D, column by column of 8: d[j] as mma_m16n8k16's d for columns
//                                      8 j to 8 j + 7
//   group_product<BTransposed>(d, a, b, accumulate)
//                                      the same with A in registers: a warp's 16 rows as mma_m16n8k16's a, not written
//                                      to before the product is done
//   group_products_begin()             before the first product, and after other instructions accessed d or a of the
//                                      next products
//   group_products_commit()            makes a group of the products started since the last commit
//   group_products_wait<N>()           returns when at most N groups, the youngest, are not done.  Until then their d
//                                      must not be read, and their operands must not be written to
//   fence_sums(d)                      for the compiler: moves no access to d across it. After the wait for d's
//                                      products, and before group_products_begin() if other products are in flight
//   shared_written()                   after a thread's writes to shared memory, or its cp_async_wait if cp_async
//                                      wrote them, and before the barrier that precedes products or copies of tiles
//                                      (tile_copies.cuh) that access them
//   take_registers<N>()                gives each thread N registers, more than before, when other groups have given as
//                                      many. N is a multiple of 8 from 24 to 240; at first it is 65,536 by the threads
//                                      of the block, rounded down
//   give_registers<N>()                leaves each thread N registers, fewer than before
//
// Operands are lines of 128 bytes, eight chunks of 16 bytes; eight lines align to 1,024 bytes.
// Chunk c of line l is stored at c ^ l % 8 in its line, so simultaneous reads use different banks.
//   along k              a line is 64 of k for one mn (row of A, column of B): line = mn
//   along mn             a line is 64 of mn for one index k: line = k; the lines of the next 64 of mn begin
//                        `mn_stride` bytes later
// A SharedOperand begins at 16 of k: the next 16 are 2 chunks farther in the lines, or 16 lines.
#pragma once

#include "cuda/matmul/arrivals.cuh"
#include "cuda/runtime/launch.cuh"

namespace orrery::cuda {

inline constexpr int group_threads = 128, group_rows = 64, group_line = 128;

// The matrix descriptor of an operand: PTX ISA, "Matrix-descriptor format" of wgmma.
struct SharedOperand {
  uint64_t bits;
  // `first`: shared address of its first line, or of 16 of k in it
  static __device__ SharedOperand at(unsigned first, int mn_stride) {
    constexpr uint64_t eight_lines = 8 * group_line, lines_of_128_bytes = 1;
    return {uint64_t{(first & 0x3ffffu) >> 4} | static_cast<uint64_t>(mn_stride >> 4) << 16 | eight_lines >> 4 << 32 |
            lines_of_128_bytes << 62};
  }
  // The operand that begins `bytes` later. It takes fewer instructions than at(): the address does not carry.
  __device__ SharedOperand farther(int bytes) const {
    return {bits >> 32 << 32 | static_cast<uint32_t>(static_cast<uint32_t>(bits) + static_cast<uint32_t>(bytes >> 4))};
  }
};

#if defined(__CUDACC__)

// Returns true on the host if the GPU in use runs code for 90a, in a kernel if this is that code.
__host__ __device__ inline bool warp_groups() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  return true;
#elif defined(__CUDA_ARCH__)
  return false;
#else
  return device_properties().warp_groups;
#endif
}

// 16 registers each in the text of an instruction, and in its operands.
#define ORRERY_REGISTERS_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define ORRERY_REGISTERS_1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define ORRERY_REGISTERS_2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ORRERY_REGISTERS_3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define ORRERY_REGISTERS_4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define ORRERY_REGISTERS_5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define ORRERY_REGISTERS_6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define ORRERY_REGISTERS_7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define ORRERY_SUMS_8(d, j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define ORRERY_SUMS_16(d, j) ORRERY_SUMS_8(d, j), ORRERY_SUMS_8(d, j + 1)
#define ORRERY_SUMS_32(d, j) ORRERY_SUMS_16(d, j), ORRERY_SUMS_16(d, j + 2)
#define ORRERY_SUMS_64(d, j) ORRERY_SUMS_32(d, j), ORRERY_SUMS_32(d, j + 4)
#define ORRERY_SUMS_96(d, j) ORRERY_SUMS_64(d, j), ORRERY_SUMS_32(d, j + 8)
#define ORRERY_SUMS_128(d, j) ORRERY_SUMS_64(d, j), ORRERY_SUMS_64(d, j + 8)
#define ORRERY_SUMS_160(d, j) ORRERY_SUMS_128(d, j), ORRERY_SUMS_32(d, j + 16)
#define ORRERY_SUMS_192(d, j) ORRERY_SUMS_128(d, j), ORRERY_SUMS_64(d, j + 16)
#define ORRERY_SUMS_256(d, j) ORRERY_SUMS_128(d, j), ORRERY_SUMS_128(d, j + 16)

// Both products with this number of columns; r0 to r6: numbers of the operands after the sums.
#define ORRERY_GROUP_PRODUCT(columns, registers, sums, r0, r1, r2, r3, r4, r5, r6)                                \
  template <bool ATransposed, bool BTransposed>                                                                   \
  __device__ void group_product(float (&d)[columns / 8][4], SharedOperand a, SharedOperand b,                     \
                                bool accumulate = true) {                                                         \
    ORRERY_90A("{.reg .pred p; setp.ne.b32 p, %" #r2 ", 0; wgmma.mma_async.sync.aligned.m64n" #columns            \
               "k16.f32.bf16.bf16 {" registers "}, %" #r0 ", %" #r1 ", p, 1, 1, %" #r3 ", %" #r4 ";}"             \
               : sums                                                                                             \
               : "l"(a.bits), "l"(b.bits), "r"(int{accumulate}), "n"(int{ATransposed}), "n"(int{BTransposed}));   \
  }                                                                                                               \
  template <bool BTransposed>                                                                                     \
  __device__ void group_product(float (&d)[columns / 8][4], const uint32_t (&a)[4], SharedOperand b,              \
                                bool accumulate = true) {                                                         \
    ORRERY_90A("{.reg .pred p; setp.ne.b32 p, %" #r5 ", 0; wgmma.mma_async.sync.aligned.m64n" #columns            \
               "k16.f32.bf16.bf16 {" registers "}, {%" #r0 ",%" #r1 ",%" #r2 ",%" #r3 "}, %" #r4                  \
               ", p, 1, 1, %" #r6 ";}"                                                                            \
               : sums                                                                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(int{accumulate}),                   \
                 "n"(int{BTransposed}));                                                                          \
  }
#define ORRERY_REGISTERS_32 ORRERY_REGISTERS_0 "," ORRERY_REGISTERS_1
#define ORRERY_REGISTERS_64 ORRERY_REGISTERS_32 "," ORRERY_REGISTERS_2 "," ORRERY_REGISTERS_3
#define ORRERY_REGISTERS_96 ORRERY_REGISTERS_64 "," ORRERY_REGISTERS_4 "," ORRERY_REGISTERS_5
#define ORRERY_REGISTERS_128 ORRERY_REGISTERS_96 "," ORRERY_REGISTERS_6 "," ORRERY_REGISTERS_7
ORRERY_GROUP_PRODUCT(8, "%0,%1,%2,%3", ORRERY_SUMS_8(d, 0), 4, 5, 6, 7, 8, 9, 10)
ORRERY_GROUP_PRODUCT(32, ORRERY_REGISTERS_0, ORRERY_SUMS_32(d, 0), 16, 17, 18, 19, 20, 21, 22)
ORRERY_GROUP_PRODUCT(64, ORRERY_REGISTERS_32, ORRERY_SUMS_64(d, 0), 32, 33, 34, 35, 36, 37, 38)
ORRERY_GROUP_PRODUCT(96, ORRERY_REGISTERS_32 "," ORRERY_REGISTERS_2, ORRERY_SUMS_96(d, 0), 48, 49, 50, 51, 52, 53, 54)
ORRERY_GROUP_PRODUCT(128, ORRERY_REGISTERS_64, ORRERY_SUMS_128(d, 0), 64, 65, 66, 67, 68, 69, 70)
ORRERY_GROUP_PRODUCT(160, ORRERY_REGISTERS_64 "," ORRERY_REGISTERS_4, ORRERY_SUMS_160(d, 0), 80, 81, 82, 83, 84, 85, 86)
ORRERY_GROUP_PRODUCT(192, ORRERY_REGISTERS_96, ORRERY_SUMS_192(d, 0), 96, 97, 98, 99, 100, 101, 102)
ORRERY_GROUP_PRODUCT(256, ORRERY_REGISTERS_128, ORRERY_SUMS_256(d, 0), 128, 129, 130, 131, 132, 133, 134)

__device__ inline void group_products_begin() { ORRERY_90A("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void group_products_commit() { ORRERY_90A("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int InFlight>
__device__ void group_products_wait() {
  ORRERY_90A("wgmma.wait_group.sync.aligned %0;" ::"n"(InFlight) : "memory");
}
template <int Eights>
__device__ void fence_sums(float (&d)[Eights][4]) {
#pragma unroll
  for (int i = 0; i < 4 * Eights; ++i) asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}
template <int Registers>
__device__ void take_registers() {
  ORRERY_90A("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ void give_registers() {
  ORRERY_90A("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
__device__ inline void shared_written() { ORRERY_90A("fence.proxy.async.shared::cta;" ::: "memory"); }

#else

inline bool warp_groups() { return cuda_on_cpu::options.architecture == 90; }

inline unsigned shared_address(const void* p) { return cuda_on_cpu::shared_address(p); }

template <bool ATransposed, bool BTransposed, int Eights>
void group_product(float (&d)[Eights][4], SharedOperand a, SharedOperand b, bool accumulate = true,
                   Site site = Site::current()) {
  cuda_on_cpu::GroupProduct mine{&d[0][0], Eights * 8, a.bits, nullptr, b.bits, ATransposed, BTransposed, accumulate};
  cuda_on_cpu::group_operation(cuda_on_cpu::GroupStep::start, &mine, site);
}
template <bool BTransposed, int Eights>
void group_product(float (&d)[Eights][4], const uint32_t (&a)[4], SharedOperand b, bool accumulate = true,
                   Site site = Site::current()) {
  cuda_on_cpu::GroupProduct mine{&d[0][0], Eights * 8, 0, a, b.bits, false, BTransposed, accumulate};
  cuda_on_cpu::group_operation(cuda_on_cpu::GroupStep::start, &mine, site);
}
template <int Eights>
void fence_sums(float (&)[Eights][4]) {}
inline void group_products_begin(Site site = Site::current()) { cuda_on_cpu::begin_group_products(site); }
inline void group_products_commit(Site site = Site::current()) {
  cuda_on_cpu::group_operation(cuda_on_cpu::GroupStep::commit, nullptr, site);
}
template <int InFlight>
void group_products_wait(Site site = Site::current()) {
  int in_flight = InFlight;
  cuda_on_cpu::group_operation(cuda_on_cpu::GroupStep::wait, &in_flight, site);
}
template <int Registers>
void take_registers(Site site = Site::current()) {
  int registers = Registers;
  cuda_on_cpu::group_operation(cuda_on_cpu::GroupStep::take, &registers, site);
}
template <int Registers>
void give_registers(Site site = Site::current()) {
  int registers = Registers;
  cuda_on_cpu::group_operation(cuda_on_cpu::GroupStep::give, &registers, site);
}
inline void shared_written(Site site = Site::current()) { cuda_on_cpu::show_writes(site); }

#endif

}  // namespace orrery::cuda
