// Products, and uses of their results, for the tensor core attention kernels (tensor_core.cuh).
#pragma once

#include "cuda/attention/tensor_core_walk.cuh"

namespace orrery::cuda {

// ---- products: 16 rows per block and 8 columns per group

// Offsets in a tile, in elements, of a lane's reads of 16 rows: left, right and transposed operand.
template <int Size>
struct OperandOffsets {
  int left, right, transposed;

  __device__ explicit OperandOffsets(int own_row) {  // the warp's first row
    constexpr int pitch = TensorCoreRows<1, Size>::pitch;
    const int lane = lane_of_warp();
    left = in_register((own_row + lane % 16) * pitch + lane / 16 * 8);
    right = in_register((lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8);
    transposed = in_register(lane % 16 * pitch + lane / 16 * 8);
  }
};

// Calls body(block, bit) for a lane's elements of a product.
template <int Blocks, int Groups, class Body>
__device__ void each_score(const float (&)[Blocks][Groups][4], const Body& body) {
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int bit = 0; bit < 4 * Groups; ++bit) body(block, bit);
}

struct FromZero {
  __device__ float operator()(int, int) const { return 0; }
};
// sum = start(block, bit) + own rows times walked rows
template <int Blocks, int Owned, int Count, int Size, class Start = FromZero>
__device__ void multiply_rows(const OperandOffsets<Size>& offsets, const TensorCoreRows<Owned, Size>& own,
                              const TensorCoreRows<Count, Size>& walked, float (&sum)[Blocks][Count / 8][4],
                              const Start& start = {}) {
  const bf16 *const left = own.element[0] + offsets.left, *const right = walked.element[0] + offsets.right;
  const auto add = [&](int k, int block, int group, const uint32_t (&a)[4], const uint32_t* b) {
    if (k > 0) return mma_m16n8k16(sum[block][group], a, b);
    // The start is a separate operand, because several products start from the same registers.
    const float from[4] = {start(block, 4 * group), start(block, 4 * group + 1), start(block, 4 * group + 2),
                           start(block, 4 * group + 3)};
    mma_m16n8k16(sum[block][group], a, b, from);
  };
#pragma unroll
  for (int k = 0; k < Size; k += 16) {
    uint32_t a[Blocks][4];
#pragma unroll
    for (int block = 0; block < Blocks; ++block) load_matrices<false>(a[block], left + 16 * block * own.pitch + k);
#pragma unroll
    for (int j = 0; j < Count / 16; ++j) {
      uint32_t b[4];
      load_matrices<false>(b, right + 16 * j * walked.pitch + k);
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        add(k, block, 2 * j, a[block], b);
        add(k, block, 2 * j + 1, a[block], b + 2);
      }
    }
  }
}

// Rounds weights, or max(w, 0), to left operands. Returns false if all weights of the warp are zero.
template <bool PositivePart = false, int Blocks, int Groups>
__device__ bool round_weights(const float (&w)[Blocks][Groups][4], uint32_t (&a)[Blocks][Groups / 2][4]) {
  uint32_t any = 0;
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int n = 0; n < 2 * Groups; ++n) {
      uint32_t& pair = a[block][n / 4][n % 4];
      const float lower = w[block][n / 2][n % 2 * 2], upper = w[block][n / 2][n % 2 * 2 + 1];
      pair = PositivePart ? round_positive_pair(lower, upper) : round_pair(lower, upper);
      any |= pair;
    }
  return __ballot_sync(~0u, any != 0) != 0;
}

// Sets weights that dropout does not keep to zero.
template <int Blocks, int Pairs>
__device__ void drop_weights(const uint32_t (&kept)[Blocks], uint32_t (&weights)[Blocks][Pairs][4]) {
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int n = 0; n < 4 * Pairs; ++n)
      weights[block][n / 4][n % 4] &=
          (has(kept[block], 2 * n) ? 0xffffu : 0) | (has(kept[block], 2 * n + 1) ? 0xffff0000u : 0);
}

