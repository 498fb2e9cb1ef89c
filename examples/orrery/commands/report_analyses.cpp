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

// Returns the user's example, else a held-out one. Without held-out data a language model gets a text
// that it generates, another model null.
std::unique_ptr<models::InspectedExample> example_for_run(const LoadedRun& trained, const ExampleArgument& given,
                                                          const SampleSettings& samples, std::string& described) {
  if (accepts(*trained.model, given)) {
    auto example = make_example("report", trained, given);
    if (example->left_out() > 0) described = "Note: " + describe_cut(*example) + ".  ";
    return example;
  }
  const int64_t number = held_out_number("report", given);
  auto* const lm = dynamic_cast<models::LanguageModel*>(trained.model.get());
  if (!lm || !given.held_out.empty() || missing_data(trained).empty())
    if (auto example = HeldOutExamples("report", trained).at(number, trained)) {
      described = text("Example held_out:", number, " of the run's held-out data.  ");
      return example;
    }
  if (!lm) return nullptr;
  described = "Example: a text that the model generates.  ";
  return make_example("report", trained, own_text(*lm, *models::restore_tokenizer(trained.tokenizer), samples.seed));
}

}  // namespace

void add_analyses(models::Json& sections, std::span<const models::ReportedRun> runs, const std::string& analyses,
                  const ExampleArgument& example, const SampleSettings& samples) {
  if (analyses == "none") return;
  held_out_number("report", example);  // rejects another form
  bool analyzed = false, accepted = false;
  for (const models::ReportedRun& run : runs) {
    if (run.best.empty()) continue;
    std::vector<models::View> views;
    bool given = false;
    try {
      LoadedRun trained = load_run("report", folder_exists(run.best) ? run.best : run.folder);
      apply_bounds("report", samples.bounds, trained);
      const bool accepted_here = accepts(*trained.model, example);
      given = accepted_here || !example.held_out.empty(), analyzed = true, accepted |= accepted_here;
      std::string described;
      if (const auto inspected = example_for_run(trained, example, samples, described)) {
        views = analyze(*inspected, analyses, {});
        if (views.empty() && analyses == default_analyses) views = analyze(*inspected, "all", {});
      }
      if (!views.empty()) views[0].caption = described + views[0].caption;
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
