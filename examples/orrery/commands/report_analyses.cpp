#include "examples/orrery/commands/report_analyses.h"

#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "models/inspection/base/analysis.h"
#include "models/reports/report_views.h"
#include "models/training/generation.h"

namespace orrery::program {
namespace {

bool accepts(nn::Module& model, const models::ExampleSettings& example) {
  if (dynamic_cast<models::ImageModel*>(&model)) return !example.image.empty();
  if (dynamic_cast<models::TranslationModel*>(&model)) return !example.source.empty();
  return !example.text.empty();
}

// Returns a text that the model generates.
models::ExampleSettings own_text(models::LanguageModel& model, const models::Tokenizer& tokenizer, int64_t seed) {
  const int64_t tokens = std::min(max_own_tokens, model.context());
  std::vector<int32_t> written = models::generate(model, models::beginning_of_text(tokenizer),
                                                  sampling_with(model, tokenizer, {.tokens = tokens, .seed = seed}));
  if (written.size() > static_cast<size_t>(tokens)) written.resize(static_cast<size_t>(tokens));
  if (tokenizer.begins_texts()) written.erase(written.begin());  // it gets a begin token again when encoded
  models::ExampleSettings example;
  example.text = tokenizer.decode(written);
  return example;
}

std::unique_ptr<models::InspectedExample> example_for_run(const LoadedRun& trained,
                                                          const models::ExampleSettings& given,
                                                          const SampleSettings& samples) {
  if (accepts(*trained.model, given)) return make_example("report", trained, given);
  if (dynamic_cast<models::ImageModel*>(trained.model.get())) return nullptr;  // it has no image
  const auto tokenizer = models::restore_tokenizer(trained.tokenizer);
  models::ExampleSettings own;
  if (auto* const lm = dynamic_cast<models::LanguageModel*>(trained.model.get()))
    own = own_text(*lm, *tokenizer, samples.seed);
  else if (auto* const translator = dynamic_cast<models::TranslationModel*>(trained.model.get()))
    own = held_out_pair(trained, *translator, *tokenizer);
  return own.given() ? make_example("report", trained, own) : nullptr;
}

}  // namespace

void add_analyses(models::Json& sections, std::span<const models::ReportedRun> runs, const std::string& analyses,
                  const models::ExampleSettings& example, const SampleSettings& samples) {
  if (analyses == "none") return;
  bool analyzed = false, accepted = false;
  for (const models::ReportedRun& run : runs) {
    if (run.best.empty()) continue;
    std::vector<models::View> views;
    bool given = false;
    try {
      LoadedRun trained = load_run("report", folder_exists(run.best) ? run.best : run.folder);
      apply_bounds("report", samples.bounds, trained);
      given = accepts(*trained.model, example), analyzed = true, accepted |= given;
      if (const auto inspected = example_for_run(trained, example, samples)) views = analyze(*inspected, analyses, {});
    } catch (const Error& error) {
      if (given) throw;  // an error for the user's example; otherwise the page is written without it
      models::Json items = models::Json::array({{{"name", run.name}, {"text", error.what()}, {"wrap", true}}});
      sections.push_back(models::report_section("Analysis", "text", "Runs that could not be analyzed", "",
                                                {{"items", std::move(items)}}));
    }
    const size_t first = sections.size();
    add_views(sections, views);
    if (runs.size() < 2) continue;
    for (size_t i = first; i < sections.size(); ++i) {
      const std::string title = sections[i]["title"];
      sections[i]["view"] = title, sections[i]["title"] = run.name + ": " + title;
    }
  }
  check(!analyzed || accepted || !example.given(),
        "report: no run takes an example of this kind; give --text for language models, --image for image models, "
        "--source for translation models");
}

}  // namespace orrery::program
