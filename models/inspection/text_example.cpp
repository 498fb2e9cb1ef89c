// A text whose targets are the next tokens, for any language model.
#include <algorithm>
#include <cmath>

#include "engine/types/check.h"
#include "models/data/text.h"
#include "models/inspection/base/inspected_example.h"

namespace orrery::models {
namespace {

// Makes an example in which each token's target is the next token.
std::unique_ptr<InspectedExample> next_token_example(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                                     std::vector<int32_t> tokens,
                                                     std::optional<int32_t> end_of_document, int64_t left_out = 0);

class TextExample final : public InspectedExample {
 public:
  TextExample(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer, std::vector<int32_t> tokens,
              std::vector<int32_t> targets, std::optional<int32_t> end_of_document, int64_t left_out = 0)
      : InspectedExample(model),
        language_(model),
        tokenizer_(std::move(tokenizer)),
        tokens_(std::move(tokens)),
        end_of_document_(end_of_document) {
    check(!tokens_.empty(), "inspect: the text has no tokens; give one with --text=\"...\"");
    const auto count = static_cast<int64_t>(tokens_.size());
    check(count <= model.context(), "inspect: the text has ", count, " tokens, but the context is ", model.context(),
          "; give a shorter text");
    for (const int32_t token : tokens_) labels_.push_back(target_name(token));
    targets_ = std::move(targets), left_out_ = left_out;
    if (!end_of_document) return;
    Batch documents{row_of(tokens_), row_of(targets_)};
    document_ids_ = separate_documents(documents, *end_of_document).to(nn::device_of(model));
    targets_.assign(documents.targets.data<int32_t>(), documents.targets.data<int32_t>() + count);
  }

  std::string target_name(int32_t token) const override {
    if (!tokenizer_->has_token(token)) return "[" + std::to_string(token) + "]";  // not in the tokenizer's vocabulary
    return display_token(tokenizer_->decode(std::vector<int32_t>{token}));
  }
  const Labels& position_labels(const std::string&) const override { return labels_; }
  double distance(const std::string&, size_t position, size_t key) const override {
    return static_cast<double>(position) - static_cast<double>(key);
  }
  std::string distance_unit() const override { return "tokens"; }
  const std::vector<int32_t>* tokens() const override { return &tokens_; }
  std::unique_ptr<InspectedExample> from_tokens(std::vector<int32_t> tokens, bool one_document) const override {
    return next_token_example(language_, tokenizer_, std::move(tokens), one_document ? std::nullopt : end_of_document_);
  }

 private:
  static Tensor row_of(const std::vector<int32_t>& numbers) {
    return Tensor::from(Shape{1, static_cast<int64_t>(numbers.size())}, numbers);
  }
  Tensor forward(nn::ForwardPass& pass) const override {
    pass.document_ids = document_ids_;
    return language_(row_of(tokens_), pass);
  }
  LanguageModel& language_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> tokens_;
  std::optional<int32_t> end_of_document_;
  Tensor document_ids_;  // undefined: one document
  Labels labels_;
};

std::unique_ptr<InspectedExample> next_token_example(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                                     std::vector<int32_t> tokens,
                                                     std::optional<int32_t> end_of_document, int64_t left_out) {
  std::vector<int32_t> targets(tokens.empty() ? tokens.begin() : tokens.begin() + 1, tokens.end());
  targets.push_back(-1);
  return std::make_unique<TextExample>(model, std::move(tokenizer), std::move(tokens), std::move(targets),
                                       end_of_document, left_out);
}

}  // namespace

std::unique_ptr<InspectedExample> token_example(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                                std::vector<int32_t> tokens, std::vector<int32_t> targets,
                                                std::optional<int32_t> end_of_document) {
  return std::make_unique<TextExample>(model, std::move(tokenizer), std::move(tokens), std::move(targets),
                                       end_of_document);
}

std::unique_ptr<InspectedExample> text_example(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                               const std::string& text, std::optional<int32_t> end_of_document) {
  std::vector<int32_t> tokens = encode_text(*tokenizer, text);
  const int64_t left_out = std::max(static_cast<int64_t>(tokens.size()) - model.context(), int64_t{0});
  const auto first = tokens.begin() + (tokenizer->begins_texts() ? 1 : 0);
  tokens.erase(first, first + left_out);
  return next_token_example(model, std::move(tokenizer), std::move(tokens), end_of_document, left_out);
}

}  // namespace orrery::models
