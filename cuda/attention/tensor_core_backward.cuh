// Attention backward kernels on tensor cores: see tensor_core.cuh; derivatives: backward.cuh.
#pragma once

#include "cuda/attention/backward.cuh"
#include "cuda/attention/tensor_core_product.cuh"

namespace orrery::cuda {

// Computes the values per query. A block has consecutive queries of one head and eight lanes per
// query. Each lane takes eight elements at a time: 16 bytes, in one load if all rows are aligned.
inline constexpr int lanes_of_terms = 8, elements_of_terms = 8, queries_of_terms = attention_threads / lanes_of_terms;
inline constexpr int warps_of_queries = tensor_core_attention_threads / 32;  // of a block

struct [[gnu::may_alias]] alignas(16) ElementsOfTerms {
  uint32_t pair[elements_of_terms / 2];

  __device__ static ElementsOfTerms load(const bf16* row, int first, int size, bool aligned) {
    if (aligned) return *reinterpret_cast<const ElementsOfTerms*>(row + first);
    ElementsOfTerms loaded = {};
#pragma unroll
    for (int i = 0; i < elements_of_terms; ++i)
      if (first + i < size) loaded.pair[i / 2] |= uint32_t{row[first + i].bits} << i % 2 * 16;
    return loaded;
  }
  __device__ float product(const ElementsOfTerms& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < elements_of_terms / 2; ++i) {
      sum += lower_of_pair(pair[i]) * lower_of_pair(other.pair[i]);
      sum += upper_of_pair(pair[i]) * upper_of_pair(other.pair[i]);
    }
    return sum;
  }
};
template <class P>
__global__ void __launch_bounds__(attention_threads)
    tensor_core_attention_terms_kernel(const __grid_constant__ P p, TensorCoreRowTerms* terms) {
  const int sequence = static_cast<int>(blockIdx.x) / p.query_heads,
            head = static_cast<int>(blockIdx.x) % p.query_heads;
  const int query = static_cast<int>(blockIdx.y * queries_of_terms + threadIdx.x / lanes_of_terms);
  const int lane = static_cast<int>(threadIdx.x) % lanes_of_terms, size = p.value_size;
  const int64_t row = int64_t{blockIdx.x} * p.queries + query, token = int64_t{sequence} * p.queries + query;
  const bool here = query < p.queries;
  const auto elements = [](const void* data) { return static_cast<const bf16*>(data); };  // regardless of pointer types
  wait_for_earlier();
  allow_next();
  float inner = 0, log_sum = 0;
  if (here) {
    const int64_t column = int64_t{head} * size;
    const bf16* const output = elements(p.output.data) + token * p.output.stride + column;
    const bf16* const gradient = elements(p.output_gradient.data) + token * p.output_gradient.stride + column;
    const auto addresses = reinterpret_cast<uintptr_t>(output) | reinterpret_cast<uintptr_t>(gradient);
    const bool aligned = addresses % 16 == 0 && size % elements_of_terms == 0;
    log_sum = p.log_sum[row];
#pragma unroll 2
    for (int first = lane * elements_of_terms; first < size; first += lanes_of_terms * elements_of_terms)
      inner += ElementsOfTerms::load(output, first, size, aligned)
                   .product(ElementsOfTerms::load(gradient, first, size, aligned));
  }
  inner = across_lanes(inner, Plus{}, lanes_of_terms);
  if (lane == 0 && query < rows_of_terms(p))
    terms[int64_t{blockIdx.x} * rows_of_terms(p) + query] =
        here ? TensorCoreRowTerms{log2_of_e * log_sum_or_infinity(log_sum), -inner} : TensorCoreRowTerms{};
}

// Values per query for a lane's elements, with queries as rows or as columns. For columns they are
// read from shared memory at each use, because registers are few.
template <int Blocks>
struct TermsOfRows {
  float log_sum[Blocks][2] = {};
  float minus_centre[Blocks][4] = {};  // per element of a product, which starts from these registers

