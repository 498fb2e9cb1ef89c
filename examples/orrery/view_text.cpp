#include "examples/orrery/view_text.h"

#include <algorithm>
#include <cmath>

#include "engine/base/registry.h"
#include "examples/orrery/table.h"

namespace orrery::program {
namespace {

using models::BarView;
using models::LineView;
using models::MapView;
using models::TableView;

constexpr size_t widest_map = 100, widest_bar = 40;

constexpr size_t line_width = 100;

// Lines of words, each two spaces in.
std::string wrapped(const std::string& words) {
  std::string all, line;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    if (!line.empty() && width_of(line) + 1 + width_of(word) > line_width) all += "  " + line + "\n", line.clear();
    if (!word.empty()) line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return all + "  " + line + "\n";
}

std::string body(const TableView& table) {
  Table printed(table.columns, table.alignment);
  for (const auto& row : table.rows) printed.add(row);
  return printed.print();
}

std::string body(const BarView& bars) {
  double largest = 0;
  for (const BarView::Bar& bar : bars.bars)
    if (std::isfinite(bar.value)) largest = std::max(largest, std::abs(bar.value));
  Table printed({"", bars.figure, "", ""}, "lrll");
  for (const BarView::Bar& bar : bars.bars) {
    const double share = largest > 0 && std::isfinite(bar.value) ? std::abs(bar.value) / largest : 0;
    std::string drawn;
    for (size_t i = 0; i < static_cast<size_t>(std::lround(share * widest_bar)); ++i) drawn += "█";
    printed.add({bar.name, significant(bar.value, 4), drawn, bar.note});
  }
  return printed.print();
}

// Of shares of the scale: five shades.  Negative ones are letters, so that no colour is needed.
std::string shade(double share, bool negative) {
  static const char* const positive[] = {" ", "░", "▒", "▓", "█"};
  static const char* const below[] = {" ", ".", "-", "=", "#"};
  const auto step = static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 4));
  return (negative ? below : positive)[step];
}

std::string first_of(const std::string& word) {  // its first character
  size_t end = word.empty() ? 0 : 1;
  while (end < word.size() && (word[end] & 0xc0) == 0x80) ++end;
  return end > 0 ? word.substr(0, end) : " ";
}

std::string body(const MapView& map) {
  const int64_t maps = map.values.size(0);
  const size_t rows = map.rows.size(), columns = map.columns.size();
  if (maps > 1)
    return text("  ", maps, " maps of ", rows, " x ", columns, "; --page=FILE.html draws them all, --layer=0 --head=0 ",
                "prints one\n");
  if (columns > widest_map)
    return text("  a map of ", rows, " x ", columns, " does not fit here; --page=FILE.html draws it\n");
  const std::vector<double> values = map.values.to_vector();
  double largest = 0;
  for (const double x : values)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  size_t widest = 0;
  for (const std::string& row : map.rows) widest = std::max(widest, width_of(row));
  std::string all = std::string(widest + 4, ' ');
  for (const std::string& column : map.columns) all += first_of(column);
  all += "\n";
  for (size_t r = 0; r < rows; ++r) {
    all += "  " + std::string(widest - width_of(map.rows[r]), ' ') + map.rows[r] + " |";
    for (size_t c = 0; c < columns; ++c) {
      const double x = values[r * columns + c];
      // The square root: small weights show beside large ones, as on a page.
      all += std::isfinite(x) ? shade(largest > 0 ? std::sqrt(std::abs(x) / largest) : 0, x < 0) : "?";
    }
    all += "|\n";
  }
  if (std::any_of(map.columns.begin(), map.columns.end(), [](const std::string& c) { return width_of(c) > 1; }))
    all += wrapped("columns: " + join(map.columns, " "));
  all += text("  full shade: ", map.figure, " ", significant(largest, 4), ", by square roots",
              map.has_sign ? "; . - = # are negative" : "", "\n");
  return all;
}

std::string body(const LineView& lines) {
  Table printed({lines.y_figure, "from " + lines.x_figure, "to", "at the start", "lowest", "highest", "at the end"},
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

}  // namespace

std::string view_text(const models::View& view) {
  std::string all = view.group + ": " + view.title + "\n";
  if (!view.said.empty()) all += wrapped(view.said);
  return all + std::visit([](const auto& shown) { return body(shown); }, view.shown);
}

}  // namespace orrery::program
