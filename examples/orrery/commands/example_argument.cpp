#include "examples/orrery/commands/example_argument.h"

#include "engine/autograd/autograd.h"
#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/image_reader.h"
#include "examples/orrery/commands/report_samples.h"
#include "examples/orrery/commands/text_argument.h"
#include "models/architectures/translation_search.h"
#include "models/data/sentence_pairs.h"
#include "models/model.h"
#include "models/tasks/base/task.h"

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

}  // namespace

std::unique_ptr<models::InspectedExample> make_example(const std::string& command, const LoadedRun& trained,
                                                       const models::ExampleSettings& example) {
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
    return models::text_example(*lm, tokenizer, text_argument(example.text), end_of_document(trained, *tokenizer));
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

models::ExampleSettings held_out_pair(const LoadedRun& trained, const models::TranslationModel& model,
                                      const models::Tokenizer& tokenizer) {
  constexpr int64_t enough = 100;
  const auto max_tokens = static_cast<size_t>(std::min(max_own_tokens, model.context()));
  const auto fits = [&](const std::string& sentence) {
    const size_t tokens = tokenizer.encode(sentence).size() + 1;  // and its end token
    return tokens > 1 && tokens <= max_tokens;
  };
  models::ExampleSettings example;
  for (const auto& [source, target] : held_out_pairs(trained.settings, enough))
    if (example.source.empty() && fits(source) && fits(target)) example.source = source, example.target = target;
  return example;
}

std::unique_ptr<models::InspectedExample> default_example(const std::string& command, const LoadedRun& trained) {
  AnySettings task_settings = trained.settings.task_settings, model_settings = trained.settings.model_settings;
  const std::vector<Setting> members = task_settings.members();
  if (find_setting(members, "validation_data") &&
      models::setting_of<std::string>(task_settings, "validation_data") != "")
    models::setting_of<std::string>(task_settings, "data").clear();  // training data are not needed
  bool generated = true;                                             // generated, without input files
  for (const char* key : models::paths_of_data) {
    if (!find_setting(members, key)) continue;
    const std::string& path = models::setting_of<std::string>(task_settings, key);
    if (path.empty()) continue;
    check(file_exists(path), command, ": cannot read ", path, ", the run's --", key,
          ", for a held-out example; give an example with --text, --image or --source");
    generated = false;
  }
  if (generated && find_setting(members, "data")) return nullptr;
  nn::Module& model = *trained.model;
  const std::shared_ptr<const models::Tokenizer> tokenizer =
      dynamic_cast<models::ImageModel*>(&model) ? nullptr : models::restore_tokenizer(trained.tokenizer);
  if (const auto* const translator = dynamic_cast<models::TranslationModel*>(&model)) {
    const models::ExampleSettings pair = held_out_pair(trained, *translator, *tokenizer);
    return pair.given() ? make_example(command, trained, pair) : nullptr;
  }
  const models::TaskOptions options{.batch_size = trained.settings.batch_size,
                                    .micro_batches = trained.settings.gradient_accumulation_steps,
                                    .seed = static_cast<uint64_t>(trained.settings.seed),
                                    .tokenizer = trained.tokenizer,
                                    .purpose = models::Purpose::evaluate};
  const auto task = models::tasks().at(trained.settings.task).make(task_settings, model_settings, options);
  const std::vector<Tensor> example = task->validation_example(max_own_tokens);
  if (example.empty()) return nullptr;
  const int32_t* const targets = example[1].data<int32_t>();
  if (auto* const images = dynamic_cast<models::ImageModel*>(&model))
    return models::image_example(*images, example[0], models::restore_classes(trained.tokenizer), targets[0]);
  const int32_t* const tokens = example[0].data<int32_t>();
  return models::token_example(models::model_as<models::LanguageModel>(model, command, "a language model"), tokenizer,
                               {tokens, tokens + example[0].numel()}, {targets, targets + example[1].numel()},
                               end_of_document(trained, *tokenizer));
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
