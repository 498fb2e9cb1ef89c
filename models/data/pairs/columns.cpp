// A file of tab-separated columns, without quotes.
#include <string_view>
#include <utility>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/data_format.h"
#include "models/data/lines.h"
#include "models/data/pair_format.h"

namespace orrery::models {
namespace {

std::string column_of(std::string_view line, int64_t column, const std::string& path, size_t number) {
  size_t begin = 0;
  for (int64_t i = 1; i < column; ++i) {
    const size_t tab = line.find('\t', begin);
    if (tab == line.npos) {
      const std::string why =
          text("pairs: line ", number, " of ", path, " has ", pluralize(i, "column"), ", but column ", column,
               " is required; separate columns by tabs (for two files of lines give --translations=FILE, "
               "for validation --validation_translations=FILE)");
      if (number == 1 && i == 1) fail_unknown_format("pairs", why);  // a file without columns
      fail(why);
    }
    begin = tab + 1;
  }
  return std::string(line.substr(begin, line.find('\t', begin) - begin));
}

std::vector<TextPair> read_columns(const PairFiles& files) {
  std::vector<TextPair> pairs;
  std::string document;
  const std::string what = "pairs: " + files.source;
  size_t number = 0;
  int64_t its_lines = 0;  // of the current pair
  each_line_of_pairs(files.source, [&](std::string_view line) {
    ++number;
    const auto column = [&](int64_t which) { return column_of(line, which, files.source, number); };
    std::string source = column(files.source_column), target = column(files.target_column);
    std::string its_document = files.document_column ? column(files.document_column) : "";
    const bool full = files.document_lines && its_lines == files.document_lines;
    if (files.document_column && number > 1 && its_document == document && !full) {
      pairs.back().first += " " + source;
      pairs.back().second += " " + target;
      ++its_lines;
    } else {
      add_checked(pairs, {std::move(source), std::move(target)}, what, fewer_pairs);
      its_lines = 1;
    }
    document = std::move(its_document);
  });
  return pairs;
}

REGISTER_PAIR_FORMAT(columns,
                     {.name = "columns",
                      .description = "a file of tab-separated columns, --source_column and --target_column; "
                                     "consecutive lines with equal --document_column are joined, at most "
                                     "--document_lines per pair",
                      .reads =
                          [](const PairFiles& files) { return files.target.empty() && !folder_exists(files.source); },
                      .read = read_columns,
                      .of_any_file = true});

}  // namespace
}  // namespace orrery::models
