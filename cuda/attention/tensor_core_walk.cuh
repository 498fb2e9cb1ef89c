// The tiles that tensor core attention walks (loops over), and their visibility to a warp.
#pragma once

#include "cuda/attention/tensor_core_tile.cuh"

namespace orrery::cuda {

// ---- documents and the mask's table, by a whole warp
//
// A warp that copies for warp groups has few registers: in_register() keeps the compiler from computing before the loop
// over tiles, where the results would be in registers.

__device__ inline DocumentRange range_of(const int32_t* documents, int count) {
  DocumentRange range;
#pragma unroll 1
  for (int n = lane_of_warp(); n < count; n += 32) range.add(documents[n]);
  return {across_lanes(range.lowest, Smaller{}, 32), across_lanes(range.highest, Larger{}, 32)};
}
// Returns true if the range meets that of `count` documents. It takes fewer registers than range_of().
__device__ inline bool meets(const DocumentRange& range, const int32_t* documents, int count) {
  bool above = false, below = false;
#pragma unroll 1
  for (int n = lane_of_warp(); n < count; n += 32)
    above = above || documents[n] >= range.lowest, below = below || documents[n] <= range.highest;
  return __ballot_sync(~0u, above) && __ballot_sync(~0u, below);
}
template <class P>
__device__ const int32_t* query_documents(const P& p, int sequence, int first) {
  return p.query_document_ids + int64_t{in_register(sequence)} * in_register(p.queries) + first;
}
template <class P>
__device__ const int32_t* key_documents(const P& p, int sequence, int first) {
  return p.key_document_ids + int64_t{in_register(sequence)} * in_register(p.keys) + first;
}
// Returns true if the table hides all of a tile of at most 128 x 256 pairs.
template <class P>
__device__ bool hidden_by_table(const P& p, int i, int queries, int j, int keys) {
  constexpr int side = MaskView::tile;
  const int lane = in_register(lane_of_warp()), a = i / side + lane / 8, b = j / side + lane % 8;
  const bool exists = a * side < minimum(i + queries, p.queries) && b * side < minimum(j + keys, p.keys);
  return !__ballot_sync(~0u, exists && Coverage{p.coverage[int64_t{a} * (p.words * 32 / side) + b]} != Coverage::none);
}

// The tiles of keys that a tile of queries walks, without slots.
template <class P>
class KeyWalk {
 public:
  __device__ KeyWalk(const P& p, const QueryTile& q, int queries, int side)
      : p_(p),
        q_(q),
        queries_(queries),
        side_(side),
        length_(length_of(p, q.sequence)),
        keys_(keys_of_queries(p, q.first, queries, length_)) {
    if (p.query_document_ids)
      documents_ = range_of(query_documents(p, q.sequence, q.first), minimum(queries, p.queries - q.first));
  }
  __device__ KeyTile begin() const { return visible_from({false, keys_.begin / side_ * side_, length_}); }
  __device__ KeyTile after(const KeyTile& tile) const { return visible_from({false, tile.first + side_, length_}); }
  __device__ bool has(const KeyTile& tile) const { return tile.first < keys_.end; }

 private:
  __device__ bool is_hidden(const KeyTile& tile) const {
    const int count = minimum(side_, length_ - tile.first);
    return (p_.query_document_ids && !meets(documents_, key_documents(p_, q_.sequence, tile.first), count)) ||
           (p_.bits && hidden_by_table(p_, q_.first, queries_, tile.first, side_));
  }
  __device__ KeyTile visible_from(KeyTile tile) const {
    while (has(tile) && is_hidden(tile)) tile.first += side_;
    return tile;
  }

