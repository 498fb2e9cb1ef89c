#include "examples/orrery/commands/inspect_corpus.h"

#include <algorithm>
#include <span>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "examples/orrery/commands/text_argument.h"
#include "models/data/text_files.h"
#include "models/data/tokenizer.h"
#include "models/model.h"

namespace orrery::program {
namespace {

// Returns the tokens of a text; of documents, at least the first `enough`, each ended as in training.
std::vector<int32_t> corpus_tokens(const std::string& path, const LoadedRun& trained, size_t enough) {
  const auto tokenizer = models::restore_tokenizer(trained.tokenizer);
  models::TextSource source(path);
  const AnySettings& task = trained.settings.task_settings;
  if (find_setting(task.members(), "text_field")) source.field = models::setting_of<std::string>(task, "text_field");
  const bool plain = is_pipe(path) || !(folder_exists(path) || models::has_many_documents(models::TextPath(source)));
  if (plain) return encode_text(*tokenizer, beginning_of_file(path));
  struct Enough {};  // ends the reading, which may be of a data set
  std::vector<int32_t> tokens;
  try {
    models::encode_files(*tokenizer, models::TextFiles(source), [&](std::span<const int32_t> some, const auto&) {
      tokens.insert(tokens.end(), some.begin(), some.end());
      if (tokens.size() >= enough) throw Enough();
    });
  } catch (const Enough&) {
  }
  return tokens;
}

}  // namespace

std::vector<std::unique_ptr<models::InspectedExample>> corpus_chunks(const std::string& file, const LoadedRun& trained,
                                                                     const models::InspectedExample& inspected) {
  constexpr size_t max_chunks = 1024;
  const auto* const model = dynamic_cast<const models::LanguageModel*>(trained.model.get());
  check(model && inspected.tokens(),
        "inspect: --corpus requires a language model, and this model is not one; leave it out");
  const std::vector<int32_t> tokens = corpus_tokens(file, trained, max_chunks * static_cast<size_t>(model->context()));
  check(!tokens.empty(), "inspect: --corpus=", file, " has no tokens; give a file with text");
  std::vector<std::unique_ptr<models::InspectedExample>> chunks;
  for (size_t begin = 0; begin < tokens.size() && chunks.size() < max_chunks;) {
    const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(model->context()));
    chunks.push_back(inspected.from_tokens(
        {tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end)},
        false));
    begin = end;
  }
  return chunks;
}

}  // namespace orrery::program
