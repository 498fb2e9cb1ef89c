// What the kernels of attention on tensor cores share: tiles in shared memory, what of them is visible to a warp,
// products and results.  See tensor_core.cuh.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/formula.cuh"
#include "cuda/loops/lanes.cuh"
#include "cuda/matmul/tensor_core.cuh"

namespace orrery::cuda {

inline constexpr int tensor_core_attention_threads = 128;
inline constexpr int64_t tensor_core_attention_size = 128;  // the largest head

template <int Count, int Size>
struct alignas(16) TensorCoreRows {
  static constexpr int pitch = Size + 8;  // rows that ldmatrix reads at once lie in different banks
  bf16 element[Count][pitch];
};
template <int Size, int Owned, int Operands, int Walked>
struct TensorCoreAttentionTile {
  static constexpr int owned_rows = Owned, walked_rows = Walked;
  // A lane's part of 16 rows: of products with the walked rows, and of a result.
  using Scores = float[walked_rows / 8][4];
  using Result = float[Size / 8][4];
  TensorCoreRows<Owned, Size> own[Operands];
  TensorCoreRows<walked_rows, Size> walked[2][2];
};
template <int Size>
using TensorCoreForwardTile = TensorCoreAttentionTile<Size, 128, 1, 4096 / Size>;
template <int Size>
using TensorCoreBackwardTile = TensorCoreAttentionTile<Size, 64, 2, 32>;  // more rows do not fit into the registers
static_assert(sizeof(TensorCoreForwardTile<128>) <= 99 * 1024 && sizeof(TensorCoreBackwardTile<128>) <= 99 * 1024);

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }

// ---- operands

// Starts to bring rows [first, first + Count): zeros from `end` and from column `size` on.
template <int Count, int Size>
__device__ void fetch_rows(TensorCoreRows<Count, Size>& tile, const ReadRows<float>& rows, int first, int end,
                           int size) {
  constexpr int chunk = 8, chunks = Size / chunk;  // of 16 bytes
  const bf16* const data = static_cast<const bf16*>(rows.data) + rows.first;
  const bool vectors = reinterpret_cast<uintptr_t>(data) % 16 == 0 && rows.stride % chunk == 0 && size % chunk == 0;
#pragma unroll 4
  for (int n = static_cast<int>(threadIdx.x); n < Count * chunks; n += tensor_core_attention_threads) {
    const int row = n / chunks, column = n % chunks * chunk;
    const bool exists = first + row < end && column < size;
    bf16* const to = tile.element[row] + column;
    const bf16* const from = data + (first + row) * rows.stride + column;
    if (vectors) {
      cp_async<16>(to, exists ? from : data, exists ? 16 : 0);
    } else {
#pragma unroll 1
      for (int e = 0; e < chunk; ++e) to[e] = exists && column + e < size ? from[e] : bf16(0.f);
    }
  }
}

// fetch(n, buffer) brings tile n, body(n, buffer) uses it; `tiles` knows which there are.
template <class Tiles, class Fetch, class Body>
__device__ void walk_along(const Tiles& tiles, const Fetch& fetch, const Body& body) {
  int n = tiles.next(0), buffer = 0;
  if (n < tiles.count) fetch(n, buffer);
  while (n < tiles.count) {
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived from all threads, and none reads the other buffer
    const int following = tiles.next(n + 1);
    if (following < tiles.count) fetch(following, 1 - buffer);
    body(n, buffer);
    n = following, buffer = 1 - buffer;
  }
  cp_async_commit();
  cp_async_wait<0>();  // no copy of the block's own rows outlives it where there was no tile
}

// ---- documents

// Of `count` tokens from number `first` on; by a whole warp.
__device__ inline DocumentRange range_of(const int32_t* documents, int64_t first, int count) {
  DocumentRange range;
  for (int n = lane_of_warp(); n < count; n += 32) range.add(documents[first + n]);
  return {across_lanes(range.lowest, Smaller{}, 32), across_lanes(range.highest, Larger{}, 32)};
}
template <class P>
__device__ DocumentRange documents_of(const P& p, const QueryTile& q, int side) {
  return range_of(p.query_document_ids, int64_t{q.sequence} * p.queries + q.first, minimum(side, p.queries - q.first));
}
template <class P>
__device__ DocumentRange documents_of(const P& p, int sequence, const KeyTile& keys, int side) {
  return range_of(p.key_document_ids, int64_t{sequence} * p.keys + keys.first, minimum(side, keys.end - keys.first));
}

