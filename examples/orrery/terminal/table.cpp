#include "examples/orrery/terminal/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "examples/orrery/terminal/style.h"

namespace orrery::program {

Table::Table(std::vector<std::string> header, std::string alignment) : alignment_(std::move(alignment)) {
  add(std::move(header));
}

void Table::add(std::vector<std::string> row) {
  row.resize(alignment_.size());
  for (std::string& cell : row) cell = for_terminal(cell);
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

std::string Table::print(int indent, int descriptor) const {
  std::vector<size_t> widths(alignment_.size());
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  std::string all;
  for (const auto& row : rows_) {
    if (std::all_of(row.begin(), row.end(), [](const std::string& cell) { return cell.empty(); })) continue;
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - width_of(row[c]), ' ');
      line += (c ? "  " : "") + (alignment_[c] == 'r' ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    all += (&row == &rows_[0] ? styled(line, Style::header, descriptor) : line) + "\n";
  }
  return all;
}

std::string megabytes(double bytes) { return fixed(bytes / 1e6, 1); }

}  // namespace orrery::program
