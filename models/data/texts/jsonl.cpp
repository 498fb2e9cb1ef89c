// JSON Lines: each line is an object with a document in one of its members.
#include <string_view>

#include "models/data/lines.h"
#include "models/data/text_files.h"
#include "models/data/text_format.h"
#include "models/formats/gzip.h"
#include "models/formats/json_lines.h"

namespace orrery::models {
namespace {

void read_documents(const std::string& file, const std::string& field, const TakeDocuments& take) {
  const std::string what = "text: " + file;
  uint64_t number = 0;
  each_line(file, what, [&](std::string_view line) {
    ++number;
    if (line.find_first_not_of(" \t") == line.npos) return;
    TextFiles::each_chunk_of(texts_in_line(line, number, {&field, 1}, what)[0], take.text);
    take.end();
    take.read(line.size() + 1);
  });
}

REGISTER_TEXT_FORMAT(jsonl, {.name = "jsonl",
                             .description = "JSON Lines: each line of a .jsonl or .ndjson file is an object, whose "
                                            "member --text_field is a document; also in a folder; .gz too",
                             .reads =
                                 [](const TextPath& path) {
                                   return !path.field().empty() &&
                                          (ends_with_or_packed(path.path(), ".jsonl") ||
                                           ends_with_or_packed(path.path(), ".ndjson"));
                                 },
                             .read_documents = read_documents,
                             .many_documents = true});

}  // namespace
}  // namespace orrery::models
