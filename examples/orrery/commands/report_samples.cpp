#include "examples/orrery/commands/report_samples.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "examples/orrery/commands/load_run.h"
#include "models/architectures/translation_search.h"
#include "models/data/sentence_pairs.h"
#include "models/language_model.h"
#include "models/reports/report.h"
#include "models/training/generation.h"

namespace orrery::program {
namespace {

using models::Json;

Json item(const std::string& name, const std::string& text) { return {{"name", name}, {"text", text}, {"wrap", true}}; }

void add_texts(Json& items, models::LanguageModel& model, const models::Tokenizer& tokenizer, const std::string& name,
               const SampleSettings& s) {
  const std::vector<int32_t> prompt = models::beginning_of_text(tokenizer);
  for (int64_t i = 0; i < s.samples; ++i) {
    const models::SamplingSettings sampling = sampling_with(model, tokenizer, {.tokens = s.tokens, .seed = s.seed + i});
    std::vector<int32_t> all = models::generate(model, prompt, sampling);
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
    items.push_back(item(text(name, "seed ", s.seed + i), tokenizer.decode(all)));
  }
}

// Returns the last `max_pairs` pairs of sentences of the validation data or, without those, of the
// data; none if the file is missing.
std::vector<models::TextPair> held_out_pairs(const models::TrainSettings& settings, int64_t max_pairs) {
  const auto number = [&](const char* key) { return parse_whole_number(key, setting_of(settings, key)); };
  models::PairFiles files;
  files.source = setting_of(settings, "validation_data");
  files.target = setting_of(settings, "validation_translations");
  if (files.source.empty())
    files.source = setting_of(settings, "data"), files.target = setting_of(settings, "translations");
  files.source_column = number("source_column"), files.target_column = number("target_column");
  files.source_field = setting_of(settings, "source_field"), files.target_field = setting_of(settings, "target_field");
  files.document_column = number("document_column"), files.document_lines = number("document_lines");
  if (!file_exists(files.source)) return {};
  std::vector<models::TextPair> pairs = models::read_pairs(files);
  pairs.erase(pairs.begin(), pairs.end() - std::min(max_pairs, static_cast<int64_t>(pairs.size())));
  return pairs;
}

void add_translations(Json& items, models::TranslationModel& model, const models::Tokenizer& tokenizer,
                      const models::TrainSettings& settings, const std::string& name, const SampleSettings& s) {
  const std::vector<models::TextPair> pairs = held_out_pairs(settings, 4 * s.samples);
  if (pairs.empty()) return;
  const models::SentenceMarks marks = models::sentence_marks(tokenizer);
  const int64_t context = model.context();
  std::string all;
  for (const auto& [source, target] : pairs) {
    std::vector<std::vector<int32_t>> tokens = {tokenizer.encode(source)};
    tokens[0].push_back(marks.end);
    if (static_cast<int64_t>(tokens[0].size()) > context) continue;
    all += text(all.empty() ? "" : "\n\n", "source     ", source, "\nreference  ", target, "\nmodel      ",
                models::translate_to_text(model, tokens, tokenizer, {})[0]);
  }
  items.push_back(item(name + "held-out sentences, greedy", all));
}

}  // namespace

void add_samples(Json& sections, std::span<const models::ReportedRun> runs, const SampleSettings& s) {
  if (s.samples == 0) return;
  Json items = Json::array();
  for (const models::ReportedRun& run : runs) {
    if (run.best.empty()) continue;
    const std::string name = runs.size() == 1 ? "" : run.name + ", ";
    try {
      // A run in training may have replaced its best checkpoint.
      LoadedRun trained = load_run("report", folder_exists(run.best) ? run.best : run.folder);
      apply_bounds("report", s.bounds, trained);
      if (setting_of(trained.settings, "tokenizer").empty()) continue;  // models without texts or sentences
      const auto tokenizer = models::restore_tokenizer(trained.tokenizer);
      if (auto* const lm = dynamic_cast<models::LanguageModel*>(trained.model.get()))
        add_texts(items, *lm, *tokenizer, name, s);
      else if (auto* const translator = dynamic_cast<models::TranslationModel*>(trained.model.get()))
        add_translations(items, *translator, *tokenizer, trained.settings, name, s);
    } catch (const Error& error) {
      items.push_back(item(name + "no samples", error.what()));
    }
  }
  if (items.empty()) return;
  sections.push_back(models::report_section("Samples", "text", "Generated samples",
                                            "From the checkpoint with the lowest validation loss.",
                                            {{"items", items}, {"side", true}}));
}

}  // namespace orrery::program