  __device__ void set(int block, int half, const TensorCoreRowTerms& terms) {
    log_sum[block][half] = terms.log_sum;
#pragma unroll
    for (int e = 0; e < 2; ++e)  // shuffled, or equal values would share a register and be copied each time
      minus_centre[block][2 * half + e] = e ? __shfl_sync(~0u, terms.minus_centre, lane_of_warp()) : terms.minus_centre;
  }
  __device__ auto minus_centres() const {
    return [this](int block, int bit) { return minus_centre[block][bit % 4]; };
  }
  __device__ auto log_sums() const {
    return [this](int block, int bit) { return log_sum[block][bit / 2 % 2]; };
  }
};
template <int Count>
struct TermsOfColumns {
  template <int N>
  struct Values {  // per eight columns
    struct alignas(4 * N) Lane {
      float value[N];
    } of[Count / 8];

    __device__ float operator()(int, int bit) const { return of[bit / 4].value[bit % N]; }
  };
  const TensorCorePairTerms (&pairs)[Count / 2];

  __device__ Values<4> minus_centres() const {
    return values<4>([](const TensorCorePairTerms& terms) { return terms.minus_centre; });
  }
  __device__ Values<2> log_sums() const {
    return values<2>([](const TensorCorePairTerms& terms) { return terms.log_sum; });
  }

 private:
  template <int N, class Member>
  __device__ Values<N> values(const Member& member) const {
    Values<N> all;
#pragma unroll
    for (int n = 0; n < Count / 8; ++n)
      all.of[n] =
          *reinterpret_cast<const typename Values<N>::Lane*>(member(pairs[ScoreLayout<true>::column(4 * n) / 2]));
    return all;
  }
};

namespace {  // internal, because Coverage is
// The visibility of a tile to a warp, and the elements that dropout keeps, if any. Computed before
// the products, which leave few registers.
template <int Blocks>
struct TileMasks {
  Coverage coverage = Coverage::none;
#if defined(__CUDACC__)
  uint32_t visible[Blocks], kept[Blocks];  // set before use; other zeros would take registers
#else
  uint32_t visible[Blocks] = {}, kept[Blocks] = {};  // the host compiler cannot prove this
#endif

  template <class Visibility, class P>
  __device__ void find(const Visibility& visibility, const P& p, const RareOptions& options, const QueryTile& q,
                       const KeyTile& keys) {
    coverage = visibility.find_visible(p, q, keys, visible);
    if (!options.dropout() || coverage == Coverage::none) return;
    // The rng key is loaded again: kept across tiles, it would take registers.
    visibility.find_keep_masks(p, p.dropout.rng_key.load(), q, keys, kept);
  }
  // Returns the masks of the walked rows from `first` on.
  __device__ TileMasks from(int first) const {
    TileMasks part = *this;
#pragma unroll
    for (int block = 0; block < Blocks; ++block) part.visible[block] >>= first / 2, part.kept[block] >>= first / 2;
    return part;
  }
};
}  // namespace

// Computes g - c, by a product that starts at -c.
template <int Owned, int Count, int Size, int Blocks, class P, class Terms>
__device__ void multiply_gradients(const P& p, const RareOptions& options, const OperandOffsets<Size>& offsets,
                                   const TensorCoreRows<Owned, Size>& own, const TensorCoreRows<Count, Size>& walked,
                                   const uint32_t (&kept)[Blocks], const Terms& terms,
                                   float (&g)[Blocks][Count / 8][4]) {
  constexpr bool softmax = decltype(P::weights)::softmax;
  if constexpr (softmax)
    multiply_rows(offsets, own, walked, g, terms.minus_centres());
  else
    multiply_rows(offsets, own, walked, g);
  const auto each = [&](const auto& change) {
    each_score(g, [&](int block, int bit) { change(g[block][bit / 4][bit % 4], block, bit); });
  };
  if constexpr (softmax) {
    if (options.dropout()) {
      const auto start = terms.minus_centres();
      each([&](float& gradient, int block, int bit) {
        const float from = start(block, bit);
        gradient = from + (has(kept[block], bit) ? p.dropout.kept * (gradient - from) : 0.f);
      });
    }
  } else if (options.dropout()) {
    each([&](float& gradient, int block, int bit) {
      gradient = has(kept[block], bit) ? p.dropout.kept * gradient : 0.f;
    });
  }
}
// Turns scores without their factor into weights, and g - c, from column `first` on, into dt.
template <int Blocks, int Groups, int All, class P, class F, class Terms>
__device__ void differentiate_rows(const P& p, const F& f, const RareOptions& options, float factor, const Terms& terms,
                                   float (&s)[Blocks][Groups][4], float (&g)[Blocks][All][4], int first) {
  constexpr bool softmax = decltype(P::weights)::softmax;
  const auto each = [&](const auto& body) {
    each_score(s, [&](int block, int bit) {
      body(s[block][bit / 4][bit % 4], g[block][first / 8 + bit / 4][bit % 4], block, bit);
    });
  };
  if (options.cap()) {  // ds is linear in g, so the cap's factor may come first
    const float inverse = 1 / p.soft_cap;
    each([&](float score, float& gradient, int, int) { gradient *= cap_derivative(inverse * score); });
  }
  if constexpr (softmax) {
    const auto log_sum = terms.log_sums();
    each([&](float& score, float& gradient, int block, int bit) {
      score = scalar::exp2_approximate(factor * log2_of_e * score - log_sum(block, bit));
      gradient *= score;
    });
  } else {
    each([&](float& score, float& gradient, int, int) {
      gradient *= f.derivative(factor * score);
      score = f.value(factor * score);
    });
  }
}

