// What makes no sense is told before anything is computed, by name and value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/attention/operands.h"
#include "engine/base/check.h"

namespace orrery::detail::attend {

// Extents of the operands, as the caller gives them.
struct Extents {
  Extent query, key, value, output, slot_key, slot_value, relative_embedding;
};
inline Extents extents_of(const AttendSizes& s) {
  const int64_t queries = s.batch * s.queries, keys = s.batch * s.keys;
  return {{queries, s.query_heads, s.head_size}, {keys, s.key_heads, s.head_size},
          {keys, s.key_heads, s.value_size},     {queries, s.query_heads, s.value_size},
          {s.slots, s.key_heads, s.head_size},   {s.slots, s.key_heads, s.value_size},
          {s.distances, 1, s.head_size}};
}

inline void check_sizes(const AttendSizes& s) {
  check(s.batch >= 0 && s.queries >= 0 && s.keys >= 0, "attend: batch (", s.batch, "), queries (", s.queries,
        ") and keys (", s.keys, ") must not be negative");
  check(s.slots >= 0 && s.distances >= 0, "attend: slots (", s.slots, ") and distances (", s.distances,
        ") must not be negative");
  const int64_t most = std::max({s.queries, s.keys, s.slots, s.distances});
  check(most < int64_t{1} << 29, "attend: ", most, " tokens given; at most 2^29 - 1 are possible");
  check(s.query_heads >= 1 && s.key_heads >= 1 && s.query_heads % s.key_heads == 0, "attend: query heads (",
        s.query_heads, ") must be a multiple of key heads (", s.key_heads, ")");
  check(s.head_size >= 1 && s.value_size >= 1, "attend: head size (", s.head_size, ") and value size (", s.value_size,
        ") must be at least 1");
}

inline void check_options(const AttendOptions& o) {
  check(o.window >= 0, "attend: window is ", o.window, "; a number of keys is needed, or 0 for none");
  check(std::abs(o.query_offset) < int64_t{1} << 29, "attend: query offset ", o.query_offset, " is beyond 2^29");
  check(!o.query_document_ids == !o.key_document_ids, "attend: documents of ",
        o.query_document_ids ? "queries" : "keys", " are given without those of ",
        o.query_document_ids ? "keys" : "queries", "; both or none are needed");
  check(o.soft_cap >= 0 && std::isfinite(o.soft_cap), "attend: soft cap is ", o.soft_cap,
        "; a positive number is needed, or 0 for none");
  check(o.ramp >= 0 && std::isfinite(o.ramp), "attend: ramp is ", o.ramp, "; a positive number of tokens is needed");
  check(o.dropout >= 0 && o.dropout < 1, "attend: dropout is ", o.dropout, "; a share in [0, 1) is needed");
}
inline void check_lengths(const AttendSizes& s, const AttendOptions& o) {
  for (int64_t b = 0; o.key_lengths && b < s.batch; ++b)
    check(o.key_lengths[b] >= 0 && o.key_lengths[b] <= s.keys, "attend: length ", o.key_lengths[b], " of sequence ", b,
          " is outside [0, ", s.keys, "], the number of keys");
}

template <class T>
void check_stride(const char* what, Tokens<T> tokens, const Extent& extent) {
  check(tokens.stride >= extent.heads * extent.size, "attend: ", what, " have a stride of ", tokens.stride,
        "; a token of ", extent.heads, " heads of ", extent.size, " has ", extent.heads * extent.size, " elements");
}
template <class T>
void check_wanted(const char* what, Tokens<T> tokens, const Extent& extent) {
  if (tokens.data) check_stride(what, tokens, extent);
}

// The largest distance |x| at which a query of the sequence sees a key: 0 if none does.  `reach`: keys farther away are
// beyond the span.
inline int64_t largest_distance(const AttendSizes& s, const AttendOptions& o, int64_t sequence, int64_t query,
                                double reach, int64_t enough) {
  const int64_t place = query + o.query_offset, length = o.key_lengths ? o.key_lengths[sequence] : s.keys;
  const auto limit = static_cast<int64_t>(std::min(std::ceil(reach) - 1, 0x1p30));
  const int64_t most = o.window > 0 ? std::min(limit, o.window - 1) : limit;
  const auto is_seen = [&](int64_t key) {
    return !o.query_document_ids ||
           o.query_document_ids[sequence * s.queries + query] == o.key_document_ids[sequence * s.keys + key];
  };
  int64_t found = 0;
  for (int64_t key = std::max<int64_t>(0, place - most); key <= std::min(length - 1, place - enough); ++key)
    if (is_seen(key)) {
      found = place - key;
      break;
    }
  const int64_t last = std::min(length - 1, o.causal ? place : place + most);
  for (int64_t key = last; key >= std::max<int64_t>(0, place + std::max(enough, found + 1)); --key)
    if (is_seen(key)) return key - place;
  return found;
}

template <class A>
void check_distances(const AttendSizes& s, const AttendOptions& o, const A* span) {
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t i = 0; i < s.queries; ++i) {
      double reach = span ? 0 : INFINITY;
      for (int64_t h = 0; span && h < s.query_heads; ++h)
        reach = std::max(reach, o.ramp + span[o.span_per_query ? (b * s.query_heads + h) * s.queries + i : h]);
      const int64_t found = largest_distance(s, o, b, i, reach, std::max<int64_t>(s.distances, 1));
      check(found < std::max<int64_t>(s.distances, 1), "attend: the terms of the distance have ", s.distances,
            " rows, but query ", i, " of sequence ", b, " sees a key at distance ", found, "; at least ", found + 1,
            " are needed");
    }
}

