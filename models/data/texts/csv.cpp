// Tables: each row is a document in one of the columns, which the first row names.
#include "models/formats/csv.h"

#include <algorithm>
#include <optional>

#include "models/data/lines.h"
#include "models/data/text_files.h"
#include "models/data/text_format.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

// Returns the number of a column, from 0; throws Error with the columns if there is none.
size_t column_of(const CsvRow& header, const std::string& field, const std::string& file) {
  const auto found = std::find(header.begin(), header.end(), field);
  check(found != header.end(), "text: ", file, " has no column '", field, "'; its columns are ", join(header),
        "; give one with --text_field=COLUMN, or read the file as plain text with --text_field=");
  return static_cast<size_t>(found - header.begin());
}

void read_rows(const std::string& file, const std::string& field, const TakeDocuments& take) {
  std::optional<size_t> column;
  const auto take_row = [&](const CsvRow& row) {
    if (!column) {
      column = column_of(row, field, file);
      return;
    }
    TextFiles::each_chunk_of(row[*column], take.text);
    take.end();
  };
  each_row(file, "text: " + file, take_row, take.read);
}

REGISTER_TEXT_FORMAT(csv, {.name = "csv",
                           .description = "comma-separated values (RFC 4180), .csv: the column --text_field of each "
                                          "row is a document; the first row names the columns; also in a folder; .gz "
                                          "too",
                           .reads =
                               [](const TextPath& path) {
                                 return !path.field().empty() && ends_with_or_packed(path.path(), ".csv");
                               },
                           .read_documents = read_rows,
                           .many_documents = true});
REGISTER_TEXT_FORMAT(tsv, {.name = "tsv",
                           .description = "tab-separated values, .tsv, with quotes as in csv; otherwise like csv",
                           .reads =
                               [](const TextPath& path) {
                                 return !path.field().empty() && ends_with_or_packed(path.path(), ".tsv");
                               },
                           .read_documents = read_rows,
                           .many_documents = true});

}  // namespace
}  // namespace orrery::models
