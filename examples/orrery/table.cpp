#include "examples/orrery/table.h"

#include <algorithm>

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

std::string megabytes(double bytes) { return fixed(bytes / 1e6, 1); }

}  // namespace orrery::program
