#include "examples/orrery/terminal/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/types/check.h"
#include "examples/orrery/terminal/table.h"

namespace orrery::program {
namespace {

// Dots of a Braille character, two columns of four, as bits of U+2800.
constexpr uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

std::string braille(uint8_t dots) {
  return {static_cast<char>(0xE2), static_cast<char>(0xA0 | dots >> 6), static_cast<char>(0x80 | (dots & 0x3F))};
}

std::vector<std::string> panel(const Curve& curve, double low, double high, int columns, int lines) {
  const int width = 2 * columns, height = 4 * lines;
  std::vector<double> y;
  double bottom = 0, top = 0;  // the axis is always visible
  for (int i = 0; i < width; ++i) {
    y.push_back(curve.value(low + (high - low) * i / (width - 1)));
    if (std::isfinite(y.back())) bottom = std::min(bottom, y.back()), top = std::max(top, y.back());
  }
  if (top == bottom) top = bottom + 1;
  const auto dot_row = [&](double v) {
    return static_cast<int>(std::lround((top - v) / (top - bottom) * (height - 1)));
  };
  std::vector<std::vector<uint8_t>> cells(static_cast<size_t>(lines),
                                          std::vector<uint8_t>(static_cast<size_t>(columns)));
  const auto dot = [&](int x, int at) {
    cells[static_cast<size_t>(at / 4)][static_cast<size_t>(x / 2)] |= bits[at % 4][x % 2];
  };
  for (int x = 0; x < width; x += 4) dot(x, dot_row(0));  // the axis, dotted
  for (int x = 0; x < width; ++x) {
    if (!std::isfinite(y[static_cast<size_t>(x)])) continue;
    const int at = dot_row(y[static_cast<size_t>(x)]);
    const double before = x > 0 ? y[static_cast<size_t>(x - 1)] : NAN;
    const int from = std::isfinite(before) ? dot_row(before) : at;
    for (int d = std::min(at, from); d <= std::max(at, from); ++d) dot(x, d);  // fills gaps of steep curves
  }
  const std::string high_label = fixed(top, 2), low_label = fixed(bottom, 2);
  const size_t margin = std::max(high_label.size(), low_label.size());
  std::vector<std::string> text = {std::string(margin + 1, ' ') + right_aligned(curve.name, curve.name.size())};
  text[0] += std::string(
      static_cast<size_t>(columns) - std::min<size_t>(curve.name.size(), static_cast<size_t>(columns)), ' ');
  for (int line = 0; line < lines; ++line) {
    std::string row = right_aligned(line == 0 ? high_label : line == lines - 1 ? low_label : "", margin) + " ";
    for (const uint8_t cell : cells[static_cast<size_t>(line)]) row += cell ? braille(cell) : " ";
    text.push_back(row);
  }
  const std::string left = fixed(low, 0), right = fixed(high, 0);
  text.push_back(
      std::string(margin + 1, ' ') + left +
      right_aligned(right, static_cast<size_t>(columns) - std::min<size_t>(left.size(), static_cast<size_t>(columns))));
  return text;
}

}  // namespace

std::string plot(const std::vector<Curve>& curves, double low, double high, int columns, int lines) {
  std::vector<std::string> rows;
  for (const Curve& curve : curves) {
    const std::vector<std::string> one = panel(curve, low, high, columns, lines);
    rows.resize(std::max(rows.size(), one.size()));
    for (size_t i = 0; i < one.size(); ++i) rows[i] += "  " + one[i];
  }
  std::string all;
  for (const std::string& row : rows) all += row + "\n";
  return all;
}

namespace {

char mark(size_t number) {
  return number < 9 ? static_cast<char>('1' + number) : static_cast<char>('a' + (number - 9) % 26);
}

}  // namespace

void Series::add(double x, double y) {
  if (!std::isfinite(y)) return;
  const double fraction = high_ > low_ ? (x - low_) / (high_ - low_) : 0;
  const auto column = static_cast<size_t>(std::lround(fraction * static_cast<double>(sums_.size() - 1)));
  sums_[column] += y, counts_[column] += 1;
}

std::vector<double> Series::shown() const {
  const size_t columns = sums_.size();
  std::vector<double> shown(columns, NAN);
  std::ptrdiff_t before = -1;
  for (size_t c = 0; c < columns; ++c) {
    if (counts_[c] == 0) continue;
    shown[c] = sums_[c] / counts_[c];
    for (size_t between = before < 0 ? c : static_cast<size_t>(before) + 1; between < c; ++between) {
      const auto from = static_cast<size_t>(before);
      const double fraction = static_cast<double>(between - from) / static_cast<double>(c - from);
      shown[between] = shown[from] + fraction * (shown[c] - shown[from]);
    }
    before = static_cast<std::ptrdiff_t>(c);
  }
  return shown;
}

std::string plot_together(const std::string& title, const std::vector<Series>& series, int lines) {
  double bottom = INFINITY, top = -INFINITY;
  std::vector<std::vector<double>> shown;
  for (const Series& each : series) {
    shown.push_back(each.shown());
    for (const double y : shown.back())
      if (std::isfinite(y)) bottom = std::min(bottom, y), top = std::max(top, y);
  }
  const double low = series[0].low(), high = series[0].high();
  const size_t columns = shown[0].size();
  if (bottom > top) return title + ": no finite numbers\n";
  std::vector<std::string> rows(static_cast<size_t>(lines), std::string(columns, ' '));
  for (size_t number = 0; number < shown.size(); ++number)
    for (size_t c = 0; c < shown[number].size(); ++c) {
      const double y = shown[number][c];
      if (!std::isfinite(y)) continue;
      const double fraction = top > bottom ? (top - y) / (top - bottom) : 0.5;
      char& cell = rows[static_cast<size_t>(std::lround(fraction * (lines - 1)))][c];
      cell = cell == ' ' ? mark(number) : '*';
    }
  const std::string high_label = text(top), low_label = text(bottom);
  const size_t margin = std::max(high_label.size(), low_label.size());
  std::string all = title + "\n";
  for (size_t line = 0; line < rows.size(); ++line) {
    const std::string row = right_aligned(line == 0                 ? high_label
                                          : line + 1 == rows.size() ? low_label
                                                                    : "",
                                          margin) +
                            " " + rows[line];
    all += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  const std::string left = fixed(low, 0), right = fixed(high, 0);
  return all + std::string(margin + 1, ' ') + left + right_aligned(right, columns - std::min(left.size(), columns)) +
         "\n";
}

}  // namespace orrery::program