// Infinite and NaN bf16 have all exponent bits set: the exponent plus 1 carries to the sign bit.
__device__ inline uint32_t not_finite(uint32_t pair) { return ((pair & 0x7f807f80u) + 0x00800080u) & 0x80008000u; }
__device__ inline uint32_t finite_or_zero(uint32_t pair) { return pair & ~((not_finite(pair) >> 15) * 0xffffu); }

// Returns a mask: bit r is set if row r of the tile has elements that are not finite.
struct alignas(16) RowChunk {
  uint32_t pair[4];
};
template <class Rows>
__device__ uint64_t find_bad_rows(const Rows& tile) {
  constexpr int at_once = Rows::count < 32 ? Rows::count : 32;  // fewer rows: two lanes check each
  uint64_t bad = 0;
#pragma unroll
  for (int first = 0; first < Rows::count; first += 32) {
    uint32_t mine = 0;
#pragma unroll 4
    for (int n = 0; n < Rows::size / 8; ++n) {
      const RowChunk chunk = *static_cast<const RowChunk*>(tile.chunk(first + lane_of_warp() % at_once, n));
      for (const uint32_t pair : chunk.pair) mine |= not_finite(pair);
    }
    bad |= uint64_t{__ballot_sync(~0u, mine != 0) & (~0u >> (32 - at_once))} << first;
  }
  return bad;
}

// sum += weights times walked rows; of_lane(k, c): what the lane reads of rows from 16 k and columns from 16 c on
template <bool OnlyFinite, int Blocks, int Pairs, int Groups, class OfLane>
__device__ void multiply_weights(const OfLane& of_lane, const uint32_t (&weights)[Blocks][Pairs][4],
                                 float (&sum)[Blocks][Groups][4]) {
#pragma unroll
  for (int k = 0; k < Pairs; ++k)
#pragma unroll
    for (int c = 0; c < Groups / 2; ++c) {
      uint32_t b[4];
      load_matrices<true>(b, of_lane(k, c));
      if constexpr (OnlyFinite)
        for (uint32_t& pair : b) pair = finite_or_zero(pair);
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        mma_m16n8k16(sum[block][2 * c], weights[block][k], b);
        mma_m16n8k16(sum[block][2 * c + 1], weights[block][k], b + 2);
      }
    }
}
// Like multiply_weights, if rows are not finite and some weights are masked: such rows count as
// zeros, and results with a nonzero weight for one become NaN.
template <int Blocks, int Pairs, int Groups, class OfLane>
__device__ void add_with_bad_rows(const OfLane& of_lane, const uint32_t (&weights)[Blocks][Pairs][4], uint64_t bad,
                                  float (&sum)[Blocks][Groups][4]) {
  multiply_weights<true>(of_lane, weights, sum);
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      bool affected = false;
#pragma unroll
      for (int n = 0; n < 2 * Pairs; ++n) {
        const uint32_t pair = weights[block][n / 2][n % 2 * 2 + h];
        const uint64_t of_pair = bad >> ScoreLayout<false>::column(4 * n);
        affected = affected || (of_pair & 1 && pair & 0x7fffu) || (of_pair & 2 && pair & 0x7fff0000u);
      }
      const unsigned of_row = __ballot_sync(~0u, affected) >> lane_of_warp() / 4 * 4 & 15;
      const float add = of_row ? std::numeric_limits<float>::quiet_NaN() : 0.f;
#pragma unroll
      for (int c = 0; c < Groups; ++c) sum[block][c][2 * h] += add, sum[block][c][2 * h + 1] += add;
    }
}
template <int Blocks, int Count, int Size>
__device__ void add_weighted_rows(const OperandOffsets<Size>& offsets, const uint32_t (&weights)[Blocks][Count / 16][4],
                                  const TensorCoreRows<Count, Size>& walked, Coverage coverage,
                                  float (&sum)[Blocks][Size / 8][4]) {
  const bf16* const right = walked.element[0] + offsets.transposed;
  const auto of_lane = [&](int k, int c) { return right + 16 * k * walked.pitch + 16 * c; };
  if (coverage == Coverage::some)
    if (const uint64_t bad = find_bad_rows(walked)) return add_with_bad_rows(of_lane, weights, bad, sum);
  multiply_weights<false>(of_lane, weights, sum);
}