// The tiles of keys that a tile of queries walks along.
template <class P>
struct KeyWalk {
  const P& p;
  QueryTile q;
  KeyTiles tiles;
  int count;
  DocumentRange documents;

  __device__ KeyWalk(const P& problem, const QueryTile& query_tile, int queries, int side)
      : p(problem), q(query_tile), tiles(problem, q, queries, side), count(tiles.count) {
    if (p.query_document_ids) documents = documents_of(p, q, queries);
  }
  __device__ int next(int n) const {
    while (p.query_document_ids && n < count && !documents.meets(documents_of(p, q.sequence, tiles[n], tiles.side)))
      ++n;
    return n;
  }
};

// Starts to bring keys and values.
template <class Tile, class P>
__device__ void fetch_keys(Tile& tile, const P& p, const QueryTile& q, const KeyTile& keys, int buffer) {
  fetch_rows(tile.walked[buffer][0], rows_of_keys(p, p.key, p.slot_key, q, keys, p.head_size), keys.first, keys.end,
             p.head_size);
  fetch_rows(tile.walked[buffer][1], rows_of_keys(p, p.value, p.slot_value, q, keys, p.value_size), keys.first,
             keys.end, p.value_size);
}

// ---- what is visible to a warp

// Of `queries` queries from i on and `key_count` keys from j on.  A query that does not exist may be among them: its
// rows are zeros.
template <class P>
__device__ Cover cover_of(const P& p, const KeyTile& keys, int i, int queries, int j, int key_count) {
  if (j >= keys.end) return Cover::none;
  const Cover by_band = orrery::cover_of(p, i, queries, j, key_count);
  return by_band == Cover::all && (j + key_count > keys.end || p.query_document_ids) ? Cover::some : by_band;
}

inline constexpr int lanes_of_row = 4;  // that share a row of a product

// Where the elements of 16 rows lie that a lane holds of a product: columns 8 n + pair + e of row h * 8 + group, in the
// names of tensor_core.cuh.  Such an element is bit 4 n + 2 h + e of a mask.
template <bool KeysAreRows>
struct ScorePlaces {
  int query, key;  // of row 0 and column 0

  __device__ static int row(int bit) { return bit / 2 % 2 * 8 + lane_of_warp() / 4; }
  __device__ static int column(int bit) { return bit / 4 * 8 + lane_of_warp() % 4 * 2 + bit % 2; }
  __device__ int query_at(int bit) const { return query + (KeysAreRows ? column(bit) : row(bit)); }
  __device__ int key_at(int bit) const { return key + (KeysAreRows ? row(bit) : column(bit)); }

  template <class P>
  __device__ uint32_t visible(const P& p, const QueryTile& q, const KeyTile& keys, int bits) const {
    uint32_t mask = 0;
#pragma unroll 1
    for (int bit = 0; bit < bits; ++bit) mask |= uint32_t{sees(p, q, keys, query_at(bit), key_at(bit))} << bit;
    return mask;
  }
  // Those that dropout keeps.  Neighbouring keys in a row share their random words.
  template <class P>
  __device__ uint32_t kept(const P& p, const RandomKey& random, const QueryTile& q, int bits) const {
    constexpr int together = KeysAreRows ? 1 : 2;
    uint32_t mask = 0;
#pragma unroll 1
    for (int bit = 0; bit < bits; bit += together) {
      const Values<uint32_t, 4> words = dropout_words(p, random, q, query_at(bit), key_at(bit));
      for (int e = 0; e < together; ++e)
        mask |= uint32_t{dropout_keeps(p.dropout, word_of(words, key_at(bit + e)))} << (bit + e);
    }
    return mask;
  }
};
__device__ inline bool has(uint32_t mask, int bit) { return mask >> bit & 1; }