// Adds a lane's terms of dp of F, before dt replaces g - c.
template <int Blocks, int Groups, int All, class F, int Count>
__device__ void add_parameter_gradients(const F& f, float factor, const TileMasks<Blocks>& masks,
                                        const float (&s)[Blocks][Groups][4], const float (&g)[Blocks][All][4],
                                        int first, float (&sums)[Count]) {
  float tile[Count] = {};
  each_score(s, [&](int block, int bit) {
    if (masks.coverage == Coverage::some && !has(masks.visible[block], bit)) return;
    float derivatives[Count];
    f.parameter_derivatives(factor * s[block][bit / 4][bit % 4], derivatives);
    for (int k = 0; k < Count; ++k) tile[k] += derivatives[k] * g[block][first / 8 + bit / 4][bit % 4];
  });
  for (int k = 0; k < Count; ++k) sums[k] += tile[k];
}

// Returns true if no score visible to the warp is above zero; `queries_end`: some queries are past
// the end, with scores of zero.
template <int Blocks, int Groups>
__device__ bool none_above_zero(Coverage coverage, bool queries_end, const uint32_t (&visible)[Blocks],
                                const float (&s)[Blocks][Groups][4]) {
  uint32_t signs = ~0u;
  if (coverage == Coverage::all && !queries_end)  // one instruction joins two signs; a zero score counts as above
    each_score(s, [&](int block, int bit) { signs &= std::bit_cast<uint32_t>(s[block][bit / 4][bit % 4]); });
  else
    each_score(s, [&](int block, int bit) {
      const bool unmasked = coverage == Coverage::all || has(visible[block], bit);
      if (unmasked && s[block][bit / 4][bit % 4] > 0) signs = 0;
    });
  return __ballot_sync(~0u, signs >> 31 == 0) == 0;
}

// Computes weights and dt as operands of the next products; both are 0 where masked.
template <int Blocks, int Groups, int All, class P, class F, class Terms>
__device__ void differentiate_tile(const P& p, const F& f, const RareOptions& options, float factor,
                                   const TileMasks<Blocks>& masks, const Terms& terms,
                                   float (&s)[Blocks][Groups][4], float (&g)[Blocks][All][4], int first,
                                   uint32_t (&weights)[Blocks][Groups / 2][4],
                                   uint32_t (&gradients)[Blocks][Groups / 2][4]) {
  differentiate_rows(p, f, options, factor, terms, s, g, first);
  if (masks.coverage == Coverage::some)
    each_score(s, [&](int block, int bit) {
      float &score = s[block][bit / 4][bit % 4], &gradient = g[block][first / 8 + bit / 4][bit % 4];
      const bool unmasked = has(masks.visible[block], bit);
      score = unmasked ? score : 0.f, gradient = unmasked ? gradient : 0.f;
    });
  float dt[Blocks][Groups][4];
  each_score(dt, [&](int block, int bit) { dt[block][bit / 4][bit % 4] = g[block][first / 8 + bit / 4][bit % 4]; });
  round_weights(s, weights), round_weights(dt, gradients);
  if (options.dropout()) drop_weights(masks.kept, weights);
}

// ---- dq

