// Tables: each row is a document in one of the columns, which the first row names.
#include "models/formats/csv.h"

#include <algorithm>
#include <optional>

#include "models/data/text_files.h"
#include "models/data/text_format.h"

namespace orrery::models {
namespace {

// Returns the number of a column, from 0; throws Error with the columns if there is none.
size_t column_of(const CsvRow& header, const std::string& field, const std::string& file) {
  const auto found = std::find(header.begin(), header.end(), field);
  check(found != header.end(), "text: ", file, " has no column '", field, "'; its columns are ", join(header),
        "; give one with --text_field=COLUMN, or read the file as plain text with --text_field=");
  return static_cast<size_t>(found - header.begin());
}

void read_rows(const std::string& file, const std::string& field, char separator, const TakeDocuments& take) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  const std::string what = "text: " + file;
  std::optional<size_t> column;
  CsvParser parser(
      what,
      [&](const CsvRow& row) {
        if (!column) {
          column = column_of(row, field, file);
          return;
        }
        TextFiles::each_chunk_of(row[*column], take.text);
        take.end();
      },
      separator);
  TextFiles::each_chunk(file, [&](std::string_view chunk, uint64_t before) {
    take.read(chunk.size());
    if (before == 0 && chunk.starts_with(byte_order_mark)) chunk.remove_prefix(byte_order_mark.size());
    parser.add(chunk);
  });
  parser.finish();
}

REGISTER_TEXT_FORMAT(csv, {.name = "csv",
                           .description = "comma-separated values (RFC 4180), one .csv file or a folder of them: the "
                                          "column --text_field of each row is a document; the first row names the "
                                          "columns; .gz too",
                           .reads =
                               [](const TextPath& path) {
                                 return !path.field().empty() && path.all_end_with({".csv"});
                               },
                           .read_documents = [](const std::string& file, const std::string& field,
                                                const TakeDocuments& take) { read_rows(file, field, ',', take); },
                           .many_documents = true});
REGISTER_TEXT_FORMAT(tsv, {.name = "tsv",
                           .description = "tab-separated values, .tsv, with quotes as in csv; otherwise like csv",
                           .reads =
                               [](const TextPath& path) {
                                 return !path.field().empty() && path.all_end_with({".tsv"});
                               },
                           .read_documents = [](const std::string& file, const std::string& field,
                                                const TakeDocuments& take) { read_rows(file, field, '\t', take); },
                           .many_documents = true});

}  // namespace
}  // namespace orrery::models
