// The formulas of engine/attend.h by simple operations, which differentiate themselves: slow, and plain to see.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/ops.h"
#include "nn/attend.h"
#include "nn/seen_product.h"

namespace orrery::nn {
namespace {

// (B, Tk, Hk, D) -> (B, H, Tk, D), each key head repeated for the query heads that share it
Tensor heads_first(const Tensor& x, int64_t heads) {
  const Tensor t = permute(x, {0, 2, 1, 3});
  if (t.size(1) == heads) return t;
  const Shape once{t.size(0), t.size(1), 1, t.size(2), t.size(3)};
  return broadcast_to(t.reshape(once), once.with(2, heads / t.size(1)))
      .reshape(Shape{t.size(0), heads, t.size(2), t.size(3)});
}
// (N, Hk, D) -> (B, H, N, D)
Tensor slots_of(const Tensor& x, int64_t batch, int64_t heads) {
  const Shape once{1, x.size(0), x.size(1), x.size(2)};
  return heads_first(broadcast_to(x.reshape(once), once.with(0, batch)), heads);
}
Tensor joined(const Tensor& context, const Tensor& slots, int axis) {
  return slots ? concatenate({context, slots}, axis) : context;
}

// |i + query_offset - j| for all pairs, (Tq, Tk) i32
Tensor distances(const Reading& r, const ReadingOptions& o, int64_t most) {
  std::vector<int32_t> x;
  for (int64_t i = 0; i < r.query.size(1); ++i)
    for (int64_t j = 0; j < r.key.size(1); ++j)
      x.push_back(static_cast<int32_t>(std::min(std::abs(i + o.query_offset - j), most)));
  return Tensor::from(Shape{r.query.size(1), r.key.size(1)}, x);
}

bool sees(const ReadingOptions& o, int64_t batch, int64_t i, int64_t j, int64_t queries, int64_t keys) {
  const int64_t x = i + o.query_offset - j;
  if (o.causal && x < 0) return false;
  if (!o.own && x == 0) return false;
  if (o.window > 0 && std::abs(x) >= o.window) return false;
  if (o.lengths && j >= o.lengths.data<int32_t>()[batch]) return false;
  return !o.query_documents ||
         o.query_documents.data<int32_t>()[batch * queries + i] == o.key_documents.data<int32_t>()[batch * keys + j];
}

// m = clip((R + z - |x|) / R, 0, 1), 1 for slots: (B or 1, H, Tq, Tk + N).  The slope is 0 at both ends.
Tensor span_mask(const Reading& r, const ReadingOptions& o) {
  const Dtype dtype = r.query.dtype();
  const int64_t batch = r.span.shape().rank() == 3 ? r.query.size(0) : 1, queries = r.query.size(1);
  const Tensor z = r.span.shape().rank() == 3 ? r.span.reshape(Shape{batch, r.span.size(1), queries, 1})
                                              : r.span.reshape(Shape{1, r.span.size(0), 1, 1});
  const Tensor ramp = (z.to(dtype) - distances(r, o, int64_t{1} << 29).to(dtype)) / o.ramp + 1.0;
  const Tensor zero = Tensor::zeros({1}, dtype), minus_one = Tensor::full({1}, -1, dtype);
  const Tensor m = -maximum(minus_one, -maximum(zero, ramp));
  if (!r.slot_key) return m;
  return concatenate({m, Tensor::full(Shape{m.size(0), m.size(1), m.size(2), r.slot_key.size(0)}, 1, dtype)}, 3);
}

}  // namespace

Tensor scores_of(const Reading& r, const ReadingOptions& o) {
  const int64_t batch = r.query.size(0), queries = r.query.size(1), heads = r.query.size(2), size = r.query.size(3);
  const Tensor q = permute(r.query, {0, 2, 1, 3}), seen = visibility(r, o), zero = Tensor::zeros({1}, q.dtype());
  const Tensor keys = joined(heads_first(r.key, heads), r.slot_key ? slots_of(r.slot_key, batch, heads) : Tensor(), 2);
  Tensor s = seen_scores(q, keys, seen) * o.scale;
  const auto of_distance = [&](const Tensor& term) {  // slots have no distance
    const Tensor of_context = where(slice(seen, 3, 0, r.key.size(1)), term, zero);
    return r.slot_key ? joined(of_context, Tensor::zeros(of_context.shape().with(3, r.slot_key.size(0)), q.dtype()), 3)
                      : of_context;
  };
  if (r.distance_key) {  // p_|x| for every pair: (Tq, Tk, D)
    const Tensor p = gather_rows(r.distance_key, distances(r, o, r.distance_key.size(0) - 1));
    s = s + of_distance(sum(q.reshape(Shape{batch, heads, queries, 1, size}) * p, {-1}) * o.scale);
  }
  if (r.distance_bias) {
    const Tensor b = gather_rows(transpose(r.distance_bias), distances(r, o, r.distance_bias.size(1) - 1));
    s = s + of_distance(permute(b, {2, 0, 1}).to(s.dtype()).reshape(Shape{1, heads, queries, r.key.size(1)}));
  }
  return o.soft_cap > 0 ? tanh(s / o.soft_cap) * o.soft_cap : s;
}

Tensor visibility(const Reading& r, const ReadingOptions& o) {
  const int64_t batch = o.lengths || o.query_documents ? r.query.size(0) : 1;
  const int64_t queries = r.query.size(1), keys = r.key.size(1), slots = r.slot_key ? r.slot_key.size(0) : 0;
  std::vector<double> seen;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys + slots; ++j) seen.push_back(j >= keys || sees(o, b, i, j, queries, keys));
  const Tensor by_place = Tensor::from(Shape{batch, 1, queries, keys + slots}, seen, r.query.dtype());
  return r.span ? by_place * step(span_mask(r, o)).detach() : by_place;
}