  const P& p_;
  QueryTile q_;
  int queries_, side_, length_;
  Interval keys_;
  DocumentRange documents_;
};
// The tiles of queries that a tile of keys walks, of all heads that attend to it. next_head() is
// called when the walk reaches another head.
template <class P, class NextHead>
class QueryWalk {
 public:
  __device__ QueryWalk(const P& p, const QueryTile& first, const KeyTile& keys, int key_count, int side,
                       const NextHead& next_head)
      : p_(p),
        first_(first),
        first_key_(keys.first),
        keys_(key_count),
        side_(side),
        queries_(query_range(p, keys, key_count, side)),
        next_head_(next_head) {
    const int group = p.query_heads / in_register(p.kv_heads);
    end_head_ = first.head + (keys.first < keys.end && queries_.begin < queries_.end ? group : 0);
    skips_ = in_register(p.query_document_ids || p.bits ? 1 : 0);
    if (p.query_document_ids)
      documents_ = range_of(key_documents(p, first.sequence, keys.first), minimum(key_count, keys.end - keys.first));
  }
  __device__ QueryTile begin() const { return visible_from({first_.sequence, first_.head, queries_.begin}); }
  __device__ QueryTile after(const QueryTile& tile) const { return visible_from(next(tile)); }
  __device__ bool has(const QueryTile& tile) const { return tile.head < end_head_; }
  // All tiles, and which of them are not walked: a loop over these takes fewer registers.
  __device__ QueryTile first() const { return {first_.sequence, first_.head, queries_.begin}; }
  __device__ QueryTile next(const QueryTile& tile) const {
    if (tile.first + side_ < queries_.end) return {first_.sequence, tile.head, tile.first + side_};
    next_head_();
    return {first_.sequence, tile.head + 1, queries_.begin};
  }
  __device__ bool is_hidden(const QueryTile& tile) const {
    const int count = minimum(side_, p_.queries - tile.first);
    return (p_.query_document_ids && !meets(documents_, query_documents(p_, tile.sequence, tile.first), count)) ||
           (p_.bits && hidden_by_table(p_, tile.first, side_, first_key_, keys_));
  }

 private:
  __device__ QueryTile visible_from(QueryTile tile) const {
    if (skips_)
      while (has(tile) && is_hidden(tile)) tile = next(tile);
    return tile;
  }

  const P& p_;
  QueryTile first_;
  int first_key_, keys_, side_, end_head_, skips_;
  Interval queries_;
  DocumentRange documents_;
  const NextHead& next_head_;
};

// ---- visibility to a warp

// Returns the coverage of `queries` queries from i on and `key_count` keys from j on. Queries past
// the end may be among them: their rows are zeros.
template <class P>
__device__ Coverage coverage_of(const P& p, const KeyTile& keys, int i, int queries, int j, int key_count) {
  if (j >= keys.end) return Coverage::none;
  const Coverage by_band = orrery::coverage_of(p, i, queries, j, key_count);
  return by_band == Coverage::all && (j + key_count > keys.end || p.query_document_ids) ? Coverage::some : by_band;
}

__device__ inline bool has(uint32_t mask, int bit) { return mask >> bit & 1; }

inline constexpr int lanes_of_row = 4;  // lanes that share a row of a product

// A lane's elements of 16 rows of a product: columns 8 n + pair + e of row h * 8 + group, in the
// terms of cuda/matmul/tensor_core.cuh. Such an element is bit 4 n + 2 h + e of a mask.
template <bool KeysAreRows>
struct ScoreLayout {
  int query, key;  // those of row 0 and column 0

  __device__ static int row(int bit) { return bit / 2 % 2 * 8 + lane_of_warp() / 4; }
  __device__ static int column(int bit) { return bit / 4 * 8 + lane_of_warp() % 4 * 2 + bit % 2; }
  __device__ int query_at(int bit) const { return query + (KeysAreRows ? column(bit) : row(bit)); }
  __device__ int key_at(int bit) const { return key + (KeysAreRows ? row(bit) : column(bit)); }

