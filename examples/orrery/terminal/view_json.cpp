#include "examples/orrery/terminal/view_json.h"

#include <cmath>

#include "models/reports/report_views.h"

namespace orrery::program {
namespace {

using models::BarView;
using models::ChoicesView;
using models::ComponentsView;
using models::ImageView;
using models::LensView;
using models::LineView;
using models::MapView;
using models::TableView;
using models::TokensView;

// NaN is a missing value in a view.
Json value_or_null(double x) { return std::isnan(x) ? Json() : json_number(x); }

Json values_json(std::span<const double> values) {
  Json all = Json::array();
  for (const double x : values) all.push_back(value_or_null(x));
  return all;
}

Json matrix_json(std::span<const double> values, size_t columns) {
  Json rows = Json::array();
  for (; !values.empty(); values = values.subspan(columns)) rows.push_back(values_json(values.first(columns)));
  return rows;
}

Json contents_json(const MapView& map) {
  const std::vector<double> values = map.values.to_vector();
  const size_t columns = map.columns.size(), size = map.rows.size() * columns;
  Json maps = Json::array();
  for (size_t i = 0; i < static_cast<size_t>(map.values.size(0)) && size > 0; ++i)
    maps.push_back({{"name", i < map.names.size() ? map.names[i] : ""},
                    {"values", matrix_json(std::span(values).subspan(i * size, size), columns)}});
  return {{"kind", "map"},          {"quantity", map.quantity}, {"rows", map.rows},
          {"columns", map.columns}, {"slots", map.slots},       {"maps", maps}};
}

Json contents_json(const BarView& bars) {
  Json all = Json::array();
  for (const BarView::Bar& bar : bars.bars)
    all.push_back({{"name", bar.name},
                   {"value", value_or_null(bar.value)},
                   {"low", value_or_null(bar.low)},
                   {"high", value_or_null(bar.high)},
                   {"note", bar.note}});
  return {{"kind", "bars"}, {"quantity", bars.quantity}, {"bars", all}};
}

Json contents_json(const TableView& table) {
  return {{"kind", "table"}, {"columns", table.columns}, {"rows", table.rows}};
}

Json contents_json(const LineView& lines) {
  Json all = Json::array();
  for (const LineView::Line& line : lines.lines)
    all.push_back({{"name", line.name}, {"x", values_json(line.x)}, {"y", values_json(line.y)}});
  return {{"kind", "lines"},
          {"x_quantity", lines.x_label},
          {"y_quantity", lines.y_label},
          {"labels", lines.x_labels},
          {"lines", all}};
}

Json contents_json(const LensView& lens) {
  const size_t columns = lens.columns.size();
  Json words = Json::array();
  for (std::span<const std::string> rest = lens.words; !rest.empty(); rest = rest.subspan(columns))
    words.push_back(std::vector(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(columns)));
  const auto matrix = [&](const Tensor& values) { return matrix_json(values.to_vector(), columns); };
  return {{"kind", "lens"},
          {"rows", lens.rows},
          {"columns", lens.columns},
          {"targets", lens.targets},
          {"words", words},
          {"probability", matrix(lens.probability)},
          {"log_probability", matrix(lens.log_probability)},
          {"rank", matrix(lens.rank)}};
}

Json contents_json(const TokensView& tokens) {
  return {{"kind", "tokens"},
          {"quantity", tokens.quantity},
          {"tokens", tokens.tokens},
          {"values", values_json(tokens.values)}};
}

Json choice_json(const ChoicesView::Choice& choice) {
  return {{"name", choice.name}, {"probability", value_or_null(choice.probability)}};
}

Json contents_json(const ChoicesView& view) {
  Json choices = Json::array(), targets = Json::array();
  for (const std::vector<ChoicesView::Choice>& all : view.choices) {
    choices.push_back(Json::array());
    for (const ChoicesView::Choice& choice : all) choices.back().push_back(choice_json(choice));
  }
  for (const ChoicesView::Choice& target : view.targets)
    targets.push_back(target.name.empty() ? Json() : choice_json(target));
  return {{"kind", "choices"}, {"positions", view.positions}, {"choices", choices}, {"targets", targets}};
}

Json contents_json(const ImageView& image) {
  return {{"kind", "image"},
          {"shape", {image.pixels.size(0), image.pixels.size(1), image.pixels.size(2)}},
          {"positions", image.positions}};
}

Json contents_json(const ComponentsView& tree) {
  Json all = models::components_json(tree);
  all["kind"] = "components";
  return all;
}

}  // namespace

Json view_json(const models::View& view) {
  Json all = {{"analysis", view.group}, {"name", view.name}, {"title", view.title}, {"description", view.caption}};
  all.update(std::visit([](const auto& data) { return contents_json(data); }, view.data));
  all["metrics"] = json_numbers(view.metrics);
  return all;
}

}  // namespace orrery::program