// ---- results

// Stores the warp's rows, from `first` to `end` at most, times factor(block, half of the block's rows).
template <int Blocks, int Groups, class Factor>
__device__ void store_rows(const WriteRows<float>& rows, int first, int end, int size,
                           const float (&sum)[Blocks][Groups][4], const Factor& factor) {
  bf16* const data = static_cast<bf16*>(rows.data) + rows.first;
  const bool pairs = reinterpret_cast<uintptr_t>(data) % 4 == 0 && rows.stride % 2 == 0;
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + 16 * block + ScoreLayout<false>::row(2 * h);
      const float times = factor(block, h);
      if (row >= end) continue;
#pragma unroll
      for (int c = 0; c < Groups; ++c) {
        const int column = ScoreLayout<false>::column(4 * c);
        bf16* const to = data + row * rows.stride + column;
        const uint32_t both = round_pair(times * sum[block][c][2 * h], times * sum[block][c][2 * h + 1]);
        if (pairs && column + 1 < size) {
          *reinterpret_cast<uint32_t*>(to) = both;
        } else {
          if (column < size) to[0] = std::bit_cast<bf16>(static_cast<uint16_t>(both));
          if (column + 1 < size) to[1] = std::bit_cast<bf16>(static_cast<uint16_t>(both >> 16));
        }
      }
    }
}

// ---- scores and weights

// Powers of two only need a factor in the exponent, which is free in an FMA.
inline constexpr float log2_of_e = 1.44269504f, log_of_2 = 0.693147181f;
struct PowerOfTwo {
  __device__ float operator()(float x) const { return scalar::exp2_approximate(x); }
};
struct BinaryLogarithm {
  __device__ float operator()(float x) const { return log2_of_e * scalar::log(x); }
};
struct LargerNumber {  // NaN only if both are
  static constexpr bool commutes = true;
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Sets masked scores to `value`.
template <int Blocks, int Groups>
__device__ void masked_fill(const uint32_t (&visible)[Blocks], float value, float (&s)[Blocks][Groups][4]) {
  each_score(s, [&](int block, int bit) {
    float& score = s[block][bit / 4][bit % 4];
    score = has(visible[block], bit) ? score : value;
  });
}
// Options with separate branches, precomputed, or the compiler would test them anew for each tile.
class RareOptions {
 public:
  template <class P>
  __device__ explicit RareOptions(const P& p) {
    const bool cap = p.soft_cap > 0, scores = cap || !(p.scale * log2_of_e > 0), dropout = p.dropout.kept > 0;
    bool zeros = false;
    if constexpr (!decltype(P::weights)::softmax) zeros = p.weights.zero_below_zero;
    all_ = in_register((scores ? 1 : 0) | (cap ? 2 : 0) | (dropout ? 4 : 0) | (zeros ? 8 : 0));
  }
  __device__ bool scores() const { return all_ & 1; }
  __device__ bool cap() const { return all_ & 2; }
  __device__ bool dropout() const { return all_ & 4; }
  __device__ bool zeros() const { return all_ & 8; }  // F and F' are 0 for tiles without a score above zero