template <class P, int Size>
__global__ void __launch_bounds__(tensor_core_attention_threads, 2)
    tensor_core_attention_backward_queries_kernel(const __grid_constant__ P p, const TensorCoreRowTerms* all_terms,
                                                  float* parameter_gradients) {
  using Tile = TensorCoreQueriesTile<Size>;
  constexpr bool softmax = decltype(P::weights)::softmax;
  constexpr int owned = Tile::owned_rows, walked = Tile::walked_rows, blocks = owned / 64, part = walked / blocks;
  Tile& tile = shared_memory<Tile>();
  const QueryTile q = query_tile(p, blockIdx.x, owned);
  const int row = warp_of_block() * 16 * blocks, own_query = q.first + row;
  const OperandOffsets<Size> offsets(row);
  TermsOfRows<blocks> terms;
  wait_for_earlier();
  if constexpr (softmax) {
#pragma unroll
    for (int n = 0; n < 2 * blocks; ++n) {
      const int i = own_query + n / 2 * 16 + ScoreLayout<false>::row(n % 2 * 2);
      terms.set(n / 2, n % 2, i < p.queries ? all_terms[row_of_terms(p, q) + i] : TensorCoreRowTerms{});
    }
  }
  typename Tile::Result sum[blocks] = {};

  source_of_queries<Size>(p, q).fetch(tile.own, q.first, p.queries);
  const RowSource<Size, 2> rows = source_of_keys<Size>(p, q.sequence, kv_head(p, q));
  const KeyWalk walk(p, q, owned, walked);
  const WarpVisibility<false, walked, blocks, P> visibility(p, own_query, length_of(p, q.sequence));
  const RareOptions options(p);
  const bool queries_end = own_query + 16 * blocks > p.queries;
  [[maybe_unused]] const auto& f = function_of<float>(p, q);
  float parameter_sums[maximum(1, parameters_of<P>)] = {};
  TileMasks<blocks> masks = {};
  typename Tile::Scores g[blocks];
  const auto multiply_values = [&](const KeyTile& keys) {
    masks.find(visibility, p, options, q, keys);
    if (masks.coverage == Coverage::none) return;
    multiply_gradients(p, options, offsets, tile.own[1], tile.values, masks.kept, terms, g);
  };
  const auto add_keys = [&](const KeyTile&) {
    if (masks.coverage == Coverage::none) return;
#pragma unroll
    for (int first = 0; first < walked; first += part) {  // there are no registers for all scores
      const TileMasks<blocks> part_masks = masks.from(first);
      const TensorCoreRows<part, Size>& keys = rows_from<part>(tile.keys, first);
      LaneScores<part> s[blocks];
      multiply_rows(offsets, tile.own[0], keys, s);
      const float factor = score_rows(p, options, s);
      if constexpr (!softmax)  // all weights and derivatives are 0 then
        if (options.zeros() && none_above_zero(masks.coverage, queries_end, part_masks.visible, s)) continue;
      LaneWeights<part> w[blocks], dt[blocks];
      if constexpr (parameters_of<P> > 0)
        add_parameter_gradients(f, factor, part_masks, s, g, first, parameter_sums);
      differentiate_tile(p, f, options, factor, part_masks, terms, s, g, first, w, dt);
      add_weighted_rows(offsets, dt, keys, masks.coverage, sum);
    }
  };
  walk_in_turns(
      walk, [&](const KeyTile& keys) { rows.fetch(1, tile.values, keys.first, keys.end); },
      [&](const KeyTile& keys) { rows.fetch(0, tile.keys, keys.first, keys.end); }, multiply_values, add_keys);
  allow_next();
  if constexpr (parameters_of<P> > 0)
    if (parameter_gradients) {
      const int warps = (p.queries + owned - 1) / owned * warps_of_queries;
      const int64_t own = (row_of(p, q) / p.queries) * warps + q.first / owned * warps_of_queries + warp_of_block();
      for (int k = 0; k < parameters_of<P>; ++k) {
        const float total = across_lanes(parameter_sums[k], Plus{}, 32);
        if (lane_of_warp() == 0) parameter_gradients[k * int64_t{p.batch} * p.query_heads * warps + own] = total;
      }
    }
  const WriteRows<float> to = rows_of_queries(p, p.gradients.query, q, p.head_size);
  store_rows(to, own_query, p.queries, p.head_size, sum, [&](int, int) { return p.scale; });
}

// ---- dk and dv

