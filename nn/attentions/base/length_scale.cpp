#include "nn/attentions/base/length_scale.h"

#include <algorithm>
#include <bit>

#include "engine/attention_formula/formula.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "engine/settings/config.h"
#include "engine/types/dispatch.h"

namespace orrery::nn {
namespace {

struct FixedSettings {
  int64_t length = 0;
  template <class V>
  void visit(V& v) {
    v("n", length, "length, the same for all queries", between(1, 16777216));
  }
};

// Row r is query r % queries of sequence r / queries.
template <class T>
struct VisibleKeys {
  MaskView mask;
  int lowest;  // -(number of dropped keys)
  Out<T> count;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const MaskView my = mask;
    const int64_t sequence = r / my.queries;
    const int i = static_cast<int>(r % my.queries), length = length_of(my, sequence), own = i + my.masked;
    const Interval band = keys_of_queries(my, i, 1, length, my.bits ? 0 : lowest);
    const auto of_key = [=](int j) { return j < length && is_visible(my, sequence, i, j) ? 1 : 0; };
    const auto of_word = [=](int w) {  // of the table: keys [32 w, 32 w + 32)
      const int begin = maximum(0, band.begin - 32 * w), end = minimum(32, band.end - 32 * w);
      const uint32_t all = my.bits[int64_t{i} * my.words + w] & ~(own / 32 == w ? 1u << own % 32 : 0u);
      return begin < end ? std::popcount(all & ~0u << begin & ~0u >> (32 - end)) : 0;
    };
    const int by_band = maximum(0, band.end - band.begin) - (own >= band.begin && own < band.end ? 1 : 0);
    const int n = my.query_document_ids ? row.sum(of_key) : my.bits ? row.sum(of_word) : by_band;
    const Out<T> out = count;
    row.once([=] { out[r] = static_cast<Arithmetic<T>>(n); });
  }
};
template <class T>
struct RealRows {
  int64_t queries, offset;
  const int32_t* query_lengths;
  Out<T> real;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const bool is_real = r % queries + offset < query_lengths[r / queries];
    const Out<T> out = real;
    row.once([=] { out[r] = Arithmetic<T>(is_real ? 1 : 0); });
  }
};

}  // namespace

Tensor visible_keys(const AttentionInputs& in, const AttentionMask& m, Dtype dtype) {
  const int64_t batch = m.lengths || m.query_document_ids ? in.query.size(0) : 1, keys = in.key.size(1);
  const Tensor n = Tensor::empty_like(in.query, Shape{batch, in.query.size(1)}, dtype);
  const MaskView mask = view_of(m, in.query.size(1), keys);
  dispatch(dtype, "visible_keys", [&]<class T>() {
    rows(n.device(), n.numel(), m.query_document_ids ? mask.keys : mask.bits ? (mask.keys + 31) / 32 : 1,
         VisibleKeys<T>{mask, -static_cast<int>(m.keys_dropped), {n.mutable_data<T>()}});
  });
  return n;
}

Tensor real_rows(const AttentionInputs& in, const AttentionMask& m) {
  const Dtype dtype = in.query.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const int64_t queries = in.query.size(1);
  if (!m.query_lengths) return Tensor::full({1, 1, queries}, 1, dtype, in.query.device());
  const Tensor real = Tensor::empty_like(in.query, Shape{in.query.size(0), 1, queries}, dtype);
  dispatch(dtype, "real_rows", [&]<class T>() {
    rows(real.device(), real.numel(), 1,
         RealRows<T>{queries, m.query_offset, m.query_lengths.data<int32_t>(), {real.mutable_data<T>()}});
  });
  return real;
}

Tensor counted_keys(const AttentionInputs& in, const AttentionMask& m) {
  const Tensor real = real_rows(in, m), n = visible_keys(in, m, real.dtype());
  const auto slots = static_cast<double>(in.slot_key ? in.slot_key.size(0) : 0);
  return real * (n.reshape(Shape{n.size(0), 1, n.size(1)}) + slots);
}

LengthScale::LengthScale(std::string_view owner, const Spec& spec, bool causal) {
  if (spec.name == "fixed") {
    FixedSettings settings;
    read_settings(spec, settings);
    kind_ = Kind::fixed, fixed_ = settings.length;
    check(fixed_ >= 1, owner, ": length=fixed(n) needs n, at least 1, as in fixed(256)");
    return;
  }
  check(spec.items.empty() && (spec.name == "keys_visible" || spec.name == "row_index" || spec.name == "padded_length"),
        owner, ": length '", spec, "' is invalid; use keys_visible, row_index, padded_length or fixed(n)");
  kind_ = spec.name == "keys_visible" ? Kind::keys_visible
          : spec.name == "row_index"  ? Kind::row_index
                                      : Kind::padded_length;
  check(kind_ != Kind::row_index || causal, owner,
        ": length=row_index counts the tokens before a query, so it needs causal attention; use keys_visible");
}

Tensor LengthScale::length(const AttentionInputs& in, const AttentionMask& m) const {
  const Dtype dtype = in.query.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const Device device = in.query.device();
  const int64_t slots = in.slot_key ? in.slot_key.size(0) : 0;
  if (kind_ == Kind::fixed) return Tensor::full({1, 1, 1, 1}, static_cast<double>(fixed_), dtype, device);
  check(kind_ != Kind::padded_length || m.query_offset == 0,
        "length=padded_length: a text continued from a cache has no padded length; use keys_visible or fixed(n)");
  if (kind_ == Kind::padded_length)
    return Tensor::full({1, 1, 1, 1}, static_cast<double>(std::max<int64_t>(1, in.key.size(1) + slots)), dtype, device);
  // The index in a document is the number of keys that a causal mask alone leaves in it.
  AttentionMask up_to_query{.query_offset = m.query_offset, .keys_dropped = m.keys_dropped};
  up_to_query.query_document_ids = m.query_document_ids, up_to_query.key_document_ids = m.key_document_ids;
  const Tensor n = visible_keys(in, kind_ == Kind::row_index ? up_to_query : m, Dtype::f64);
  const Tensor all = n + static_cast<double>(slots), least = Tensor::full({1}, 1, n.dtype(), device);
  return maximum(all, least).to(dtype).reshape(Shape{n.size(0), n.size(1), 1, 1});
}

double LengthScale::length(const QueryGroup& queries) const {
  const double counted = kind_ == Kind::fixed          ? static_cast<double>(fixed_)
                         : kind_ == Kind::keys_visible ? queries.keys
                         : kind_ == Kind::row_index    ? queries.keys_up_to_query
                                                       : queries.all;
  return std::max(1.0, counted);
}

Tensor LengthScale::log_length(const AttentionInputs& in, const AttentionMask& m) const {
  const NoGrad guard;
  return log(length(in, m));
}

Tensor times_once(const Tensor& x, const Tensor& factor) { return (x.to(factor.dtype()) * factor).to(x.dtype()); }

}  // namespace orrery::nn
