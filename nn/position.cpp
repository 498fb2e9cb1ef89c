#include "nn/position.h"

#include <map>

#include "engine/ops.h"

namespace orrery::nn {

Tensor places_of(const Tensor& x, const Pass& pass) {
  if (!pass.documents) return {};
  check(!pass.cache, "positions: a cache goes on with one text for each sequence, so there can be no documents");
  const Shape shape{x.size(0), x.size(1)};
  check(pass.documents.dtype() == Dtype::i32 && pass.documents.shape() == shape, "positions: documents of shape ",
        pass.documents.shape(), " and dtype ", name(pass.documents.dtype()), "; they must be i32 of shape ", shape);
  const Tensor host = pass.documents.to(Device::cpu);
  const int32_t* document = host.data<int32_t>();
  std::vector<int32_t> places;
  for (int64_t b = 0; b < shape[0]; ++b) {
    std::map<int32_t, int32_t> tokens;  // of each document so far
    for (int64_t t = 0; t < shape[1]; ++t) places.push_back(tokens[*document++]++);
  }
  return Tensor::from(shape, places).to(x.device());
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
