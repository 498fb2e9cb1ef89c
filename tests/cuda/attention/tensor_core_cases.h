// Cases of attention on tensor cores, and their weightings.
#pragma once

#include <algorithm>

#include "tests/cuda/attention/on_gpu.h"
#include "tests/support/plain_attention.h"
#include "tests/support/rounded_attention.h"

namespace orrery {
namespace {

template <class F>
struct Marked : F {
  using tensor_cores = void;
};
struct HomogeneousRelu : Marked<Relu> {
  using positive_part = void;
};
using MarkedRelu = cuda::PointwiseWeights<HomogeneousRelu>;
using MarkedGelu = cuda::PointwiseWeights<Marked<GeluTanh>>;

// Templates, so that a test's own file instantiates the kernels: g++ warns about internal types of other files.
template <class C>
Results on_tensor_cores(const C& c) {
  AttentionProblem<float> p = c.template problem<float>();
  p.is_bf16 = true;
  REQUIRE(cuda::fits_tensor_cores(p));
  if (c.kind == Kind::softmax) return attention_on_gpu<bf16>(c, cuda::SoftmaxWeights{});
  if (c.kind == Kind::relu) return attention_on_gpu<bf16>(c, MarkedRelu{{}, true});
  return attention_on_gpu<bf16>(c, MarkedGelu{});
}

template <class C>
void check_case(C c) {
  c.fill(true);
  check_rounded_twice(c, on_tensor_cores(c), plain(c));
}

inline Sizes sizes_of(int64_t queries, int64_t keys, int64_t head_size, int64_t value_size) {
  return {.batch = 2,
          .queries = queries,
          .keys = keys,
          .query_heads = 4,
          .kv_heads = 2,
          .head_size = head_size,
          .value_size = value_size};
}

enum Choice { nothing, causal, offset, own, window, lengths, documents, table, cap, dropout, everything, choices };
inline Case case_with(Sizes sizes, Kind kind, int choice) {
  Case c{.sizes = sizes, .options = {.scale = 0.9 / std::sqrt(static_cast<double>(sizes.head_size))}, .kind = kind};
  const auto is = [&](Choice one) { return choice == one || choice == everything; };
  c.options.causal = choice == causal || is(offset);
  if (is(offset)) c.options.query_offset = std::max<int64_t>(sizes.keys - sizes.queries, 0);
  c.options.attend_to_self = !is(own);
  if (is(window)) c.options.window = choice == window ? 20 : 50;
  if (is(table)) c.table = mixed_table(sizes.queries, sizes.keys);
  if (is(cap)) c.options.soft_cap = 1.5;
  if (is(dropout)) c.options.dropout = 0.2, c.options.rng_key = RandomKey{5, 6};
  for (int64_t b = 0; b < sizes.batch; ++b) {
    if (is(lengths)) c.lengths.push_back(static_cast<int32_t>(std::max<int64_t>(sizes.keys - 1 - 60 * b, 0)));
    for (int64_t i = 0; i < sizes.queries && is(documents); ++i)
      c.query_document_ids.push_back(static_cast<int32_t>((i + c.options.query_offset + 3 * b) / 35));
    for (int64_t j = 0; j < sizes.keys && is(documents); ++j)
      c.key_document_ids.push_back(static_cast<int32_t>((j + 3 * b) / 35));
  }
  return c;
}

// Weights up to 64, sums below 2^24: all exact except the last rounding.
inline Case whole_case(Sizes sizes, int choice) {
  Case c = case_with(sizes, Kind::relu, choice);
  c.options.scale = 1, c.options.soft_cap = 0, c.options.dropout = c.options.dropout > 0 ? 0.5 : 0;
  c.fill(true);
  uint64_t seed = 31;
  for (Numbers* x : {&c.operands.query, &c.operands.key, &c.operands.value, &c.output_gradient}) {
    ++seed;
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] = std::round(1.4 * random_number(seed, i));
  }
  return c;
}
inline bool same_when_rounded(const Results& found, const Results& expected) {
  bool same = true;
  each_result_of(found, expected, [&](const char*, const Numbers& a, const Numbers& b) {
    same = same && a.size() == b.size();
    for (size_t i = 0; same && i < a.size(); ++i)
      same = a[i] == static_cast<double>(static_cast<float>(bf16(static_cast<float>(b[i]))));
  });
  return same;
}

inline bool same_bits(const Results& a, const Results& b) {
  bool same = a.log_sum == b.log_sum;
  each_result_of(a, b, [&](const char*, const Numbers& x, const Numbers& y) { same = same && x == y; });
  return same;
}

inline bool finite(const Numbers& x, int64_t begin, int64_t end) {
  return std::all_of(x.begin() + begin, x.begin() + end, [](double e) { return std::isfinite(e); });
}

}  // namespace
}  // namespace orrery
