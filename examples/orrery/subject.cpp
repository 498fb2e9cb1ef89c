#include "examples/orrery/subject.h"

#include "engine/autograd/autograd.h"
#include "examples/orrery/given_text.h"
#include "examples/orrery/picture_reader.h"
#include "models/data/pairs.h"
#include "models/translation_search.h"

namespace orrery::program {
namespace {

std::string own_translation(models::TranslationModel& model, const models::Tokenizer& tokenizer,
                            const std::string& source) {
  std::vector<std::vector<int32_t>> sources = {tokenizer.encode(source)};
  sources[0].push_back(models::sentence_marks(tokenizer).end);
  return models::translate_to_text(model, sources, tokenizer, {})[0];
}

}  // namespace

std::unique_ptr<models::Subject> make_subject(const std::string& command, const Trained& trained,
                                              const models::ExampleSettings& example) {
  const auto need = [&](const std::string& value, const char* key, const char* kind) {
    check(!value.empty(), command, ": this is a model of ", kind, "; give it one with --", key, "=",
          std::string(key) == "image" ? "FILE.png" : "\"...\", which must not be empty");
  };
  nn::Module& model = *trained.model;
  if (auto* const images = dynamic_cast<models::ImageModel*>(&model)) {
    need(example.image, "image", "images");
    return models::image_subject(*images, PictureReader(trained, *images).read(example.image),
                                 models::restore_classes(trained.tokenizer), static_cast<int32_t>(example.label));
  }
  const std::shared_ptr<const models::Tokenizer> tokenizer = models::restore_tokenizer(trained.tokenizer);
  if (auto* const writes = dynamic_cast<models::LanguageModel*>(&model)) {
    need(example.text, "text", "texts");
    return models::text_subject(*writes, tokenizer, given_text(example.text));
  }
  if (auto* const translates = dynamic_cast<models::TranslationModel*>(&model)) {
    need(example.source, "source", "pairs of sentences");
    const std::string target =
        example.target.empty() ? own_translation(*translates, *tokenizer, example.source) : example.target;
    return models::pair_subject(*translates, tokenizer, example.source, target);
  }
  fail(command, ": this model reads neither texts nor images nor sentences to translate");
}

void check_all_is_read(const std::string& command, const Trained& trained, const models::ExampleSettings& example) {
  const nn::Module* const model = trained.model.get();
  const bool images = dynamic_cast<const models::ImageModel*>(model) != nullptr,
             writes = dynamic_cast<const models::LanguageModel*>(model) != nullptr,
             translates = dynamic_cast<const models::TranslationModel*>(model) != nullptr;
  const auto check_read = [&](const char* key, bool given, bool read, const char* kind) {
    check(!given || read, command, ": --", key, " is for a model of ", kind,
          ", and this one reads something else; leave it out");
  };
  check_read("text", !example.text.empty(), writes, "texts");
  check_read("image", !example.image.empty(), images, "images");
  check_read("label", example.label >= 0, images, "images");
  check_read("source", !example.source.empty(), translates, "pairs of sentences");
  check_read("target", !example.target.empty(), translates, "pairs of sentences");
}

}  // namespace orrery::program