Tensor hidden_scores(const Reading& r, const ReadingOptions& o) {
  const Tensor s = scores_of(r, o);
  return where(visibility(r, o), s, Tensor::full({1}, -INFINITY, s.dtype()));
}

Tensor weights_of(const Reading& r, const ReadingOptions& o, const std::optional<Activation>& function) {
  const Tensor s = scores_of(r, o), zero = Tensor::zeros({1}, s.dtype());
  const Tensor seen = visibility(r, o), m = r.span ? span_mask(r, o) : Tensor();
  const auto masked = [&](const Tensor& w) { return where(seen, m ? w * m : w, zero); };
  if (function) return masked((*function)(where(seen, s, zero)));
  const Tensor hidden = where(seen, s, Tensor::full({1}, -INFINITY, s.dtype()));
  const Tensor largest = max(hidden, -1, true).detach();
  const Tensor some = step(sum(broadcast_to(seen, s.shape()), {-1}, true));  // a query that sees nothing: zeros
  const Tensor e = masked(exp(where(seen, s - where(some, largest, zero), zero)));
  return where(some, e / where(some, sum(e, {-1}, true), Tensor::full({1}, 1, s.dtype())), zero);
}

Tensor read_values(const Tensor& weights, const Reading& r, const ReadingOptions& o) {
  const int64_t heads = r.query.size(2);
  const Tensor seen = visibility(r, o),
               values = joined(heads_first(r.value, heads),
                               r.slot_value ? slots_of(r.slot_value, r.query.size(0), heads) : Tensor(), 2);
  if (o.dropout == 0) return permute(seen_sum(weights, values, seen), {0, 2, 1, 3});
  const int64_t keys = weights.size(3), blocks = (keys + 3) / 4;
  const RandomKey random_key = o.random_key.now();
  std::vector<double> keep;
  for (int64_t row = 0; row < weights.count() / keys; ++row)
    for (int64_t j = 0; j < keys; ++j) {
      const auto word = random_key.bits(static_cast<uint64_t>(row * blocks + j / 4))[static_cast<size_t>(j % 4)];
      keep.push_back(static_cast<double>(word) >= o.dropout * 4294967296.0 ? 1 / (1 - o.dropout) : 0);
    }
  const Tensor kept = weights * Tensor::from(weights.shape(), keep, weights.dtype());
  return permute(seen_sum(kept, values, seen), {0, 2, 1, 3});
}

Read row_statistics(const Tensor& w, const Tensor& visible) {
  const Tensor zero = Tensor::zeros({1}, w.dtype()), one = Tensor::full({1}, 1, w.dtype());
  const Tensor positive = maximum(zero, w), total = sum(positive, {-1}, true), alive = step(total);
  const Tensor p = positive / where(alive, total, one), above = step(p);
  const Tensor seen = broadcast_to(visible, w.shape()), count = sum(seen, {-1});
  const Tensor zeros = sum(seen * where(w, zero, one), {-1});
  const Tensor largest = max(where(seen, w, Tensor::full({1}, -INFINITY, w.dtype())), -1);
  return {.output = {},
          .sum = sum(w, {-1}),
          .entropy = -sum(where(above, p * log(where(above, p, one)), zero), {-1}),
          .zero_share = (zeros / maximum(count, one)).detach(),
          .maximum = where(count, largest, zero).detach()};
}

Read attend_reference(const Reading& reading, const ReadingOptions& options, const std::optional<Activation>& function,
                      bool statistics) {
  const Tensor w = weights_of(reading, options, function);
  Read read;
  if (statistics) read = row_statistics(w, visibility(reading, options));
  read.output = read_values(w, reading, options);
  return read;
}

Tensor real_rows(const Reading& r, const ReadingOptions& o) {
  const Dtype dtype = r.query.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const int64_t queries = r.query.size(1);
  if (!o.query_lengths) return Tensor::full({1, 1, queries}, 1, dtype);
  std::vector<double> real;
  for (int64_t b = 0; b < r.query.size(0); ++b)
    for (int64_t i = 0; i < queries; ++i) real.push_back(i + o.query_offset < o.query_lengths.data<int32_t>()[b]);
  return Tensor::from(Shape{r.query.size(0), 1, queries}, real, dtype);
}

Tensor counted_keys(const Reading& r, const ReadingOptions& o) {
  const Tensor real = real_rows(r, o), n = visible_keys(r, o, real.dtype());
  const auto slots = static_cast<double>(r.slot_key ? r.slot_key.size(0) : 0);
  return real * (n.reshape(Shape{n.size(0), 1, n.size(1)}) + slots);
}

Tensor visible_keys(const Reading& r, const ReadingOptions& o, Dtype dtype) {
  const int64_t batch = o.lengths || o.query_documents ? r.query.size(0) : 1;
  const int64_t queries = r.query.size(1), keys = r.key.size(1);
  std::vector<double> count;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t place = i + o.query_offset, length = o.lengths ? o.lengths.data<int32_t>()[b] : keys;
      const int64_t begin = o.window > 0 ? std::max(place - o.window + 1, -o.keys_dropped) : 0;
      const int64_t band_end = o.window > 0 ? std::min(place + o.window, length) : length;
      const int64_t end = o.causal ? std::min(place + 1, band_end) : band_end;
      int64_t n = std::max<int64_t>(end - begin, 0) - (!o.own && place >= begin && place < end);
      if (o.query_documents) {
        n = 0;
        for (int64_t j = begin; j < end; ++j) n += sees(o, b, i, j, queries, keys);
      }
      count.push_back(static_cast<double>(n));
    }
  return Tensor::from(Shape{batch, queries}, count, dtype);
}

}  // namespace orrery::nn
