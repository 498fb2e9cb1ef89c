#include "nn/position.h"

#include "engine/loops.h"
#include "engine/ops.h"

namespace orrery::nn {

namespace {

struct PlaceInDocument {  // of token r % T in sequence r / T: the tokens of its document before it
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
  if (!pass.documents) return {};
  check(!pass.cache, "positions: a cache goes on with one text for each sequence, so there can be no documents");
  const Shape shape{x.size(0), x.size(1)};
  check(pass.documents.dtype() == Dtype::i32 && pass.documents.shape() == shape, "positions: documents of shape ",
        pass.documents.shape(), " and dtype ", name(pass.documents.dtype()), "; they must be i32 of shape ", shape);
  const Tensor places = Tensor::empty_like(pass.documents);
  rows(places.device(), places.count(), static_cast<int>(shape[1]),
       PlaceInDocument{pass.documents.data<int32_t>(), places.mutable_data<int32_t>()});
  return places;
}

Tensor next_rows(std::string_view name, const Tensor& table, const Tensor& x, const Pass& pass) {
  const int64_t begin = pass.offset(), end = begin + x.size(1);
  check(end <= table.size(0), name, ": ", end, " positions asked for, the table has ", table.size(0),
        "; use a longer context in the model's settings");
  return table.slice(begin, end);
}

Tensor rows_at_places(std::string_view name, const Tensor& table, const Tensor& x, const Pass& pass) {
  check(x.shape().rank() >= 3, name, ": needs (batch, time, width), not ", x.shape());
  const Tensor next = next_rows(name, table, x, pass), places = places_of(x, pass);
  return (places ? gather_rows(table, places) : next).to(x.dtype());
}

}  // namespace orrery::nn
