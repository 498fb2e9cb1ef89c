#include "examples/orrery/table.h"

#include <algorithm>
#include <charconv>

#include "engine/base/check.h"

namespace orrery::program {

Table::Table(std::vector<std::string> header, std::string alignment)
    : rows_{std::move(header)}, alignment_(std::move(alignment)) {}

void Table::add(std::vector<std::string> row) {
  row.resize(alignment_.size());
  rows_.push_back(std::move(row));
}

std::string Table::print(int indent) const {
  std::vector<size_t> widths(alignment_.size());
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string all;
  for (const auto& row : rows_) {
    if (std::all_of(row.begin(), row.end(), [](const std::string& cell) { return cell.empty(); })) continue;
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      line += (c ? "  " : "") + (alignment_[c] == 'r' ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    all += line + "\n";
  }
  return all;
}

namespace {
// A double has up to 309 digits before the point; `digits` more stand behind it.
std::string print_digits(double x, std::chars_format format, int digits) {
  std::string all(350 + static_cast<size_t>(std::max(0, digits)), ' ');
  const auto [end, error] = std::to_chars(all.data(), all.data() + all.size(), x, format, digits);
  check(error == std::errc(), "a number does not fit into ", all.size(), " characters");
  all.resize(static_cast<size_t>(end - all.data()));
  return all;
}
}  // namespace

std::string fixed(double x, int digits) { return print_digits(x, std::chars_format::fixed, digits); }
std::string scientific(double x, int digits) { return print_digits(x, std::chars_format::scientific, digits); }
std::string grouped(int64_t x) {
  std::string digits = std::to_string(x);
  for (int at = static_cast<int>(digits.size()) - 3; at > (x < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}
std::string megabytes(double bytes) { return fixed(bytes / 1e6, 1); }
std::string in_words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace orrery::program
