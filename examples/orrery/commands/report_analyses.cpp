#include "examples/orrery/commands/report_analyses.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/settings/spec.h"
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

// Chooses the example of each run: the user's, else a held-out one, else a text that the model generates. Runs without
// the user's example share the first one's, if it is held out by them too, or has a text that they read.
class ExampleChoice {
 public:
  ExampleChoice(const ExampleArgument& given, const SampleSettings& samples, std::span<const models::ReportedRun> runs)
      : given_(given), samples_(samples), number_(held_out_number("report", given)) {
    for (const models::ReportedRun& run : runs)  // windows of one text are the same for all contexts
      if (const auto context = number_in(run.setting("context"))) {
        int64_t& most = max_tokens_.emplace(run.settings->task, max_own_tokens).first->second;
        most = std::min(most, static_cast<int64_t>(*context));
      }
  }

  // Returns null if the run has no example. `described` becomes a sentence about the example.
  std::unique_ptr<models::InspectedExample> of(const std::string& run, const LoadedRun& trained,
                                               std::string& described) {
    if (accepts(*trained.model, given_)) {
      auto example = make_example("report", trained, given_);
      if (example->left_out() > 0) described = "Note: " + describe_cut(*example) + ".  ";
      return example;
    }
    models::ExampleSettings texts;
    auto own = own_example(trained, texts, described);
    if (first_.empty()) {
      if (own) first_ = run, content_ = content_of(*own), texts_ = texts, name_ = described;
      described = own ? "Example: " + described + ".  " : "";
      return own;
    }
    if (own && content_of(*own) == content_) {
      described = text("Example: ", described, ", the same as of ", first_, ".  ");
      return own;
    }
    const std::string why = described.starts_with("held_out:") ? "its held-out example of this number is another"
                                                               : "it has no held-out example here";
    if (accepts(*trained.model, texts_)) try {
        auto example = make_example("report", trained, texts_);
        described = text("Example: the text of ", first_, " (", name_,
                         ") in the tokens of this run, which may have trained on it: ", why, ".  ");
        return example;
      } catch (const Error&) {  // its tokenizer has no tokens for the text, or too many
      }
    described = own ? text("Example: ", described, ", another than that of ", first_, ".  ") : "";
    return own;
  }

 private:
  std::unique_ptr<models::InspectedExample> own_example(const LoadedRun& trained, models::ExampleSettings& texts,
                                                        std::string& described) const {
    auto* const lm = dynamic_cast<models::LanguageModel*>(trained.model.get());
    if (!lm || !given_.held_out.empty() || missing_data(trained).empty()) {
      const auto limit = max_tokens_.find(trained.settings.task);
      const HeldOutExamples held_out("report", trained, limit == max_tokens_.end() ? max_own_tokens : limit->second);
      const bool may_lack = !first_.empty() && number_ >= held_out.count();
      if (auto example = may_lack ? nullptr : held_out.at(number_, trained)) {
        texts = held_out.texts_at(number_, trained);
        described = text("held_out:", number_, " of the run's held-out data");
        return example;
      }
    }
    if (!lm) return nullptr;
    texts = own_text(*lm, *models::restore_tokenizer(trained.tokenizer), samples_.seed);
    described = "a text that the model generates";
    return make_example("report", trained, texts);
  }
  // Returns what a person sees of an example: its tokens or pixels, and its targets.
  static std::vector<std::string> content_of(const models::InspectedExample& example) {
    std::vector<std::string> content;
    for (const int32_t target : example.targets()) content.push_back(target < 0 ? "" : example.target_name(target));
    if (const Tensor image = example.image(); image.defined()) {  // its positions depend on the model
      for (const double x : image.to_vector()) content.push_back(print_number(x));
      return content;
    }
    for (const char* const path : {"encoder", ""}) {
      const std::vector<std::string>& tokens = example.position_labels(path);
      content.insert(content.end(), tokens.begin(), tokens.end());
    }
    return content;
  }

  const ExampleArgument& given_;
  const SampleSettings& samples_;
  int64_t number_;
  std::map<std::string, int64_t> max_tokens_;  // by task
  std::string first_, name_;  // the run whose example is shared, and what it is
  std::vector<std::string> content_;
  models::ExampleSettings texts_;
};

}  // namespace

void add_analyses(models::Json& sections, std::span<const models::ReportedRun> runs, const std::string& analyses,
                  const ExampleArgument& example, const SampleSettings& samples, const SourceLinks& links) {
  if (analyses == "none") return;
  ExampleChoice choice(example, samples, runs);
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
      if (const auto inspected = choice.of(run.name, trained, described))
        views = analyze_or_all(*inspected, analyses, {});
      const auto is_input = [](const models::View& view) { return view.group == "Predictions"; };
      const auto input = std::find_if(views.begin(), views.end(), is_input);
      if (!views.empty()) (input == views.end() ? views.front() : *input).caption.insert(0, described);
      links.add_to(views);
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
      sections[i]["run"] = &run - runs.data();
      sections[i]["view"] = title, sections[i]["title"] = run.name + ": " + title;
    }
  }
  check(!analyzed || accepted || !example.given(),
        "report: no run takes an example of this kind; give --text for language models, --image for image models, "
        "--source for translation models");
}

}  // namespace orrery::program
