// The inspected example: a model and its input, a text, an image or a pair of sentences, with
// labels of the input's positions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/data/sentence_pairs.h"
#include "models/data/tokenizer.h"
#include "models/image_model.h"
#include "models/language_model.h"
#include "models/translation_model.h"

namespace orrery::models {

class InspectedExample {
 public:
  using Labels = std::vector<std::string>;
  virtual ~InspectedExample() = default;

  nn::Module& model() const { return model_; }
  // Runs the example as a batch of one on the model's device, in evaluation mode, without gradient;
  // active hooks apply. Returns the logits (rows, choices), f32 or f64, on the CPU.
  Tensor run() const;
  // Runs it likewise, with a graph. Returns the logits as the model does, on its device.
  Tensor run_with_graph() const;
  static const InspectedExample* running();  // the one that this thread runs; null: none
  // Returns the target of each row of the logits; -1: unknown.
  const std::vector<int32_t>& targets() const { return targets_; }
  virtual std::string target_name(int32_t index) const = 0;  // name of a token or class
  // Returns the number of tokens of a text that are not in the example, because the context is full.
  int64_t left_out() const { return left_out_; }
  // Returns the mean of -ln p(target) over the rows with a target, in nats; NaN if there are none.
  double loss(const Tensor& logits) const;

  // position_labels returns labels of the positions in a module's hook values; key_labels returns
  // labels of the positions that the attention at this path attends to.
  virtual const Labels& position_labels(const std::string& path) const = 0;
  virtual const Labels& key_labels(const std::string& path) const { return position_labels(path); }
  // Returns the distance of a position from a key, in `distance_unit`; NaN if undefined.
  virtual double distance(const std::string& path, size_t position, size_t key) const = 0;
  virtual std::string distance_unit() const = 0;
  virtual Tensor image() const { return {}; }  // (H, W, C); undefined: another input
  // tokens returns a text's tokens; from_tokens makes an example of the same model from others, if
  // `one_document` without document ends. Both return null for other inputs.
  virtual const std::vector<int32_t>* tokens() const { return nullptr; }
  virtual std::unique_ptr<InspectedExample> from_tokens(std::vector<int32_t>, bool /*one_document*/) const {
    return nullptr;
  }

 protected:
  explicit InspectedExample(nn::Module& model) : model_(model) {}
  virtual Tensor forward(nn::ForwardPass& pass) const = 0;  // logits (1, ..., choices)
  std::vector<int32_t> targets_;
  int64_t left_out_ = 0;

 private:
  nn::Module& model_;
};

// Examples, which the model must outlive. Errors begin with "inspect:"; causes are a text or
// sentence without tokens, a sentence or tokens beyond the context, and an image of the wrong size.
// A text beyond the context is cut to its last tokens, after the token that begins it, if any. With
// `end_of_document` a text is documents that end with this token, as --documents=yes trains them: a
// token attends only to its own document, and a document's first token is not a target.
std::unique_ptr<InspectedExample> text_example(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                               const std::string& text, std::optional<int32_t> end_of_document = {});
// Makes an example of tokens and the target after each; -1: unknown.
std::unique_ptr<InspectedExample> token_example(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                                std::vector<int32_t> tokens, std::vector<int32_t> targets,
                                                std::optional<int32_t> end_of_document = {});
// `pixels`: (1, H, W, C); `label`: the target class, -1 if unknown.
std::unique_ptr<InspectedExample> image_example(ImageModel& model, const Tensor& pixels,
                                                std::vector<std::string> classes, int32_t label);
// `target`: the text that the decoder reads and predicts, token by token.
std::unique_ptr<InspectedExample> pair_example(TranslationModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                               const std::string& source, const std::string& target);
std::unique_ptr<InspectedExample> pair_example(TranslationModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                               Pair tokens);

// Returns a token's text for display: a space is an open box, a line end \n, an invalid byte \xe4.
std::string display_token(std::string_view token);

}  // namespace orrery::models
