// Tables as comma-separated values, RFC 4180: a field with a comma, a quote or a line break is in
// quotes, and its quotes are doubled.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

using CsvRow = std::vector<std::string>;

std::string csv_line(const CsvRow& fields);  // with its line break
// Returns all rows. Errors begin with `what`: an unclosed quote, text after a closed quote, or a
// row with more or fewer fields than the first.
std::vector<CsvRow> parse_csv(std::string_view text, std::string_view what);
std::vector<CsvRow> read_csv(const std::string& path);  // a file of at most 16 MiB

}  // namespace orrery::models
