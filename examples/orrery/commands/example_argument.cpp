#include "examples/orrery/commands/example_argument.h"

#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/system/files.h"
#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/image_reader.h"
#include "examples/orrery/commands/text_argument.h"
#include "examples/orrery/terminal/messages.h"
#include "models/architectures/translation_search.h"
#include "models/data/sentence_pairs.h"
#include "models/model.h"

namespace orrery::program {
namespace {

std::string model_translation(models::TranslationModel& model, const models::Tokenizer& tokenizer,
                              const std::string& source) {
  std::vector<std::vector<int32_t>> sources = {tokenizer.encode(source)};
  sources[0].push_back(models::sentence_marks(tokenizer).end);
  return models::translate_to_text(model, sources, tokenizer, {})[0];
}

// Returns the token that ends a document, if the run masks attention between documents.
std::optional<int32_t> end_of_document(const LoadedRun& trained, const models::Tokenizer& tokenizer) {
  AnySettings task = trained.settings.task_settings;
  if (!find_setting(task.members(), "documents") || !models::setting_of<bool>(task, "documents")) return {};
  return tokenizer.end_of_text();
}

// Returns the task's settings without the training data, if the run has its own validation data.
AnySettings held_out_task(const LoadedRun& trained) {
  AnySettings task = trained.settings.task_settings;
  if (!find_setting(task.members(), "validation_data") ||
      models::setting_of<std::string>(task, "validation_data").empty())
    return task;
  for (const char* key : {"data", "translations"})
    if (find_setting(task.members(), key)) models::setting_of<std::string>(task, key).clear();
  return task;
}

// Returns the settings that hold paths of data, with these paths; none: the data are generated or unknown.
std::vector<std::pair<std::string, std::string>> paths_of(AnySettings task) {
  std::vector<std::pair<std::string, std::string>> paths;
  for (const char* key : models::paths_of_data)
    if (find_setting(task.members(), key))
      if (const std::string& path = models::setting_of<std::string>(task, key); !path.empty())
        paths.emplace_back(key, path);
  return paths;
}

std::vector<int32_t> numbers(const Tensor& x) { return {x.data<int32_t>(), x.data<int32_t>() + x.numel()}; }

}  // namespace

std::vector<models::View> analyze_or_all(const models::InspectedExample& example, const std::string& names,
                                         const models::AnalysisSettings& settings) {
  std::vector<models::View> views = analyze(example, names, settings);
  const bool only_of_pages = std::all_of(views.begin(), views.end(), [](const models::View& view) {
    return view.group == "Predictions" || view.group == "Components";
  });
  if (only_of_pages && (names == default_analyses || names == page_analyses)) return analyze(example, "all", settings);
  return views;
}

std::unique_ptr<models::InspectedExample> make_example(const std::string& command, const LoadedRun& trained,
                                                       const models::ExampleSettings& example, bool may_cut) {
  const auto need = [&](const std::string& value, const char* key, const char* kind) {
    check_usage(!value.empty(), command, ": the input of this model is ", kind, "; give it with --", key, "=",
                std::string(key) == "image" ? "FILE.png" : "\"...\", which must not be empty");
  };
  nn::Module& model = *trained.model;
  if (auto* const images = dynamic_cast<models::ImageModel*>(&model)) {
    need(example.image, "image", "an image");
    ImageReader reader(trained, *images);
    const Tensor pixels = reader.read(example.image);
    reader.warn_of_rotated_images();
    return models::image_example(*images, pixels, models::restore_classes(trained.tokenizer),
                                 static_cast<int32_t>(example.label));
  }
  const std::shared_ptr<const models::Tokenizer> tokenizer = models::restore_tokenizer(trained.tokenizer);
  if (auto* const lm = dynamic_cast<models::LanguageModel*>(&model)) {
    need(example.text, "text", "a text");
    auto made = models::text_example(*lm, tokenizer, text_argument(example.text), end_of_document(trained, *tokenizer));
    check(made->left_out() == 0 || may_cut, "inspect: ", describe_cut(*made, "give a shorter text"));
    if (made->left_out() > 0) note(describe_cut(*made));
    return made;
  }
  if (auto* const translator = dynamic_cast<models::TranslationModel*>(&model)) {
    need(example.source, "source", "a sentence pair");
    const std::string target =
        example.target.empty() ? model_translation(*translator, *tokenizer, example.source) : example.target;
    return models::pair_example(*translator, tokenizer, example.source, target);
  }
  fail(command,
       ": the input of this model is neither a text nor an image nor a sentence pair; choose a run of another model");
}

std::string describe_cut(const models::InspectedExample& example, const std::string& consequence) {
  const auto used = static_cast<int64_t>(example.tokens()->size());
  return text("the text has ", used + example.left_out(), " tokens, but the context is ", used, "; ", consequence);
}

int64_t held_out_number(const std::string& command, const ExampleArgument& example) {
  constexpr std::string_view kind = "held_out:";
  if (example.held_out.empty()) return 0;
  check_usage(!example.given() && example.label < 0 && example.target.empty(), command, ": --example=",
              example.held_out, " has its input and target; leave it out, or --text, --image, --label, --source and "
              "--target");
  const bool is_held_out = example.held_out.starts_with(kind);
  const std::string digits = is_held_out ? example.held_out.substr(kind.size()) : "";
  check_usage(!digits.empty() && digits.size() < 19 && digits.find_first_not_of("0123456789") == std::string::npos,
              command, ": --example=", example.held_out,
              " does not name an example; give held_out:N, as in --example=held_out:17, with N from 0");
  return std::stoll(digits);
}

std::string missing_data(const LoadedRun& trained) {
  for (const auto& [key, path] : paths_of(held_out_task(trained)))
    if (!file_exists(path)) return path;
  return "";
}

HeldOutExamples::HeldOutExamples(const std::string& command, const LoadedRun& trained, int64_t max_tokens)
    : command_(command), max_tokens_(max_tokens) {
  AnySettings task_settings = held_out_task(trained), model_settings = trained.settings.model_settings;
  const auto paths = paths_of(task_settings);
  for (const auto& [key, path] : paths)
    check(file_exists(path), command, ": cannot read ", path, ", the run's --", key,
          ", for a held-out example; give an example with --text, --image or --source");
  if (paths.empty() && find_setting(task_settings.members(), "data")) return;
  task_ = models::tasks().at(trained.settings.task).make(task_settings, model_settings, evaluation_options(trained));
  warn_about_data(trained, *task_);
}

std::unique_ptr<models::InspectedExample> HeldOutExamples::at(int64_t number, const LoadedRun& trained) const {
  const int64_t all = count();
  if (all == 0) return nullptr;
  check_usage(number < all, command_, ": --example=held_out:", number,
              " does not exist; the held-out data of this run have ", pluralize(all, "example"), " (", task_->kind(),
              "), held_out:0 to held_out:", all - 1,
              "; choose one of them, or give an example with --text, --image or --source");
  const std::vector<Tensor> example = task_->validation_example(number, max_tokens_);
  nn::Module& model = *trained.model;
  if (auto* const images = dynamic_cast<models::ImageModel*>(&model))
    return models::image_example(*images, example[0], models::restore_classes(trained.tokenizer),
                                 numbers(example[1])[0]);
  const std::shared_ptr<const models::Tokenizer> tokenizer = models::restore_tokenizer(trained.tokenizer);
  if (auto* const translator = dynamic_cast<models::TranslationModel*>(&model))
    return models::pair_example(*translator, tokenizer, {numbers(example[0]), numbers(example[1])});
  return models::token_example(models::model_as<models::LanguageModel>(model, command_, "a language model"), tokenizer,
                               numbers(example[0]), numbers(example[1]), end_of_document(trained, *tokenizer));
}

models::ExampleSettings HeldOutExamples::texts_at(int64_t number, const LoadedRun& trained) const {
  models::ExampleSettings texts;
  const nn::Module* const model = trained.model.get();
  const bool pairs = dynamic_cast<const models::TranslationModel*>(model) != nullptr;
  if (setting_of(trained.settings, "tokenizer").empty() || dynamic_cast<const models::ImageModel*>(model)) return texts;
  const std::vector<Tensor> example = task_->validation_example(number, max_tokens_);
  const auto tokenizer = models::restore_tokenizer(trained.tokenizer);
  const auto text_of = [&](std::vector<int32_t> tokens) {
    if (pairs) tokens.pop_back();  // the end of a sentence
    return tokenizer->decode(tokens);
  };
  (pairs ? texts.source : texts.text) = text_of(numbers(example[0]));
  if (pairs) texts.target = text_of(numbers(example[1]));
  return texts;
}

void check_input_kind(const std::string& command, const LoadedRun& trained, const models::ExampleSettings& example) {
  const nn::Module* const model = trained.model.get();
  const bool images = dynamic_cast<const models::ImageModel*>(model) != nullptr,
             lm = dynamic_cast<const models::LanguageModel*>(model) != nullptr,
             translator = dynamic_cast<const models::TranslationModel*>(model) != nullptr;
  const char* const inputs = lm           ? "reads texts (--text)"
                             : images     ? "reads images (--image)"
                             : translator ? "reads pairs of sentences (--source, --target)"
                                          : "has another input";
  const auto check_kind = [&](const char* key, bool given, bool read, const char* kind) {
    check_usage(!given || read, command, ": --", key, " is for models of ", kind, ", and this model ", inputs,
                "; leave it out");
  };
  check_kind("text", !example.text.empty(), lm, "texts");
  check_kind("image", !example.image.empty(), images, "images");
  check_kind("label", example.label >= 0, images, "images");
  check_kind("source", !example.source.empty(), translator, "pairs of sentences");
  check_kind("target", !example.target.empty(), translator, "pairs of sentences");
}

}  // namespace orrery::program