template <class T>
void check_inputs(const AttendSizes& s, const AttendOptions& options, const AttendInputs<T>& inputs) {
  check_sizes(s);
  check_options(options);
  const Extents extents = extents_of(s);
  check_stride("queries", inputs.query, extents.query);
  if (s.keys > 0) {
    check_stride("keys", inputs.key, extents.key);
    check_stride("values", inputs.value, extents.value);
  }
  check(!inputs.span || options.ramp > 0, "attend: a span is given without a ramp; its length in tokens is needed");
  if (s.slots > 0) {
    check(inputs.slot_key.data && inputs.slot_value.data, "attend: ", s.slots, " slots are given without ",
          inputs.slot_key.data     ? "values"
          : inputs.slot_value.data ? "keys"
                                   : "keys and values");
    check_stride("slot keys", inputs.slot_key, extents.slot_key);
    check_stride("slot values", inputs.slot_value, extents.slot_value);
  }
  const bool with_distances = inputs.relative_bias || inputs.relative_embedding.data;
  check(with_distances || s.distances == 0, "attend: ", s.distances,
        " distances are given without a bias or keys for them");
  if (!with_distances) return;
  check(s.distances >= 1, "attend: terms of the distance are given with 0 rows; at least 1 is needed");
  if (inputs.relative_embedding.data)
    check_stride("distance keys", inputs.relative_embedding, extents.relative_embedding);
}

// What needs the numbers themselves.
template <class T>
void check_numbers(const AttendSizes& s, const AttendOptions& options, const AttendInputs<T>& inputs) {
  check_lengths(s, options);
  if (s.distances > 0) check_distances(s, options, inputs.span);
}
// The same for numbers that cannot be read: the terms must be enough for whatever these could be.
inline void check_unread_numbers(const AttendSizes& s, AttendOptions options) {
  options.key_lengths = options.query_document_ids = options.key_document_ids = nullptr;
  if (s.batch > 0 && s.distances > 0) {
    AttendSizes one = s;
    one.batch = 1;
    check_distances<double>(one, options, nullptr);
  }
}

template <class T>
void check_gradients(const AttendSizes& s, const AttendInputs<T>& inputs, const AttendGradients<T>& gradients,
                     const StatisticsGradients<Arithmetic<T>>& statistics) {
  const Extents extents = extents_of(s);
  check_wanted("query gradients", gradients.query, extents.query);
  check_wanted("key gradients", gradients.key, extents.key);
  check_wanted("value gradients", gradients.value, extents.value);
  check_wanted("slot key gradients", gradients.slot_key, extents.slot_key);
  check_wanted("slot value gradients", gradients.slot_value, extents.slot_value);
  check_wanted("distance key gradients", gradients.relative_embedding, extents.relative_embedding);
  const auto check_given = [](const char* what, bool wanted, bool given) {
    check(given || !wanted, "attend: gradients of the ", what, " are wanted, but it is not given");
  };
  check_given("distance keys", gradients.relative_embedding.data, inputs.relative_embedding.data);
  check_given("distance bias", gradients.relative_bias, inputs.relative_bias);
  check_given("span", gradients.span, inputs.span);
  check(!statistics.entropy_gradient || (statistics.entropy && statistics.positive_sum),
        "attend: gradients of the entropy are given without the entropy and the positive sum that attend_statistics "
        "wrote");
}

}  // namespace orrery::detail::attend