// ---- products: of 16 rows for each block, and 8 columns for each group

// sum = own rows from `row` on, times the walked ones
template <int Blocks, int Owned, int Count, int Size>
__device__ void multiply_rows(const TensorCoreRows<Owned, Size>& own, int row,
                              const TensorCoreRows<Count, Size>& walked, float (&sum)[Blocks][Count / 8][4]) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int n = 0; n < Count / 2; ++n) sum[block][n / 4][n % 4] = 0;
#pragma unroll 4  // all eight at once would bring more operands than registers hold
  for (int k = 0; k < Size; k += 16) {
    uint32_t a[Blocks][4];
#pragma unroll
    for (int block = 0; block < Blocks; ++block)
      load_matrices<false>(a[block], own.element[row + 16 * block + lane % 16] + k + lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < Count / 16; ++j) {
      uint32_t b[4];
      load_matrices<false>(b, walked.element[j * 16 + lane / 16 * 8 + lane % 8] + k + lane / 8 % 2 * 8);
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        mma_m16n8k16(sum[block][2 * j], a[block], b);
        mma_m16n8k16(sum[block][2 * j + 1], a[block], b + 2);
      }
    }
  }
}

// bf16 that are infinite or NaN have all bits of their exponent.
__device__ inline uint32_t finite_or_zero(uint32_t pair) {
  const uint32_t lower = (pair & 0x7f80u) == 0x7f80u ? 0 : 0xffffu;
  const uint32_t upper = (pair & 0x7f800000u) == 0x7f800000u ? 0 : 0xffff0000u;
  return pair & (lower | upper);
}
// Bit r: row r of the tile has elements that are not finite.
template <int Count, int Size>
__device__ uint64_t find_bad_rows(const TensorCoreRows<Count, Size>& tile) {
  struct alignas(16) Chunk {
    uint32_t pair[4];
  };
  uint64_t bad = 0;
#pragma unroll
  for (int first = 0; first < Count; first += 32) {
    bool mine = false;
    const Chunk* const row = reinterpret_cast<const Chunk*>(tile.element[first + lane_of_warp()]);
#pragma unroll 2
    for (int n = 0; n < Size / 8; ++n) {
      const Chunk chunk = row[n];
      for (const uint32_t pair : chunk.pair) mine = mine || finite_or_zero(pair) != pair;
    }
    bad |= uint64_t{__ballot_sync(~0u, mine)} << first;
  }
  return bad;
}

// sum += weights times the walked rows
template <int Blocks, int Count, int Size>
__device__ void add_weighted_rows(const float (&weights)[Blocks][Count / 8][4],
                                  const TensorCoreRows<Count, Size>& walked, uint64_t bad,
                                  float (&sum)[Blocks][Size / 8][4]) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int k = 0; k < Count / 16; ++k) {
    uint32_t a[Blocks][4];
#pragma unroll
    for (int block = 0; block < Blocks; ++block)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float(&w)[4] = weights[block][2 * k + r / 2];
        a[block][r] = round_pair(w[r % 2 * 2], w[r % 2 * 2 + 1]);
      }
#pragma unroll
    for (int c = 0; c < Size / 16; ++c) {
      uint32_t b[4];
      load_matrices<true>(b, walked.element[k * 16 + lane % 16] + c * 16 + lane / 16 * 8);
      if (bad)
        for (uint32_t& pair : b) pair = finite_or_zero(pair);
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        mma_m16n8k16(sum[block][2 * c], a[block], b);
        mma_m16n8k16(sum[block][2 * c + 1], a[block], b + 2);
      }
    }
  }
  if (!bad) return;
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      bool read = false;
#pragma unroll
      for (int n = 0; n < Count / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool of_bad = bad >> ScorePlaces<false>::column(4 * n + e) & 1;
          read = read || (of_bad && weights[block][n][2 * h + e] != 0);
        }
      const unsigned of_row = __ballot_sync(~0u, read) >> lane / 4 * 4 & 15;
      const float add = of_row ? std::numeric_limits<float>::quiet_NaN() : 0.f;
