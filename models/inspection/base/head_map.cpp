#include "models/inspection/base/head_map.h"

#include <algorithm>

namespace orrery::models {

MapView head_map(const std::string& quantity, const std::vector<HeadRow>& rows, const std::string& none) {
  MapView map{.quantity = quantity, .rows = {}, .columns = {}, .values = {}, .has_sign = true};
  map.axes = {"", "head"}, map.none = none;
  size_t heads = 0;
  for (const HeadRow& row : rows) heads = std::max(heads, row.values.size()), map.rows.push_back(row.path);
  for (size_t head = 0; head < heads; ++head) map.columns.push_back(std::to_string(head));
  std::vector<double> values;
  for (const HeadRow& row : rows)
    for (size_t head = 0; head < heads; ++head) values.push_back(head < row.values.size() ? row.values[head] : NAN);
  const auto count = static_cast<int64_t>(rows.size());
  map.values = Tensor::from(Shape{1, count, static_cast<int64_t>(heads)}, values, Dtype::f64);
  return map;
}

}  // namespace orrery::models
