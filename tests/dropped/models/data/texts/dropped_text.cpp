// .dropped files: documents that a line with a dot alone ends.
#include "models/data/lines.h"
#include "models/data/text_files.h"
#include "models/data/text_format.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

void read_documents(const std::string& file, const std::string&, const TakeDocuments& take) {
  std::string document;
  each_line(file, "text: " + file, [&](std::string_view line) {
    take.read(line.size() + 1);
    if (line != ".") {
      document.append(line).push_back('\n');
      return;
    }
    TextFiles::each_chunk_of(document, take.text);
    take.end();
    document.clear();
  });
}

REGISTER_TEXT_FORMAT(dropped_text, {.name = "dropped_text",
                                    .description = ".dropped files, for a test",
                                    .reads =
                                        [](const TextPath& path) {
                                          return ends_with_or_packed(path.path(), ".dropped");
                                        },
                                    .read_documents = read_documents,
                                    .many_documents = true});

}  // namespace
}  // namespace orrery::models
