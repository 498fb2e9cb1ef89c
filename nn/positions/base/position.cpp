#include "nn/positions/base/position.h"

#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "nn/base/spec_family.h"

namespace orrery::nn {

Registry<PositionEntry>& positions() {
  static Registry<PositionEntry> all("position");
  return all;
}
std::unique_ptr<Position> make_position(const Spec& spec, const PositionOptions& options) {
  return make_from(positions(), spec, options);
}

const bool family_of_positions = add_spec_family<positions>("position");

namespace {

struct PlaceInDocument {  // token r % T of sequence r / T: number of earlier tokens in its document
  const int32_t* documents;
  int32_t* place;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t t = r % row.n;
    const int32_t* const of = documents + (r - t);
    const int before = row.sum([=](int s) { return s < t && of[s] == of[t] ? 1 : 0; });
    int32_t* const out = place;
    row.once([=] { out[r] = before; });
  }
};

}  // namespace

Tensor places_of(const Tensor& x, const Pass& pass) {
  if (!pass.document_ids) return {};
  check(!pass.cache,
        "positions: document_ids cannot be combined with a cache, which continues one text per sequence; leave one of "
        "them out");
  const Shape shape{x.size(0), x.size(1)};
  check(pass.document_ids.dtype() == Dtype::i32 && pass.document_ids.shape() == shape,
        "positions: document_ids have shape ", pass.document_ids.shape(), " and dtype ",
        name(pass.document_ids.dtype()), "; they must be i32 of shape ", shape);
  const Tensor places = Tensor::empty_like(pass.document_ids);
  rows(places.device(), places.numel(), static_cast<int>(shape[1]),
       PlaceInDocument{pass.document_ids.data<int32_t>(), places.mutable_data<int32_t>()});
  return places;
}

Tensor next_rows(std::string_view name, const Tensor& table, const Tensor& x, const Pass& pass) {
  const int64_t begin = pass.offset(), end = begin + x.size(1);
  check(end <= table.size(0), name, ": ", end, " positions are needed, but the table has ", table.size(0),
        "; use a longer context in the model's settings");
  return table.slice(begin, end);
}

Tensor rows_at_places(std::string_view name, const Tensor& table, const Tensor& x, const Pass& pass) {
  check(x.shape().rank() >= 3, name, ": needs (batch, time, width), not ", x.shape());
  const Tensor next = next_rows(name, table, x, pass), places = places_of(x, pass);
  return (places ? index_select(table, places) : next).to(x.dtype());
}

}  // namespace orrery::nn
