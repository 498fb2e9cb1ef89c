#include "nn/length.h"

#include <algorithm>

#include "engine/ops.h"

namespace orrery::nn {
namespace {

struct FixedSettings {
  int64_t length = 0;
  template <class V>
  void visit(V& v) {
    v("n", length, "the length", at_least(1));
  }
};

}  // namespace

LengthRule::LengthRule(std::string_view owner, const Spec& spec, bool causal) {
  if (spec.name == "fixed") {
    FixedSettings settings;
    read_settings(spec, settings);
    kind_ = Kind::fixed, fixed_ = settings.length;
    check(fixed_ >= 1, owner, ": length=fixed(n) needs n, at least 1: fixed(256)");
    return;
  }
  check(spec.items.empty() && (spec.name == "keys_visible" || spec.name == "row_index" || spec.name == "padded_length"),
        owner, ": length is '", spec, "'; there are keys_visible, row_index, padded_length and fixed(n)");
  kind_ = spec.name == "keys_visible" ? Kind::keys_visible
          : spec.name == "row_index"  ? Kind::row_index
                                      : Kind::padded_length;
  check(kind_ != Kind::row_index || causal, owner,
        ": length=row_index counts the tokens before a query, so it needs causal attention; use keys_visible");
}

Tensor LengthRule::length(const Reading& r, const ReadingOptions& o) const {
  const Dtype dtype = r.query.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const int64_t queries = r.query.size(1), slots = r.slot_key ? r.slot_key.size(0) : 0;
  if (kind_ == Kind::fixed) return Tensor::full({1, 1, 1, 1}, static_cast<double>(fixed_), dtype);
  const auto at_least_one = [](int64_t n) { return static_cast<double>(std::max<int64_t>(n, 1)); };
  check(kind_ != Kind::padded_length || o.query_offset == 0,
        "length=padded_length: a text that goes on from a cache has no padded length; use keys_visible or fixed(n)");
  if (kind_ == Kind::padded_length) return Tensor::full({1, 1, 1, 1}, at_least_one(r.key.size(1) + slots), dtype);
  if (kind_ == Kind::keys_visible) {
    const Tensor seen = visible_keys(r, o, Dtype::f64) + static_cast<double>(slots);
    const Tensor n = maximum(seen, Tensor::full({1}, 1, Dtype::f64)).to(dtype);
    return n.reshape(Shape{n.size(0), queries, 1, 1});
  }
  const int64_t batch = o.query_documents ? r.query.size(0) : 1;
  std::vector<double> n;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0, begin = -o.query_offset - o.keys_dropped; i < queries; ++i) {
      const int32_t* const ids = o.query_documents ? o.query_documents.data<int32_t>() + b * queries : nullptr;
      if (ids && i > 0 && ids[i] != ids[i - 1]) begin = i;
      n.push_back(at_least_one(i - begin + 1 + slots));
    }
  return Tensor::from(Shape{batch, queries, 1, 1}, n, dtype);
}

Tensor LengthRule::log_length(const Reading& r, const ReadingOptions& o) const {
  const NoGrad guard;
  return log(length(r, o));
}

Tensor times_once(const Tensor& x, const Tensor& factor) { return (x.to(factor.dtype()) * factor).to(x.dtype()); }

}  // namespace orrery::nn
