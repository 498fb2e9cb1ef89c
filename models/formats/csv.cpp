#include "models/formats/csv.h"

#include <algorithm>

#include "engine/system/files.h"
#include "engine/types/check.h"

namespace orrery::models {

std::string csv_line(const CsvRow& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    // A row of one empty field would be an empty line.
    const bool quoted =
        fields[i].find_first_of(",\"\n\r") != std::string::npos || (fields.size() == 1 && fields[0].empty());
    if (!quoted) {
      line += fields[i];
      continue;
    }
    line += '"';
    for (const char c : fields[i]) line.append(c == '"' ? 2 : 1, c);
    line += '"';
  }
  return line + "\n";
}

std::vector<CsvRow> parse_csv(std::string_view csv, std::string_view what) {
  std::vector<CsvRow> rows;
  for (size_t at = 0; at < csv.size();) {
    CsvRow row;
    for (bool more = true; more;) {
      std::string field;
      if (csv.substr(at).starts_with('"')) {
        for (++at;; ++at) {
          check(at < csv.size(), what, ": row ", rows.size() + 1, " has a quoted field without a closing quote");
          if (csv[at] == '"' && !csv.substr(at + 1).starts_with('"')) break;
          at += csv[at] == '"';
          field += csv[at];
        }
        ++at;
      } else {
        const size_t end = std::min(csv.find_first_of(",\n", at), csv.size());
        field = csv.substr(at, end - at);
        if (field.ends_with('\r') && end < csv.size() && csv[end] == '\n') field.pop_back();
        at = end;
      }
      if (csv.substr(at).starts_with("\r\n")) ++at;
      check(at >= csv.size() || csv[at] == ',' || csv[at] == '\n', what, ": row ", rows.size() + 1,
            " has text after a closing quote; a comma or a line break must follow it");
      more = at < csv.size() && csv[at] == ',';
      ++at;
      row.push_back(std::move(field));
    }
    check(rows.empty() || row.size() == rows[0].size(), what, ": number of fields in row ", rows.size() + 1, " is ",
          row.size(), "; it must be ", rows.empty() ? 0 : rows[0].size(), ", as in row 1");
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<CsvRow> read_csv(const std::string& path) { return parse_csv(read_file(path, uint64_t{16} << 20), path); }

}  // namespace orrery::models
