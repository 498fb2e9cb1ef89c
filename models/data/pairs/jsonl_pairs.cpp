// JSON Lines: each line is an object with a sentence and its translation in two of its members.
#include <array>
#include <string_view>
#include <utility>

#include "engine/types/usage_error.h"
#include "models/data/lines.h"
#include "models/data/pair_format.h"
#include "models/formats/gzip.h"
#include "models/formats/json_lines.h"

namespace orrery::models {
namespace {

std::vector<TextPair> read_lines(const PairFiles& files) {
  check_no_columns(files, files.source + " is JSONL, with --source_field and --target_field");
  check_usage(files.source_field != files.target_field, "pairs: source_field and target_field of ", files.source,
              " are both '", files.source_field, "'; give two different fields");
  const std::string what = "pairs: " + files.source;
  const std::array fields = {files.source_field, files.target_field};
  std::vector<TextPair> pairs;
  uint64_t number = 0;
  each_line_of_pairs(files.source, [&](std::string_view line) {
    ++number;
    if (line.find_first_not_of(" \t") == line.npos) return;
    std::vector<std::string> texts = texts_in_line(line, number, fields, what);
    add_checked(pairs, {std::move(texts[0]), std::move(texts[1])}, what, fewer_pairs);
  });
  return pairs;
}

REGISTER_PAIR_FORMAT(jsonl_pairs, {.name = "jsonl_pairs",
                                   .description = "JSON Lines: each line of a .jsonl or .ndjson file is an object, "
                                                  "whose members --source_field and --target_field are a pair; .gz too",
                                   .reads =
                                       [](const PairFiles& files) {
                                         return files.target.empty() && !files.source_field.empty() &&
                                                (ends_with_or_packed(files.source, ".jsonl") ||
                                                 ends_with_or_packed(files.source, ".ndjson"));
                                       },
                                   .read = read_lines});

}  // namespace
}  // namespace orrery::models
