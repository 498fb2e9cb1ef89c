#include "models/data/pair_format.h"

#include "engine/types/check.h"
#include "models/data/data_format.h"

namespace orrery::models {

Registry<PairFormat>& pair_formats() {
  static Registry<PairFormat> all("data");
  return all;
}
bool add_pair_format(const PairFormat& format) {
  pair_formats().add(format);
  data_formats().add({format.name, format.description, "pairs"});
  return true;
}

const PairFormat* find_pair_format(const PairFiles& files) {
  for (const bool of_any : {false, true})
    for (const auto& [name, format] : pair_formats())
      if (format.of_any_file == of_any && format.reads(files)) return &format;
  return nullptr;
}

const PairFormat& pair_format_of(const PairFiles& files) {
  if (const PairFormat* const found = find_pair_format(files)) return *found;
  fail_unknown_format("pairs", text("pairs: ", files.source, " has no known format"));
}

std::vector<TextPair> read_pairs(const PairFiles& files) {
  check(files.document_lines == 0 || files.document_column != 0, "pairs: document_lines=", files.document_lines,
        " requires documents; give their column with --document_column");
  try {
    return pair_format_of(files).read(files);
  } catch (const Error& error) {
    fail_if_binary("pairs", files.source, error.what(), error);
    throw;
  }
}

void check_no_columns(const PairFiles& files, const std::string& what) {
  check(files.document_column == 0, "pairs: documents require a file of columns, but ", what,
        "; leave out --document_column");
  const PairFiles defaults;
  check(files.source_column == defaults.source_column && files.target_column == defaults.target_column,
        "pairs: source_column=", files.source_column, " and target_column=", files.target_column,
        " require a file of columns, but ", what, "; leave them out");
}

void each_line_of_pairs(const std::string& path, const TakeLine& take) {
  bool any = false;
  each_kept_line(path, "pairs: " + path, fewer_pairs, [&](std::string_view line) {
    any = true;
    take(line);
  });
  check(any, "pairs: ", path, " is empty; give a file with sentences");
}

}  // namespace orrery::models
