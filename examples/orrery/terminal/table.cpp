#include "examples/orrery/terminal/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>

#include "examples/orrery/terminal/style.h"

namespace orrery::program {

Table::Table(std::vector<std::string> header, std::string alignment) : alignment_(std::move(alignment)) {
  add(std::move(header));
}

void Table::add(std::vector<std::string> row) {
  row.resize(alignment_.size()), widths_.resize(alignment_.size());
  for (size_t c = 0; c < row.size(); ++c) {
    row[c] = for_terminal(row[c]);
    widths_[c] = std::max(widths_[c], width_of(row[c]));
  }
  rows_.push_back(std::move(row));
}

std::string for_output(const std::string& text) {
  return ::isatty(STDOUT_FILENO) != 0 ? models::for_terminal_lines(text) : text;
}

// Counts UTF-8 characters and assumes that each is one column wide.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string right_aligned(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

size_t terminal_columns(int descriptor, size_t if_unknown) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : if_unknown;
}

std::string cut_lines(const std::string& text, size_t columns) {
  std::string all;
  size_t column = 0;
  bool code = false;  // inside a color's code
  for (const char c : text) {
    const bool counts = !code && c != '\x1b' && (c & 0xc0) != 0x80;
    if (c == '\n')
      column = 0;
    else if (counts)
      ++column;
    if (column <= columns || code || c == '\x1b') all += c;
    code = c == '\x1b' || (code && c != 'm');
  }
  return all;
}

// Returns the number of leading columns that identify a row: one, or two if texts of the first repeat.
size_t Table::key_columns() const {
  if (widths_.size() < 3) return 1;
  std::set<std::string> texts;
  for (const auto& row : rows_) texts.insert(row[0]);
  return texts.size() == rows_.size() ? 1 : 2;
}

std::string Table::print(const std::vector<size_t>& columns, int indent, int descriptor) const {
  std::string all;
  for (const auto& row : rows_) {
    if (std::all_of(columns.begin(), columns.end(), [&](size_t c) { return row[c].empty(); })) continue;
    std::string line(static_cast<size_t>(indent), ' ');
    for (const size_t c : columns) {
      const std::string space(widths_[c] - width_of(row[c]), ' ');
      line += (c ? "  " : "") + (alignment_[c] == 'r' ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    all += (&row == &rows_[0] ? styled(line, Style::header, descriptor) : line) + "\n";
  }
  return all;
}

std::string Table::print_unbroken(int descriptor) const {
  std::vector<size_t> columns(widths_.size());
  std::iota(columns.begin(), columns.end(), size_t{0});
  return print(columns, 2, descriptor);
}

std::string Table::print(int indent, int descriptor) const {
  const size_t width = terminal_columns(descriptor, SIZE_MAX), keys = key_columns(), gap = 2;
  std::string all;
  for (size_t next = 0; next < widths_.size();) {
    std::vector<size_t> columns;
    size_t used = static_cast<size_t>(indent);
    const auto take = [&](size_t c) { used += (c ? gap : 0) + widths_[c], columns.push_back(c); };
    for (size_t c = 0; c < keys; ++c) take(c);
    next = std::max(next, keys);
    do
      if (next < widths_.size()) take(next++);
    while (next < widths_.size() && used + gap + widths_[next] <= width);
    all += (all.empty() ? "" : "\n") + print(columns, indent, descriptor);
  }
  return all;
}

std::string megabytes(double bytes) { return fixed(bytes / 1e6, 1); }

}  // namespace orrery::program