#pragma unroll
      for (int c = 0; c < Size / 8; ++c) sum[block][c][2 * h] += add, sum[block][c][2 * h + 1] += add;
    }
}

// ---- results

struct alignas(4) TwoOfBf16 {
  bf16 lower, upper;
};
// The warp's rows, of which row 0 is number `first`: those below `end`.
template <int Blocks, int Groups, class Factor>
__device__ void store_rows(const WriteRows<float>& rows, int first, int end, int size,
                           const float (&sum)[Blocks][Groups][4], const Factor& factor) {
  bf16* const data = static_cast<bf16*>(rows.data) + rows.first;
  const bool pairs = reinterpret_cast<uintptr_t>(data) % 4 == 0 && rows.stride % 2 == 0;
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + 16 * block + ScorePlaces<false>::row(2 * h);
      const float times = factor(block, h);
      if (row >= end) continue;
#pragma unroll
      for (int c = 0; c < Groups; ++c) {
        const int column = ScorePlaces<false>::column(4 * c);
        bf16* const to = data + row * rows.stride + column;
        const TwoOfBf16 both = {bf16(times * sum[block][c][2 * h]), bf16(times * sum[block][c][2 * h + 1])};
        if (pairs && column + 1 < size) {
          *reinterpret_cast<TwoOfBf16*>(to) = both;
        } else {
          if (column < size) to[0] = both.lower;
          if (column + 1 < size) to[1] = both.upper;
        }
      }
    }
}

// ---- scores and weights

struct FastExponential {
  static constexpr float log2_of_e = 1.44269504f;
  __device__ float operator()(float x) const { return exp2_approximate(x * log2_of_e); }
};

// What the warp sees of `Count` walked rows, as a mask for each 16 of its own rows; not set if it sees none.
template <bool KeysAreRows, int Count, int Blocks, class P>
__device__ Cover look(const P& p, const QueryTile& q, const KeyTile& keys, int query, int key,
                      uint32_t (&visible)[Blocks]) {
  constexpr int own = 16 * Blocks, queries = KeysAreRows ? Count : own, key_count = KeysAreRows ? own : Count;
  const Cover cover = cover_of(p, keys, query, queries, key, key_count);
  if (cover == Cover::none) return cover;
  uint32_t any = 0;
#pragma unroll
  for (int block = 0; block < Blocks; ++block) {
    const ScorePlaces<KeysAreRows> places{query + (KeysAreRows ? 0 : 16 * block), key + (KeysAreRows ? 16 * block : 0)};
    visible[block] = cover == Cover::all ? ~0u : places.visible(p, q, keys, Count / 2);
    any |= visible[block];
  }
  return __ballot_sync(~0u, any != 0) ? cover : Cover::none;
}

// Products become scores.  False if none of the warp's visible scores has a weight or a derivative.
template <int Blocks, int Groups, class P>
__device__ bool score_rows(const P& p, const uint32_t (&visible)[Blocks], float (&s)[Blocks][Groups][4]) {
#pragma unroll
  for (int n = 0; n < 4 * Groups * Blocks; ++n) s[n % Blocks][n / Blocks / 4][n / Blocks % 4] *= p.scale;
  if (p.soft_cap > 0) {
#pragma unroll
    for (int n = 0; n < 4 * Groups * Blocks; ++n) {
      float& score = s[n % Blocks][n / Blocks / 4][n / Blocks % 4];
      score = capped(p, score);
    }
  }
  if constexpr (!decltype(P::weights)::softmax)
    if (p.weights.zero_below_zero) {
      bool positive = false;
#pragma unroll
      for (int block = 0; block < Blocks; ++block)
#pragma unroll
        for (int bit = 0; bit < 4 * Groups; ++bit)
          positive = positive || (has(visible[block], bit) && s[block][bit / 4][bit % 4] > 0);
      return __ballot_sync(~0u, positive) != 0;
    }
  return true;
}

}  // namespace orrery::cuda
