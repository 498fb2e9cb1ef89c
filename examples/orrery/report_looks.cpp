#include "examples/orrery/report_looks.h"

#include <nlohmann/json.hpp>

#include "engine/base/files.h"
#include "models/inspection/base/look.h"
#include "models/study/report_views.h"
#include "models/training/generation.h"

namespace orrery::program {
namespace {

constexpr int64_t most_tokens = 64;  // of an example that nobody has given: its maps can still be read

std::unique_ptr<models::Subject> subject_of(const Trained& trained, const models::ExampleSettings& example,
                                            const SampleSettings& samples) {
  if (example.given()) return make_subject("report", trained, example);
  auto* const writes = dynamic_cast<models::LanguageModel*>(trained.model.get());
  if (!writes) return nullptr;
  const auto tokenizer = models::restore_tokenizer(trained.tokenizer);
  const int64_t tokens = std::min(most_tokens, writes->context());
  std::vector<int32_t> written =
      models::generate(*writes, beginning_of_text(*tokenizer), {.tokens = tokens, .seed = samples.seed});
  if (written.size() > static_cast<size_t>(tokens)) written.resize(static_cast<size_t>(tokens));
  models::ExampleSettings own;
  own.text = tokenizer->decode(written);
  return make_subject("report", trained, own);
}

}  // namespace

void add_looks(models::Json& sections, std::span<const models::ReportedRun> runs, const std::string& looks,
               const models::ExampleSettings& example, const SampleSettings& samples) {
  if (looks == "none") return;
  for (const models::ReportedRun& run : runs) {
    if (run.best.empty()) continue;
    std::vector<models::View> views;
    try {
      const Trained trained = read_trained("report", folder_exists(run.best) ? run.best : run.folder);
      if (const auto subject = subject_of(trained, example, samples)) views = look_at(*subject, looks, {});
    } catch (const Error& error) {
      if (example.given()) throw;  // what was asked for; else a page without it is better than none
      models::Json items = models::Json::array({{{"name", run.name}, {"text", error.what()}, {"wrap", true}}});
      sections.push_back(models::report_section("A look inside", "text", "What could not be looked at", "",
                                                {{"items", std::move(items)}}));
    }
    if (runs.size() > 1)
      for (models::View& view : views) view.title = run.name + ": " + view.title;
    add_views(sections, views);
  }
}

}  // namespace orrery::program
