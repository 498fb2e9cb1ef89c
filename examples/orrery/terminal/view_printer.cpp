#include "examples/orrery/terminal/view_printer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/settings/registry.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/table.h"

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

constexpr size_t widest_map = 100, widest_bar = 40, narrowest_bar = 10;

size_t line_width() { return std::min<size_t>(terminal_columns(), 100); }

// Returns words in lines that are indented by two spaces.
std::string indented(const std::string& words) { return wrapped("  " + words, line_width()); }

std::string body(const TableView& table) {
  Table printed(table.columns, table.alignment);
  for (const auto& row : table.rows) printed.add(row);
  return printed.print();
}

std::string repeated(const std::string& what, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += what;
  return all;
}

// Bars of negative values are left of a line, of positive values right of it.
std::string body(const BarView& bars) {
  double low = 0, high = 0;
  size_t name = 0, number = width_of(bars.quantity), note = 0;  // widths
  for (const BarView::Bar& bar : bars.bars) {
    if (std::isfinite(bar.value)) low = std::min(low, bar.value), high = std::max(high, bar.value);
    name = std::max(name, width_of(bar.name)), number = std::max(number, significant(bar.value, 4).size());
    note = std::max(note, width_of(bar.note));
  }
  const size_t others = name + number + note + 4 * 2 + 2;  // with gaps, the line, and rounding
  const size_t widest = std::clamp(line_width() - std::min(line_width(), others), narrowest_bar, widest_bar);
  const auto length = [&](double value) {
    const double fraction = high > low && value > 0 ? value / (high - low) : 0;
    return static_cast<size_t>(std::lround(fraction * static_cast<double>(widest)));
  };
  Table printed({"", bars.quantity, "", ""}, "lrll");
  for (const BarView::Bar& bar : bars.bars) {
    const size_t left = length(-bar.value), right = length(bar.value);
    const std::string before = low < 0 ? repeated(" ", length(-low) - left) + repeated("█", left) + "|" : "";
    printed.add({bar.name, significant(bar.value, 4), before + repeated("█", right), bar.note});
  }
  return printed.print();
}

// Returns one of five shades for a fraction of the scale. Negative values use ASCII, not colors.
std::string shade(double fraction, bool negative) {
  static const char* const positive[] = {" ", "░", "▒", "▓", "█"};
  static const char* const below[] = {" ", ".", "-", "=", "#"};
  const auto step = static_cast<size_t>(std::lround(std::clamp(fraction, 0.0, 1.0) * 4));
  return (negative ? below : positive)[step];
}

std::string first_of(const std::string& word) {  // first UTF-8 character
  size_t end = word.empty() ? 0 : 1;
  while (end < word.size() && (word[end] & 0xc0) == 0x80) ++end;
  return end > 0 ? word.substr(0, end) : " ";
}

std::string body(const MapView& map) {
  const int64_t maps = map.values.size(0);
  const size_t rows = map.rows.size(), columns = map.columns.size(), frame = 6;
  if (maps > 1)
    return indented(text(maps, " maps of ", rows, " x ", columns,
                         "; --html=FILE.html plots all of them, --layer=0 --head=0 prints one"));
  size_t widest = 0;
  for (const std::string& row : map.rows) widest = std::max(widest, width_of(row));
  if (columns > widest_map || widest + columns + frame > terminal_columns(STDOUT_FILENO, SIZE_MAX))
    return indented(
        text("a map of ", rows, " x ", columns, " is too wide for the terminal; --html=FILE.html plots it"));
  const std::vector<double> values = map.values.to_vector();
  double low = 0, high = 0;
  for (const double x : values)
    if (std::isfinite(x)) low = std::min(low, x), high = std::max(high, x);
  const double largest = std::max(-low, high);
  const size_t keys = columns - static_cast<size_t>(map.slots);  // slots follow a line
  std::string all = std::string(widest + 4, ' ');
  for (size_t c = 0; c < columns; ++c) all += (c == keys && c > 0 ? "|" : "") + first_of(map.columns[c]);
  all += "\n";
  for (size_t r = 0; r < rows; ++r) {
    all += "  " + std::string(widest - width_of(map.rows[r]), ' ') + map.rows[r] + " |";
    for (size_t c = 0; c < columns; ++c) {
      const double x = values[r * columns + c];
      if (c == keys && c > 0) all += "|";
      // Square root: small weights stay visible next to large ones, as on a page.
      all += std::isfinite(x) ? shade(largest > 0 ? std::sqrt(std::abs(x) / largest) : 0, x < 0) : "·";
    }
    all += "|\n";
  }
  if (std::any_of(map.columns.begin(), map.columns.end(), [](const std::string& c) { return width_of(c) > 1; }))
    all += indented("columns: " + join(map.columns, " "));
  const bool some_missing = std::any_of(values.begin(), values.end(), [](double x) { return !std::isfinite(x); });
  const std::string bound = significant(largest, 4);
  const std::string scale = low == 0 ? "0 to " + bound : high == 0 ? "0 to -" + bound : "-" + bound + " to " + bound;
  all += indented(text("scale: ", map.quantity, " ", scale, " (square root)", low < 0 ? "; . - = # are negative" : "",
                       some_missing ? "; ·: " + map.none : ""));
  return models::for_terminal_lines(all);
}

