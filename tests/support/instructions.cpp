// Warp-wide instructions with the lane layouts of the PTX ISA. Each function runs once per warp, in
// the last lane to arrive. Compiled without ThreadSanitizer, because it reads other lanes' registers.
#include "tests/support/cuda_on_cpu.h"

#include <algorithm>
#include <bit>

namespace cuda_on_cpu {

void shuffle(void* const* lane, unsigned mask) {
  uint64_t bits[32];
  for (unsigned i = 0; i < 32; ++i)  // a lane outside the mask gives NaN; a GPU: undefined
    bits[i] = mask >> i & 1u ? static_cast<const Shuffle*>(lane[i])->bits : ~uint64_t{0};
  for (unsigned i = 0; i < 32; ++i)
    if (mask >> i & 1u) {
      Shuffle& mine = *static_cast<Shuffle*>(lane[i]);
      mine.bits = bits[mine.source % 32];
    }
}

void ballot(void* const* lane, unsigned mask) {
  unsigned votes = 0;
  for (unsigned i = 0; i < 32; ++i)
    if (mask >> i & 1u) votes |= static_cast<const Vote*>(lane[i])->predicate << i;
  for (unsigned i = 0; i < 32; ++i)
    if (mask >> i & 1u) static_cast<Vote*>(lane[i])->ballot = votes;
}

// elect.sync: the leader may be any lane, but is the same each time.
void elect(void* const* lane, unsigned) {
  const unsigned leader = options.order == Order::forward   ? 0
                          : options.order == Order::reverse ? 31
                                                            : options.seed % 32;
  *static_cast<bool*>(lane[leader]) = true;
}

// Two bf16 values in a register.
static float low(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
static float high(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

// Adds 8 products and the sum at a time, as measured on GPUs (Fasi, Higham, Mikaitis and Pranesh
// 2021, PeerJ Computer Science 7:e330). Addends are truncated at the last bit of the largest, the
// result at 24 bits. No rounding, no carry of truncated bits, no denormal numbers.
static int exponent_of(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff) - 1023; }
static double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }
static float flushed(float x) { return std::bit_cast<uint32_t>(x) & 0x7f800000u ? x : 0.f; }
float truncated_sum(float sum, const float* a, const float* b, int stride) {
  constexpr int together = 8, bits = 24, lowest = -126, not_finite = 1024;
  for (int first = 0; first < 16; first += together) {
    double addend[together + 1] = {flushed(sum)};
    for (int k = 0; k < together; ++k)
      addend[k + 1] = double{flushed(a[first + k])} * double{flushed(b[(first + k) * stride])};
    int exponent = lowest;
    for (const double x : addend) exponent = std::max(exponent, exponent_of(x));
    if (exponent == not_finite) {
      for (int k = 0; k < together; ++k) sum += static_cast<float>(addend[k + 1]);
      continue;
    }
    int64_t total = 0;  // in units of the largest addend's last bit
    for (const double x : addend) total += static_cast<int64_t>(x * power_of_two(bits - 1 - exponent));
    const int beyond = static_cast<int>(std::bit_width(static_cast<uint64_t>(total < 0 ? -total : total))) - bits;
    if (beyond > 0) total = total / (int64_t{1} << beyond) * (int64_t{1} << beyond);
    sum = flushed(static_cast<float>(static_cast<double>(total) * power_of_two(exponent - (bits - 1))));
  }
  return sum;
}

// mma.m16n8k16 of bf16.  With group = lane / 4 and pair = lane % 4 * 2:
//   a[r] holds A[group + r % 2 * 8][pair + r / 2 * 8] and the element to its right,
//   b[r] holds B[pair + r * 8][group] and the one below,
//   d[2 h], d[2 h + 1] are D[group + h * 8][pair] and the element to its right.
void mma(void* const* lane, unsigned) {
  float A[16][16], B[16][8], D[16][8];
  for (int i = 0; i < 32; ++i) {
    const auto& [d, a, b] = *static_cast<const Mma*>(lane[i]);
    const int group = i / 4, pair = i % 4 * 2;
    for (int r = 0; r < 4; ++r) {
      float* const at = &A[group + r % 2 * 8][pair + r / 2 * 8];
      at[0] = low(a[r]), at[1] = high(a[r]);
    }
    for (int r = 0; r < 2; ++r) B[pair + r * 8][group] = low(b[r]), B[pair + r * 8 + 1][group] = high(b[r]);
    for (int h = 0; h < 2; ++h) D[group + h * 8][pair] = d[2 * h], D[group + h * 8][pair + 1] = d[2 * h + 1];
  }
  for (int row = 0; row < 16; ++row) {
    if (options.truncating) {
      for (int column = 0; column < 8; ++column)
        D[row][column] = truncated_sum(D[row][column], A[row], &B[0][column], 8);
      continue;
    }
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) D[row][column] += A[row][k] * B[k][column];
  }
  for (int i = 0; i < 32; ++i) {
    float* const d = static_cast<const Mma*>(lane[i])->d;
    const int group = i / 4, pair = i % 4 * 2;
    for (int h = 0; h < 2; ++h) d[2 * h] = D[group + h * 8][pair], d[2 * h + 1] = D[group + h * 8][pair + 1];
  }
}

// ldmatrix. Lanes 8 m to 8 m + 7 pass the rows of matrix m. Lane i receives elements
// [i / 4][i % 4 * 2] and the next one in the row, of the transpose if `transpose`.
void load_matrix(void* const* lane, unsigned) {
  const int count = static_cast<const LoadMatrix*>(lane[0])->count;
  for (int m = 0; m < count; ++m) {
    uint16_t element[8][8];
    for (int row = 0; row < 8; ++row)
      std::memcpy(element[row], static_cast<const LoadMatrix*>(lane[8 * m + row])->row, 16);
    for (int i = 0; i < 32; ++i) {
      const LoadMatrix& mine = *static_cast<const LoadMatrix*>(lane[i]);
      const int row = i / 4, column = i % 4 * 2;
      const uint32_t first = mine.transpose ? element[column][row] : element[row][column];
      const uint32_t second = mine.transpose ? element[column + 1][row] : element[row][column + 1];
      mine.result[m] = first | second << 16;
    }
  }
}

// stmatrix: the inverse of ldmatrix without its transpose.
void store_matrix(void* const* lane, unsigned) {
  for (int i = 0; i < 32; ++i)
    for (int pair = 0; pair < 4; ++pair) {
      const StoreMatrix& from = *static_cast<const StoreMatrix*>(lane[i % 8 * 4 + pair]);
      std::memcpy(static_cast<StoreMatrix*>(lane[i])->row + pair * 4, &from.matrix[i / 8], 4);
    }
}

}  // namespace cuda_on_cpu