 private:
  int all_;
};
// Turns products into scores up to a factor, which it returns; the factor is above zero, so scores
// keep their order. For homogeneous functions it is 1, and factor_of_weights() returns the scale.
template <int Blocks, int Groups, class P>
__device__ float score_rows(const P& p, const RareOptions& options, float (&s)[Blocks][Groups][4]) {
  if (!options.scores()) return decltype(P::weights)::homogeneous ? 1.f : p.scale;
  each_score(s, [&](int block, int bit) { s[block][bit / 4][bit % 4] *= p.scale; });
  if (options.cap()) {
    const float inverse = 1 / p.soft_cap;
    each_score(s, [&](int block, int bit) {
      float& score = s[block][bit / 4][bit % 4];
      score = capped_score(scalar::tanh(inverse * score), p.soft_cap);
    });
  }
  return 1;
}
// Returns the remaining factor of weighted sums.
template <class P>
__device__ float factor_of_weights(const P& p, const RareOptions& options) {
  const float kept = p.dropout.kept > 0 ? p.dropout.kept : 1.f;
  return decltype(P::weights)::homogeneous && !options.scores() ? kept * p.scale : kept;
}

// ---- softmax

namespace {  // internal, because OnlineSoftmax is
template <int Blocks, int Size>
struct TensorCoreSoftmax {
  OnlineSoftmax<float> rows[Blocks][2];  // scores times log2(e); sum: of this thread's keys only

  // Turns scores without their factor into weights. Rescales `output`, the output so far, to a new
  // largest score only if it is larger by more than `max_growth`; beyond, values might overflow.
  template <int Groups>
  __device__ void weigh(float factor, float (&s)[Blocks][Groups][4], float (&output)[Blocks][Size / 8][4]) {
    constexpr float max_growth = 8;
    const float to_exponent = factor * log2_of_e;
    float top[Blocks][2];
    bool grows = false;
    each_row([&](int block, int h) {
      float& largest = top[block][h];
      largest = s[block][0][2 * h];
#pragma unroll
      for (int n = 1; n < 2 * Groups; ++n) largest = fmaxf(largest, s[block][n / 2][2 * h + n % 2]);
      largest = to_exponent * across_lanes(largest, LargerNumber{}, lanes_of_row);
      grows = grows || largest > rows[block][h].largest + max_growth;
    });
    if (__ballot_sync(~0u, grows))
      each_row([&](int block, int h) {
        OnlineSoftmax<float>& row = rows[block][h];
        const float shrink = row.update_max(fmaxf(row.largest, top[block][h]), PowerOfTwo{});
#pragma unroll
        for (int c = 0; c < Size / 8; ++c) output[block][c][2 * h] *= shrink, output[block][c][2 * h + 1] *= shrink;
      });
    each_row([&](int block, int h) {
#pragma unroll
      for (int n = 0; n < 2 * Groups; ++n) {
        float& score = s[block][n / 2][2 * h + n % 2];
        score = rows[block][h].weigh(1.f, to_exponent * score, PowerOfTwo{});
      }
    });
  }

 private:
  template <class Body>
  __device__ static void each_row(const Body& body) {
#pragma unroll
    for (int n = 0; n < 2 * Blocks; ++n) body(n / 2, n % 2);
  }
};

// Stores the output of a warp's queries from `first` on, and L for softmax.
template <int Blocks, int Size, int Groups, class P>
__device__ void store_output(const P& p, const RareOptions& options, const QueryTile& q, int first,
                             const TensorCoreSoftmax<Blocks, Size>& state, const float (&output)[Blocks][Groups][4]) {
  const WriteRows<float> to = rows_of_queries(p, p.output, q, p.value_size);
  const float factor = factor_of_weights(p, options);
  store_rows(to, first, p.queries, p.value_size, output, [&](int block, int h) {
    if constexpr (decltype(P::weights)::softmax) {
      const OnlineSoftmax<float>& own = state.rows[block][h];
      const float sum = across_lanes(own.sum, Plus{}, lanes_of_row);
      const int i = first + 16 * block + ScoreLayout<false>::row(2 * h);
      if (i < p.queries && lane_of_warp() % lanes_of_row == 0)
        p.log_sum[row_of(p, q) + i] = log_of_2 * own.log_sum(sum, BinaryLogarithm{});
      return sum == 0 ? 0.f : factor / sum;
    } else {
      return factor;
    }
  });
}
}  // namespace

}  // namespace orrery::cuda