std::string body(const LensView& lens) {  // a terminal has no room for its words; tables list those of a position
  MapView map{.quantity = "ln p of " + lens.target,
              .rows = lens.rows,
              .columns = lens.columns,
              .values = lens.log_probability};
  map.none = "no target";
  return body(map);
}

std::string body(const LineView& lines) {
  Table printed({lines.y_label, lines.x_label + " from", "to", "first value", "lowest", "highest", "last value"},
                "lrrrrrr");
  for (const LineView::Line& line : lines.lines) {
    if (line.x.empty()) continue;
    const auto [low, high] = std::minmax_element(line.y.begin(), line.y.end());
    printed.add({line.name, significant(line.x.front(), 4), significant(line.x.back(), 4),
                 significant(line.y.front(), 4), significant(*low, 4), significant(*high, 4),
                 significant(line.y.back(), 4)});
  }
  return printed.print();
}

std::string body(const TokensView& tokens) {
  Table printed({"position", "token", tokens.quantity}, "rlr");
  for (size_t i = 0; i < tokens.tokens.size(); ++i)
    printed.add({std::to_string(i), tokens.tokens[i],
                 i < tokens.values.size() && !std::isnan(tokens.values[i]) ? significant(tokens.values[i], 4) : ""});
  return printed.print();
}

std::string body(const ChoicesView& view) {
  Table printed({text("position ", view.shown, ", ", view.positions[view.shown]), "p"}, "lr");
  for (const ChoicesView::Choice& choice : view.choices[view.shown])
    printed.add({choice.name, significant(choice.probability, 4)});
  if (const ChoicesView::Choice& target = view.targets[view.shown]; !target.name.empty())
    printed.add({"target: " + target.name, significant(target.probability, 4)});
  return printed.print();
}

std::string body(const ImageView& image) {
  return indented(text(image.pixels.size(0), " x ", image.pixels.size(1), " pixels; --html=FILE.html shows them"));
}

std::string body(const ComponentsView& tree) {
  Table printed({"component", "made by", "parameters", "heads", "units", "slots", "span"}, "llrrrrr");
  const auto count = [](int64_t number) { return number > 0 ? with_commas(number) : ""; };
  for (const ComponentsView::Component& each : tree.components) {
    std::vector<std::string> span;
    for (const double tokens : each.span) span.push_back(significant(tokens, 3));
    printed.add({each.path.empty() ? "(model)" : each.path, each.spec.empty() ? each.kind : each.spec,
                 count(each.parameters), count(each.heads), count(each.units), count(each.slots), join(span, " ")});
  }
  return printed.print();
}

}  // namespace

std::string view_text(const models::View& view) {
  std::string all = view.group + ": " + view.title + "\n";
  if (!view.caption.empty()) all += indented(view.caption);
  return models::for_terminal_lines(all) + std::visit([](const auto& data) { return body(data); }, view.data);
}

}  // namespace orrery::program
