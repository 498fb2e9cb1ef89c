// A text whose targets are the next tokens, for any language model.
#include <cmath>

#include "engine/types/check.h"
#include "models/data/text.h"
#include "models/inspection/base/subject.h"

namespace orrery::models {
namespace {

// Makes an example in which each token's target is the next token.
std::unique_ptr<Subject> subject_of_next_tokens(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                                std::vector<int32_t> tokens, std::optional<int32_t> end_of_document);

class TextSubject final : public Subject {
 public:
  TextSubject(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer, std::vector<int32_t> tokens,
              std::vector<int32_t> answers, std::optional<int32_t> end_of_document)
      : Subject(model),
        language_(model),
        tokenizer_(std::move(tokenizer)),
        tokens_(std::move(tokens)),
        end_of_document_(end_of_document) {
    check(!tokens_.empty(), "inspect: the text has no tokens; give one with --text=\"...\"");
    const auto count = static_cast<int64_t>(tokens_.size());
    check(count <= model.context(), "inspect: the text has ", count, " tokens, but the context is ", model.context(),
          "; give a shorter text");
    for (const int32_t token : tokens_) words_.push_back(answer(token));
    answers_ = std::move(answers);
    if (!end_of_document) return;
    Batch documents{row_of(tokens_), row_of(answers_)};
    document_ids_ = separate_documents(documents, *end_of_document).to(nn::device_of(model));
    answers_.assign(documents.targets.data<int32_t>(), documents.targets.data<int32_t>() + count);
  }

  std::string answer(int32_t token) const override {
    if (!tokenizer_->has_token(token)) return "[" + std::to_string(token) + "]";  // not in the tokenizer's vocabulary
    return shown_word(tokenizer_->decode(std::vector<int32_t>{token}));
  }
  const Words& places(const std::string&) const override { return words_; }
  double distance(const std::string&, size_t place, size_t key) const override {
    return static_cast<double>(place) - static_cast<double>(key);
  }
  std::string unit_of_distance() const override { return "tokens"; }
  const std::vector<int32_t>* tokens() const override { return &tokens_; }
  std::unique_ptr<Subject> of_tokens(std::vector<int32_t> tokens, bool one_document) const override {
    return subject_of_next_tokens(language_, tokenizer_, std::move(tokens),
                                  one_document ? std::nullopt : end_of_document_);
  }

 private:
  static Tensor row_of(const std::vector<int32_t>& numbers) {
    return Tensor::from(Shape{1, static_cast<int64_t>(numbers.size())}, numbers);
  }
  Tensor forward(nn::Pass& pass) const override {
    pass.document_ids = document_ids_;
    return language_(row_of(tokens_), pass);
  }
  LanguageModel& language_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> tokens_;
  std::optional<int32_t> end_of_document_;
  Tensor document_ids_;  // undefined: one document
  Words words_;
};

std::unique_ptr<Subject> subject_of_next_tokens(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                                std::vector<int32_t> tokens, std::optional<int32_t> end_of_document) {
  std::vector<int32_t> answers(tokens.empty() ? tokens.begin() : tokens.begin() + 1, tokens.end());
  answers.push_back(-1);
  return token_subject(model, std::move(tokenizer), std::move(tokens), std::move(answers), end_of_document);
}

}  // namespace

std::unique_ptr<Subject> token_subject(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                       std::vector<int32_t> tokens, std::vector<int32_t> answers,
                                       std::optional<int32_t> end_of_document) {
  return std::make_unique<TextSubject>(model, std::move(tokenizer), std::move(tokens), std::move(answers),
                                       end_of_document);
}

std::unique_ptr<Subject> text_subject(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                      const std::string& text, std::optional<int32_t> end_of_document) {
  std::vector<int32_t> tokens = encode_text(*tokenizer, text);
  return subject_of_next_tokens(model, std::move(tokenizer), std::move(tokens), end_of_document);
}

}  // namespace orrery::models