  // Returns the mask of columns below `end`, with `bits` bits; `end` may be any number.
  __device__ static uint32_t below(int end, int bits) {
    uint32_t mask = 0;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int groups = maximum(0, minimum(bits / 4, (end - column(e) + 7) >> 3));
      mask |= 0x55555555u << e & (groups < 8 ? (1u << 4 * groups) - 1 : ~0u);
    }
    return mask;
  }
  // Returns the mask of visible elements, with `bits` bits. A row's band is consecutive columns.
  template <class P>
  __device__ uint32_t visible(const P& p, const QueryTile& q, const KeyTile& keys, int bits) const {
    uint32_t mask = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i = query_at(2 * h), j = key_at(2 * h);
      const bool exists = KeysAreRows ? j < keys.end : i < p.queries;
      const Interval range = KeysAreRows ? queries_of_keys(p, j, 1) : keys_of_queries(p, i, 1, keys.end);
      const int first = KeysAreRows ? query : key, hidden = (KeysAreRows ? j - p.masked : i + p.masked) - first;
      const uint32_t band = below(range.end - first, bits) & ~below(range.begin - first, bits);
      const uint32_t row = band & (below(hidden, bits) | ~below(hidden + 1, bits));
      mask |= exists ? row & 0x33333333u << 2 * h : 0;
    }
    if (p.query_document_ids || p.bits) {
#pragma unroll 1
      for (int bit = 0; bit < bits; ++bit)
        if (has(mask, bit) && !is_allowed(p, q.sequence, query_at(bit), key_at(bit))) mask &= ~(1u << bit);
    }
    return mask;
  }
  // Returns the mask of elements that dropout keeps. Adjacent keys in a row share random words.
  template <class P>
  __device__ uint32_t kept(const P& p, const RandomKey& rng_key, const QueryTile& q, int bits) const {
    constexpr int together = KeysAreRows ? 1 : 2;
    uint32_t mask = 0;
#pragma unroll 1
    for (int bit = 0; bit < bits; bit += together) {
      const Values<uint32_t, 4> words = dropout_words(p, rng_key, q, query_at(bit), key_at(bit));
      for (int e = 0; e < together; ++e)
        mask |= uint32_t{dropout_keeps(p.dropout, word_of(words, key_at(bit + e)))} << (bit + e);
    }
    return mask;
  }
};

// The visibility of walked rows to a warp, `Count` at a time: full, or a mask per 16 of its rows. The
// coverage may be that of a warp group with `Rows` rows: the group then does the same in all warps.
template <bool KeysAreRows, int Count, int Blocks, class P, int Rows = 16 * Blocks>
class WarpVisibility {
 public:
  // own: the first of the rows; end: number of keys; of_warp: the warp's first row among them
  __device__ WarpVisibility(const P& p, int own, int end, int of_warp = 0) : own_(own), of_warp_(of_warp) {
    if (p.query_document_ids || p.bits || p.masked != MaskView::unbounded) return;  // none is full by the band alone
    begin_ = KeysAreRows ? own + Rows - 1 - p.last : own + Rows - 1 + p.first;
    const int last = KeysAreRows ? own - p.first - Count + 1 : minimum(own + p.last, end - 1) - Count + 1;
    const bool exist = !KeysAreRows || own + Rows <= end;
    count_ = exist && last >= begin_ ? last - begin_ + 1 : 0;
  }
  __device__ bool is_full(int walked) const {
    return static_cast<unsigned>(walked - begin_) < static_cast<unsigned>(count_);
  }
  // Lets is_full() be false for the last `count` of the rows for which it would be true.
  __device__ void shorten_full(int count) { count_ = maximum(0, count_ - count); }
  // Returns the coverage; sets the masks if it is `some`.
  __device__ Coverage find_visible(const P& p, const QueryTile& q, const KeyTile& keys,
                                   uint32_t (&visible)[Blocks]) const {
    const int query = KeysAreRows ? q.first : own_, key = KeysAreRows ? own_ : keys.first;
    if (is_full(KeysAreRows ? query : key)) return Coverage::all;
    const Coverage coverage = coverage_of(p, keys, query, KeysAreRows ? Count : Rows, key, KeysAreRows ? Rows : Count);
    if (coverage != Coverage::some) return coverage;
    uint32_t any = 0;
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
      visible[block] = layout(q, keys, block).visible(p, q, keys, Count / 2);
      any |= visible[block];
    }
    if constexpr (Rows > 16 * Blocks) return coverage;
    return __ballot_sync(~0u, any != 0) ? coverage : Coverage::none;
  }
  // Sets the masks of elements that dropout keeps.
  __device__ void find_keep_masks(const P& p, const RandomKey& rng_key, const QueryTile& q, const KeyTile& keys,
                                  uint32_t (&kept)[Blocks]) const {
#pragma unroll
    for (int block = 0; block < Blocks; ++block) kept[block] = layout(q, keys, block).kept(p, rng_key, q, Count / 2);
  }

 private:
  __device__ ScoreLayout<KeysAreRows> layout(const QueryTile& q, const KeyTile& keys, int block) const {
    return KeysAreRows ? ScoreLayout<KeysAreRows>{q.first, own_ + of_warp_ + 16 * block}
                       : ScoreLayout<KeysAreRows>{own_ + of_warp_ + 16 * block, keys.first};
  }

  int own_, of_warp_, begin_ = 0, count_ = 0;  // fully visible tiles: range of their first walked row
};

}  // namespace orrery::cuda
