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

struct PositionInDocument {  // token r % T of sequence r / T: number of earlier tokens in its document
  const int32_t* documents;
  int32_t* position;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t t = r % row.n;
    const int32_t* const ids = documents + (r - t);
    const int before = row.sum([=](int s) { return s < t && ids[s] == ids[t] ? 1 : 0; });
    int32_t* const out = position;
    row.once([=] { out[r] = before; });
  }
};

}  // namespace

Tensor positions_of(const Tensor& x, const ForwardPass& pass) {
  if (!pass.document_ids) return {};
  check(!pass.cache,
        "positions: document_ids cannot be combined with a cache, which continues one text per sequence; leave one of "
        "them out");
  const Shape shape{x.size(0), x.size(1)};
  check(pass.document_ids.dtype() == Dtype::i32 && pass.document_ids.shape() == shape,
        "positions: document_ids have shape ", pass.document_ids.shape(), " and dtype ",
        name(pass.document_ids.dtype()), "; they must be i32 of shape ", shape);
  const Tensor positions = Tensor::empty_like(pass.document_ids);
  rows(positions.device(), positions.numel(), static_cast<int>(shape[1]),
       PositionInDocument{pass.document_ids.data<int32_t>(), positions.mutable_data<int32_t>()});
  return positions;
}

Tensor next_rows(std::string_view name, const Tensor& table, const Tensor& x, const ForwardPass& pass) {
  const int64_t begin = pass.offset(), end = begin + x.size(1);
  check(end <= table.size(0), name, ": ", end, " positions are needed, but the table has ", table.size(0),
        "; use a longer context in the model's settings");
  return table.slice(begin, end);
}

Tensor rows_at_positions(std::string_view name, const Tensor& table, const Tensor& x, const ForwardPass& pass) {
  check(x.shape().rank() >= 3, name, ": needs (batch, time, width), not ", x.shape());
  const Tensor next = next_rows(name, table, x, pass), positions = positions_of(x, pass);
  return (positions ? index_select(table, positions) : next).to(x.dtype());
}

}  // namespace orrery::nn
