// What is looked at: a model and one example that it reads, a text, an image or a pair of sentences, with the words of
// its places.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/data/tokenizer.h"
#include "models/image_model.h"
#include "models/language_model.h"
#include "models/translation_model.h"

namespace orrery::models {

class Subject {
 public:
  using Words = std::vector<std::string>;
  virtual ~Subject() = default;

  nn::Module& model() const { return model_; }
  // One pass over the example as a batch of one, in evaluation mode and without gradient, on the model's device; hooks
  // that live meanwhile see it.  The logits (rows, answers), f32 or f64 on the CPU.
  Tensor run() const;
  // What is right for each row of the logits; -1: nobody knows.
  const std::vector<int32_t>& answers() const { return answers_; }
  virtual std::string answer(int32_t index) const = 0;  // a token's or a class's name
  // Mean of -ln p(answer) over the rows that have one, of such logits, in nats; NaN if none has.
  double loss(const Tensor& logits) const;

  // What stands at the places of the values that a module of this path shows, and at those that an attention of this
  // path reads.
  virtual const Words& places(const std::string& path) const = 0;
  virtual const Words& keys(const std::string& path) const { return places(path); }
  // How far apart such a place and a key are, in `unit_of_distance`; NaN if that means nothing.
  virtual double distance(const std::string& path, size_t place, size_t key) const = 0;
  virtual std::string unit_of_distance() const = 0;
  // Of a text, its tokens, and another example of the same model made of given ones, whichever of them end
  // a document or, as `one_document`, do not; of others nothing.
  virtual const std::vector<int32_t>* tokens() const { return nullptr; }
  virtual std::unique_ptr<Subject> of_tokens(std::vector<int32_t>, bool /*one_document*/) const { return nullptr; }

 protected:
  explicit Subject(nn::Module& model) : model_(model) {}
  virtual Tensor forward(nn::Pass& pass) const = 0;  // logits of whatever shape (1, ..., answers)
  std::vector<int32_t> answers_;

 private:
  nn::Module& model_;
};

// Examples.  The model must outlive them.  Errors begin with "inspect:" and say what does not fit: a text or sentence
// without tokens or beyond the context, an image of another size.
// With an `end_of_document` a text is documents that each end with this token, as --documents=yes learns them: a token
// sees its own one alone, and the first of the next one is nobody's answer.
std::unique_ptr<Subject> text_subject(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                      const std::string& text, std::optional<int32_t> end_of_document = {});
// Of tokens with what is right after each; -1: nobody knows.
std::unique_ptr<Subject> token_subject(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                       std::vector<int32_t> tokens, std::vector<int32_t> answers,
                                       std::optional<int32_t> end_of_document = {});
// Pixels (1, H, W, C); `label` is the right class, -1 if it is not known.
std::unique_ptr<Subject> image_subject(ImageModel& model, const Tensor& pixels, std::vector<std::string> classes,
                                       int32_t label);
// The target is what the decoder reads and predicts, token by token.
std::unique_ptr<Subject> pair_subject(TranslationModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                      const std::string& source, const std::string& target);

// A piece of a text as it can be shown beside others: a space is an open box, a line's end \n, bytes that are no
// character \xe4.
std::string shown_word(std::string_view piece);

}  // namespace orrery::models
