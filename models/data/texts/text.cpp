// Plain text: a file, or a folder whose files are documents.
#include "models/data/text_files.h"
#include "models/data/text_format.h"

namespace orrery::models {
namespace {

void read_documents(const std::string& file, const std::string&, const TakeDocuments& take) {
  TextFiles::each_chunk(file, [&](std::string_view chunk, uint64_t before) {
    take.text(chunk, before);
    take.read(chunk.size());
  });
  take.end();
}

REGISTER_TEXT_FORMAT(text, {.name = "text",
                            .description = "a UTF-8 file, or a folder whose files, including those in subfolders, are "
                                           "documents in the order of their names; .gz too",
                            .reads = [](const TextPath&) { return true; },
                            .read_documents = read_documents,
                            .of_any_content = true});

}  // namespace
}  // namespace orrery::models
