#include "examples/orrery/commands/subject.h"

#include "engine/autograd/autograd.h"
#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/given_text.h"
#include "examples/orrery/commands/picture_reader.h"
#include "examples/orrery/commands/report_samples.h"
#include "models/architectures/translation_search.h"
#include "models/data/pairs.h"
#include "models/model.h"
#include "models/tasks/base/task.h"

namespace orrery::program {
namespace {

std::string own_translation(models::TranslationModel& model, const models::Tokenizer& tokenizer,
                            const std::string& source) {
  std::vector<std::vector<int32_t>> sources = {tokenizer.encode(source)};
  sources[0].push_back(models::sentence_marks(tokenizer).end);
  return models::translate_to_text(model, sources, tokenizer, {})[0];
}

// Returns the token that ends a document, if the run masks attention between documents.
std::optional<int32_t> end_of_document(const Trained& trained, const models::Tokenizer& tokenizer) {
  AnySettings task = trained.settings.task_settings;
  if (!find_setting(task.members(), "documents") || !models::setting_of<bool>(task, "documents")) return {};
  return tokenizer.end_of_text();
}

}  // namespace

std::unique_ptr<models::Subject> make_subject(const std::string& command, const Trained& trained,
                                              const models::ExampleSettings& example) {
  const auto need = [&](const std::string& value, const char* key, const char* kind) {
    check_usage(!value.empty(), command, ": the input of this model is ", kind, "; give it with --", key, "=",
                std::string(key) == "image" ? "FILE.png" : "\"...\", which must not be empty");
  };
  nn::Module& model = *trained.model;
  if (auto* const images = dynamic_cast<models::ImageModel*>(&model)) {
    need(example.image, "image", "an image");
    PictureReader pictures(trained, *images);
    const Tensor pixels = pictures.read(example.image);
    pictures.warn_of_turned_pictures();
    return models::image_subject(*images, pixels, models::restore_classes(trained.tokenizer),
                                 static_cast<int32_t>(example.label));
  }
  const std::shared_ptr<const models::Tokenizer> tokenizer = models::restore_tokenizer(trained.tokenizer);
  if (auto* const writes = dynamic_cast<models::LanguageModel*>(&model)) {
    need(example.text, "text", "a text");
    return models::text_subject(*writes, tokenizer, given_text(example.text), end_of_document(trained, *tokenizer));
  }
  if (auto* const translates = dynamic_cast<models::TranslationModel*>(&model)) {
    need(example.source, "source", "a sentence pair");
    const std::string target =
        example.target.empty() ? own_translation(*translates, *tokenizer, example.source) : example.target;
    return models::pair_subject(*translates, tokenizer, example.source, target);
  }
  fail(command,
       ": the input of this model is neither a text nor an image nor a sentence pair; choose a run of another model");
}

models::ExampleSettings held_out_pair(const Trained& trained, const models::TranslationModel& model,
                                      const models::Tokenizer& tokenizer) {
  constexpr int64_t enough = 100;
  const auto most = static_cast<size_t>(std::min(most_own_tokens, model.context()));
  const auto fits = [&](const std::string& sentence) {
    const size_t tokens = tokenizer.encode(sentence).size() + 1;  // and its end token
    return tokens > 1 && tokens <= most;
  };
  models::ExampleSettings example;
  for (const auto& [source, target] : held_out_pairs(trained.settings, enough))
    if (example.source.empty() && fits(source) && fits(target)) example.source = source, example.target = target;
  return example;
}

std::unique_ptr<models::Subject> held_out_subject(const std::string& command, const Trained& trained) {
  AnySettings task_settings = trained.settings.task_settings, model_settings = trained.settings.model_settings;
  const std::vector<Setting> members = task_settings.members();
  if (find_setting(members, "validation_data") &&
      models::setting_of<std::string>(task_settings, "validation_data") != "")
    models::setting_of<std::string>(task_settings, "data").clear();  // training data are not needed
  bool made = true;  // generated, without input files
  for (const char* key : models::paths_of_data) {
    if (!find_setting(members, key)) continue;
    const std::string& path = models::setting_of<std::string>(task_settings, key);
    if (path.empty()) continue;
    check(file_exists(path), command, ": cannot read ", path, ", the run's --", key,
          ", for a held-out example; give an example with --text, --image or --source");
    made = false;
  }
  if (made && find_setting(members, "data")) return nullptr;
  nn::Module& model = *trained.model;
  const std::shared_ptr<const models::Tokenizer> tokenizer =
      dynamic_cast<models::ImageModel*>(&model) ? nullptr : models::restore_tokenizer(trained.tokenizer);
  if (const auto* const translates = dynamic_cast<models::TranslationModel*>(&model)) {
    const models::ExampleSettings pair = held_out_pair(trained, *translates, *tokenizer);
    return pair.given() ? make_subject(command, trained, pair) : nullptr;
  }
  const models::TaskOptions options{.batch = trained.settings.batch,
                                    .micro_batches = trained.settings.gradient_accumulation_steps,
                                    .seed = static_cast<uint64_t>(trained.settings.seed),
                                    .tokenizer = trained.tokenizer,
                                    .purpose = models::Purpose::judge};
  const auto task = models::tasks().at(trained.settings.task).make(task_settings, model_settings, options);
  const std::vector<Tensor> example = task->held_out_example(most_own_tokens);
  if (example.empty()) return nullptr;
  const int32_t* const answers = example[1].data<int32_t>();
  if (auto* const images = dynamic_cast<models::ImageModel*>(&model))
    return models::image_subject(*images, example[0], models::restore_classes(trained.tokenizer), answers[0]);
  const int32_t* const tokens = example[0].data<int32_t>();
  return models::token_subject(models::model_as<models::LanguageModel>(model, command, "a language model"), tokenizer,
                               {tokens, tokens + example[0].numel()}, {answers, answers + example[1].numel()},
                               end_of_document(trained, *tokenizer));
}

void check_all_is_read(const std::string& command, const Trained& trained, const models::ExampleSettings& example) {
  const nn::Module* const model = trained.model.get();
  const bool images = dynamic_cast<const models::ImageModel*>(model) != nullptr,
             writes = dynamic_cast<const models::LanguageModel*>(model) != nullptr,
             translates = dynamic_cast<const models::TranslationModel*>(model) != nullptr;
  const auto check_read = [&](const char* key, bool given, bool read, const char* kind) {
    check_usage(!given || read, command, ": --", key, " is for models of ", kind,
                ", and the input of this model is something else; leave it out");
  };
  check_read("text", !example.text.empty(), writes, "texts");
  check_read("image", !example.image.empty(), images, "images");
  check_read("label", example.label >= 0, images, "images");
  check_read("source", !example.source.empty(), translates, "pairs of sentences");
  check_read("target", !example.target.empty(), translates, "pairs of sentences");
}

}  // namespace orrery::program
