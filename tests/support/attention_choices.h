// Attention cases that combine the options with each other and with the masks.
#pragma once

#include <algorithm>
#include <string>

#include "tests/support/plain_attention.h"

namespace orrery::testing {

// The number of combinations: `bits` has 11 bits, one per option.
inline constexpr uint32_t all_choices = 1 << 11;
inline Case case_of(uint32_t bits, Sizes sizes, Kind kind) {
  const auto next = [&] {
    const bool bit = bits & 1;
    bits >>= 1;
    return bit;
  };
  Case c{.sizes = sizes, .options = {.scale = 0.9 / std::sqrt(sizes.head_size)}, .kind = kind};
  c.options.causal = next(), c.options.attend_to_self = next();
  c.biased = next(), c.positioned = next(), c.spanned = next(), c.options.span_per_query = next();
  c.options.soft_cap = next() ? 1.5 : 0;
  c.sizes.slots = next() ? sizes.slots : 0;
  c.regularized = next();
  if (next()) c.options.dropout = 0.2, c.options.rng_key = RandomKey{5, 6};
  c.options.query_offset = next() ? sizes.keys - sizes.queries : 0;
  c.options.ramp = c.spanned ? 5.3 : 0;
  return c;
}

// The entropy depends on ln w. Where w is almost 0, rounding a score moves the entropy's gradient
// by more than any fixed tolerance. The plain loop on operands moved by `unit` shows how much.
inline Results plain_moved(Case c, double unit) {
  uint64_t seed = 21;
  for (Numbers* x : c.operands.all()) {
    ++seed;
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] *= 1 + unit * (random_number(seed, i) > 0 ? 1 : -1);
  }
  return plain(c);
}

inline constexpr Sizes one{.batch = 2,
                           .queries = 1,
                           .keys = 17,
                           .query_heads = 4,
                           .kv_heads = 2,
                           .head_size = 8,
                           .value_size = 20,
                           .slots = 5},
    small{.batch = 2,
          .queries = 17,
          .keys = 17,
          .query_heads = 2,
          .kv_heads = 1,
          .head_size = 8,
          .value_size = 5,
          .slots = 3},
    medium{.batch = 2,
           .queries = 65,
           .keys = 70,
           .query_heads = 2,
           .kv_heads = 2,
           .head_size = 20,
           .value_size = 8,
           .slots = 18};

inline std::string name_of(const Sizes& s) {
  return std::to_string(s.queries) + " queries, " + std::to_string(s.keys) + " keys";
}

// Returns a case whose spans and attend_to_self = false mask some operands: these may be NaN.
inline Case case_with_masked_operands(Kind kind) {
  Case c{.sizes = medium, .options = {.scale = 0.3, .attend_to_self = false, .ramp = 5.3}, .kind = kind};
  c.biased = c.positioned = c.spanned = c.regularized = true;
  c.fill();
  return c;
}
inline void spoil_masked_operands(Case& c) {
  // Masked: distance 0, distances from the end of the longest span on, and key 3 from query 40 on.
  const int64_t width = c.sizes.head_size;
  std::fill_n(c.operands.relative_embedding.begin(), width, not_a_number);
  std::fill(c.operands.relative_embedding.begin() + 30 * width, c.operands.relative_embedding.end(), not_a_number);
  for (int64_t h = 0; h < 2; ++h) {
    const auto bias = c.operands.relative_bias.begin() + h * c.sizes.distances;
    bias[0] = not_a_number;
    std::fill(bias + 30, bias + c.sizes.distances, not_a_number);
  }
  for (Numbers* x : {&c.operands.key, &c.operands.value})
    std::fill_n(x->begin() + 3 * static_cast<int64_t>(x->size()) / (2 * 70), 4, not_a_number);
}

// Returns a case with all options and all masks.
inline Case all_options_at_once(const Sizes& sizes, Kind kind) {
  Case c = case_of(all_choices - 1, sizes, kind);
  c.options.causal = false, c.options.attend_to_self = false, c.options.window = 60;
  c.table = mixed_table(sizes.queries, sizes.keys);
  for (int64_t b = 0; b < sizes.batch; ++b) {
    c.lengths.push_back(static_cast<int32_t>(sizes.keys - 4 * b));
    for (int64_t i = 0; i < sizes.queries; ++i) c.query_document_ids.push_back(static_cast<int32_t>((i + 3 * b) / 50));
    for (int64_t j = 0; j < sizes.keys; ++j) c.key_document_ids.push_back(static_cast<int32_t>((j + 3 * b) / 50));
  }
  return c;
}

}  // namespace orrery::testing