template <class P, int Size>
__global__ void __launch_bounds__(tensor_core_attention_threads, 2)
    tensor_core_attention_backward_keys_kernel(const __grid_constant__ P p, const TensorCoreRowTerms* all_terms) {
  using Tile = TensorCoreKeysTile<Size>;
  constexpr bool softmax = decltype(P::weights)::softmax;
  constexpr int owned = Tile::owned_rows, walked = Tile::walked_rows, blocks = owned / 64;
  Tile& tile = shared_memory<Tile>();
  const int heads = p.batch * p.kv_heads, head = static_cast<int>(blockIdx.x) % heads;
  const int sequence = head / p.kv_heads, kv_head = head % p.kv_heads;
  wait_for_earlier();
  const KeyTile keys = {false, static_cast<int>(blockIdx.x) / heads * owned, length_of(p, sequence)};
  const int row = warp_of_block() * 16 * blocks, own_key = keys.first + row;
  const OperandOffsets<Size> offsets(row);
  typename Tile::Result dk[blocks] = {}, dv[blocks] = {};

  source_of_keys<Size>(p, sequence, kv_head).fetch(tile.own, keys.first, keys.end);
  const QueryTile first = {sequence, kv_head * (p.query_heads / p.kv_heads), 0};
  RowSource<Size, 2> rows = source_of_queries<Size>(p, first);
  const TensorCoreRowTerms* own_terms = nullptr;
  if constexpr (softmax) own_terms = in_register(all_terms + row_of_terms(p, first) + threadIdx.x % walked);
  constexpr int floats = sizeof(TensorCorePairTerms) / sizeof(float);
  const int offset = in_register(static_cast<int>(threadIdx.x) / 2 * floats + static_cast<int>(threadIdx.x) % 2);
  const auto next_head = [&] {
    rows.next_head();
    if constexpr (softmax) own_terms = in_register(own_terms + rows_of_terms(p));
  };
  const QueryWalk walk(p, first, keys, owned, walked, next_head);
  const auto fetch = [&](const QueryTile& q, int buffer) {
    if constexpr (softmax)
      if (const int n = static_cast<int>(threadIdx.x); n < walked) {
        const TensorCoreRowTerms* const from = own_terms + static_cast<unsigned>(q.first);
        const int valid = q.first + n < p.queries ? 4 : 0;
        float* const to = tile.terms[buffer][0].minus_centre + offset;
        cp_async<4>(to, &from->minus_centre, valid);
        cp_async<4>(to + 2, &from->minus_centre, valid);
        cp_async<4>(to + 4, &from->log_sum, valid);
      }
    rows.fetch(tile.walked[buffer], q.first, p.queries);
  };
  const WarpVisibility<true, walked, blocks, P> visibility(p, own_key, keys.end);
  const RareOptions options(p);
  walk_along(walk, fetch, [&](const QueryTile& q, int buffer) {
    TileMasks<blocks> masks;
    masks.find(visibility, p, options, q, keys);
    if (masks.coverage == Coverage::none) return;
    typename Tile::Scores s[blocks], g[blocks];
    multiply_rows(offsets, tile.own[0], tile.walked[buffer][0], s);
    const float factor = score_rows(p, options, s);
    if constexpr (!softmax)  // all weights and derivatives are 0 then
      if (options.zeros() && none_above_zero(masks.coverage, q.first + walked > p.queries, masks.visible, s)) return;
    const TermsOfColumns<walked> terms = {tile.terms[buffer]};
    multiply_gradients(p, options, offsets, tile.own[1], tile.walked[buffer][1], masks.kept, terms, g);
    typename Tile::Weights w[blocks], dt[blocks];
    differentiate_tile(p, function_of<float>(p, q), options, factor, masks, terms, s, g, 0, w, dt);
    add_weighted_rows(offsets, w, tile.walked[buffer][1], masks.coverage, dv);
    add_weighted_rows(offsets, dt, tile.walked[buffer][0], masks.coverage, dk);
  });
  allow_next();
  if (p.gradients.key.data)
    store_rows(rows_from(p, p.gradients.key, int64_t{sequence} * p.keys, int64_t{kv_head} * p.head_size), own_key,
               p.keys, p.head_size, dk, [&](int, int) { return p.scale; });
  if (p.gradients.value.data)
    store_rows(rows_from(p, p.gradients.value, int64_t{sequence} * p.keys, int64_t{kv_head} * p.value_size), own_key,
               p.keys, p.value_size, dv, [&](int, int) { return factor_of_weights(p, options); });
}

}  // namespace orrery::cuda
