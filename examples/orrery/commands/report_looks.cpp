#include "examples/orrery/commands/report_looks.h"

#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "models/inspection/base/look.h"
#include "models/reports/report_views.h"
#include "models/training/generation.h"

namespace orrery::program {
namespace {

bool reads(nn::Module& model, const models::ExampleSettings& example) {
  if (dynamic_cast<models::ImageModel*>(&model)) return !example.image.empty();
  if (dynamic_cast<models::TranslationModel*>(&model)) return !example.source.empty();
  return !example.text.empty();
}

// Returns a text that the model generates.
models::ExampleSettings own_text(models::LanguageModel& model, const models::Tokenizer& tokenizer, int64_t seed) {
  const int64_t tokens = std::min(most_own_tokens, model.context());
  std::vector<int32_t> written = models::generate(model, models::beginning_of_text(tokenizer),
                                                  sampling_with(model, tokenizer, {.tokens = tokens, .seed = seed}));
  if (written.size() > static_cast<size_t>(tokens)) written.resize(static_cast<size_t>(tokens));
  if (tokenizer.begins_texts()) written.erase(written.begin());  // it gets a begin token again when encoded
  models::ExampleSettings example;
  example.text = tokenizer.decode(written);
  return example;
}

std::unique_ptr<models::Subject> subject_of(const Trained& trained, const models::ExampleSettings& given,
                                            const SampleSettings& samples) {
  if (reads(*trained.model, given)) return make_subject("report", trained, given);
  if (dynamic_cast<models::ImageModel*>(trained.model.get())) return nullptr;  // it has no image
  const auto tokenizer = models::restore_tokenizer(trained.tokenizer);
  models::ExampleSettings own;
  if (auto* const writes = dynamic_cast<models::LanguageModel*>(trained.model.get()))
    own = own_text(*writes, *tokenizer, samples.seed);
  else if (auto* const translates = dynamic_cast<models::TranslationModel*>(trained.model.get()))
    own = held_out_pair(trained, *translates, *tokenizer);
  return own.given() ? make_subject("report", trained, own) : nullptr;
}

}  // namespace

void add_looks(models::Json& sections, std::span<const models::ReportedRun> runs, const std::string& looks,
               const models::ExampleSettings& example, const SampleSettings& samples) {
  if (looks == "none") return;
  bool looked = false, read = false;
  for (const models::ReportedRun& run : runs) {
    if (run.best.empty()) continue;
    std::vector<models::View> views;
    bool given = false;
    try {
      Trained trained = read_trained("report", folder_exists(run.best) ? run.best : run.folder);
      follow("report", samples.bounds, trained);
      given = reads(*trained.model, example), looked = true, read |= given;
      if (const auto subject = subject_of(trained, example, samples)) views = look_at(*subject, looks, {});
    } catch (const Error& error) {
      if (given) throw;  // an error for the user's example; otherwise the page is written without it
      models::Json items = models::Json::array({{{"name", run.name}, {"text", error.what()}, {"wrap", true}}});
      sections.push_back(models::report_section("Analysis", "text", "Runs that could not be analyzed", "",
                                                {{"items", std::move(items)}}));
    }
    if (runs.size() > 1)
      for (models::View& view : views) view.title = run.name + ": " + view.title;
    add_views(sections, views);
  }
  check(!looked || read || !example.given(),
        "report: no run takes an example of this kind; give --text for language models, --image for image models, "
        "--source for translation models");
}

}  // namespace orrery::program
