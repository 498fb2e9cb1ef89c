#include "models/reports/report_views.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/types/format.h"
#include "models/formats/base64.h"

namespace orrery::models {
namespace {

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json packed(const Tensor& values) {
  std::vector<float> numbers;
  for (const double x : values.to_vector()) numbers.push_back(static_cast<float>(x));
  return packed_values(numbers);
}

// Returns one number if all rows are equal.
Json span_of(const MapView& map, size_t i) {
  const size_t rows = map.rows.size();
  const std::span<const double> reach = std::span(map.reach).subspan(i * rows, rows);
  if (std::adjacent_find(reach.begin(), reach.end(), std::not_equal_to<>()) == reach.end()) return number(reach[0]);
  Json each = Json::array();
  for (const double distance : reach) each.push_back(number(distance));
  return each;
}

Json section_of(const View& view, const MapView& map) {
  Json data = {{"quantity", map.quantity}, {"rows", map.rows}, {"columns", map.columns}, {"signed", map.has_sign}};
  if (!map.axes.first.empty() || !map.axes.second.empty()) data["axes"] = {map.axes.first, map.axes.second};
  if (!std::isnan(map.low)) data["low"] = map.low;
  if (!std::isnan(map.high)) data["high"] = map.high;
  if (map.slots > 0) data["slots"] = map.slots;
  if (!map.marked.empty()) data["marked"] = map.marked;
  if (!map.reach.empty()) data["spans"] = true;
  const std::vector<double> all = map.values.to_vector();
  if (std::any_of(all.begin(), all.end(), [](double x) { return std::isnan(x); })) data["none"] = map.none;
  if (map.values.size(0) == 1) {
    data["values"] = packed(map.values);
    if (!map.reach.empty()) data["span"] = span_of(map, 0);
    return report_section(view.group, "matrix", view.title, view.caption, std::move(data));
  }
  data["down"] = map.sides.first, data["across"] = map.sides.second;
  data["shape"] = {map.grid.first, map.grid.second};
  Json maps = Json::array();
  for (int64_t i = 0; i < map.values.size(0); ++i) {
    maps.push_back({{"name", map.names[static_cast<size_t>(i)]}, {"values", packed(map.values.slice(i, i + 1))}});
    if (!map.reach.empty()) maps.back()["span"] = span_of(map, static_cast<size_t>(i));
  }
  data["maps"] = std::move(maps);
  return report_section(view.group, "matrices", view.title, view.caption, std::move(data));
}

Json section_of(const View& view, const BarView& bars) {
  Json rows = Json::array();
  for (const BarView::Bar& bar : bars.bars)
    rows.push_back({{"name", bar.name},
                    {"value", number(bar.value)},
                    {"low", number(bar.low)},
                    {"high", number(bar.high)},
                    {"note", bar.note}});
  return report_section(view.group, "bars", view.title, view.caption,
                        {{"quantity", bars.quantity}, {"zero", true}, {"rows", rows}});
}

Json section_of(const View& view, const TableView& table) {
  Json columns = Json::array();
  for (size_t i = 0; i < table.columns.size(); ++i)
    columns.push_back({{"name", table.columns[i]}, {"align", table.alignment[i] == 'r' ? "right" : "left"}});
  return report_section(view.group, "table", view.title, view.caption,
                        {{"columns", columns}, {"rows", table.rows}, {"marked", Json::array()}});
}

Json section_of(const View& view, const LineView& lines) {
  Json series = Json::array();
  for (const LineView::Line& line : lines.lines) {
    Json values = Json::array();
    for (const double y : line.y) values.push_back(number(y));
    series.push_back({{"name", line.name},
                      {"key", line.name},
                      {"run", 0},
                      {"rows", line.x.size()},
                      {"steps", line.x},
                      {"values", std::move(values)}});
  }
  Json data = {{"quantity", lines.y_label},
               {"axis", lines.x_label},
               {"runs", Json::array({{{"name", ""}, {"group", ""}}})},
               {"thinned", false},
               {"series", std::move(series)}};
  if (!lines.x_labels.empty()) data["x_labels"] = lines.x_labels;
  return report_section(view.group, "curves", view.title, view.caption, std::move(data));
}

// Adds "words", the distinct ones, and "word", the number of each.
void add_words(Json& data, const std::vector<std::string>& all) {
  std::map<std::string, size_t> numbers;
  Json words = Json::array(), word = Json::array();
  for (const std::string& each : all) {
    const auto [known, is_new] = numbers.emplace(each, numbers.size());
    if (is_new) words.push_back(each);
    word.push_back(known->second);
  }
  data["words"] = std::move(words), data["word"] = std::move(word);
}

Json section_of(const View& view, const LensView& lens) {
  Json data = {{"rows", lens.rows},
               {"columns", lens.columns},
               {"targets", lens.targets},
               {"target", lens.target},
               {"probability", packed(lens.probability)},
               {"log_probability", packed(lens.log_probability)},
               {"rank", packed(lens.rank)}};
  add_words(data, lens.words);
  return report_section(view.group, "lens", view.title, view.caption, std::move(data));
}

Json section_of(const View& view, const TokensView& tokens) {
  Json data = {{"tokens", tokens.tokens}, {"quantity", tokens.quantity}};
  if (!tokens.values.empty())
    data["values"] = packed_values(std::vector<float>(tokens.values.begin(), tokens.values.end()));
  return report_section(view.group, "tokens", view.title, view.caption, std::move(data));
}

Json section_of(const View& view, const ChoicesView& choices) {
  std::vector<std::string> names, targets;
  std::vector<float> ps, target_ps;
  for (size_t i = 0; i < choices.positions.size(); ++i) {
    for (const ChoicesView::Choice& choice : choices.choices[i])
      names.push_back(choice.name), ps.push_back(static_cast<float>(choice.probability));
    targets.push_back(choices.targets[i].name), target_ps.push_back(static_cast<float>(choices.targets[i].probability));
  }
  Json data = {{"positions", choices.positions}, {"probability", packed_values(ps)}, {"shown", choices.shown},
               {"targets", targets},             {"target_probability", packed_values(target_ps)}};
  add_words(data, names);
  return report_section(view.group, "choices", view.title, view.caption, std::move(data));
}

Json section_of(const View& view, const ImageView& image) {
  const std::vector<double> pixels = image.pixels.to_vector();
  const auto [low, high] = std::minmax_element(pixels.begin(), pixels.end());
  std::string bytes;
  for (const double x : pixels)
    bytes += static_cast<char>(std::lround(*high > *low ? 255 * (x - *low) / (*high - *low) : 128));
  return report_section(view.group, "image", view.title, view.caption,
                        {{"shape", {image.pixels.size(0), image.pixels.size(1), image.pixels.size(2)}},
                         {"base64", base64(bytes)},
                         {"positions", image.positions}});
}

Json section_of(const View& view, const ComponentsView& tree) {
  return report_section(view.group, "components", view.title, view.caption, components_json(tree));
}

// The example and its predictions are the first group, the tree of components the last.
int place_of(const View& view) { return view.group == "Predictions" ? 0 : view.group == "Components" ? 2 : 1; }

}  // namespace

Json components_json(const ComponentsView& tree) {
  Json components = Json::array(), formulas = Json::array();
  for (const ComponentsView::Component& each : tree.components)
    components.push_back({{"path", each.path},
                          {"kind", each.kind},
                          {"spec", each.spec},
                          {"tensors", each.tensors},
                          {"parameters", each.parameters},
                          {"heads", each.heads},
                          {"units", each.units},
                          {"slots", each.slots},
                          {"span", each.span},
                          {"formulas", each.formulas}});
  for (const ComponentsView::Formula& each : tree.formulas)
    formulas.push_back({{"family", each.family},
                        {"name", each.name},
                        {"formula", each.formula},
                        {"file", each.file},
                        {"link", each.link}});
  return {{"components", std::move(components)}, {"formulas", std::move(formulas)}};
}

void add_views(Json& sections, std::span<const View> views) {
  for (const int place : {0, 1, 2})
    for (const View& view : views)
      if (place_of(view) == place)
        sections.push_back(std::visit([&](const auto& data) { return section_of(view, data); }, view.data));
}

}  // namespace orrery::models
