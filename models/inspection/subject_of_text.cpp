// A text and what follows each of its tokens: of a model of language, whichever.
#include <cmath>

#include "engine/base/check.h"
#include "models/inspection/base/subject.h"

namespace orrery::models {
namespace {

class TextSubject final : public Subject {
 public:
  TextSubject(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer, std::vector<int32_t> tokens)
      : Subject(model), language_(model), tokenizer_(std::move(tokenizer)), tokens_(std::move(tokens)) {
    check(!tokens_.empty(), "inspect: the text has no tokens; give one with --text=\"...\"");
    const auto count = static_cast<int64_t>(tokens_.size());
    check(count <= model.context(), "inspect: the text has ", count, " tokens, and this model reads ", model.context(),
          " at once; give a shorter one");
    for (const int32_t token : tokens_) words_.push_back(answer(token));
    answers_.assign(tokens_.begin() + 1, tokens_.end());
    answers_.push_back(-1);
  }

  std::string answer(int32_t token) const override {
    if (!tokenizer_->has_token(token)) return "[" + std::to_string(token) + "]";  // beyond the tokenizer's
    return shown_word(tokenizer_->decode(std::vector<int32_t>{token}));
  }
  const Words& places(const std::string&) const override { return words_; }
  double distance(const std::string&, size_t place, size_t key) const override {
    return static_cast<double>(place) - static_cast<double>(key);
  }
  std::string unit_of_distance() const override { return "tokens"; }
  const std::vector<int32_t>* tokens() const override { return &tokens_; }
  std::unique_ptr<Subject> of_tokens(std::vector<int32_t> tokens) const override {
    return std::make_unique<TextSubject>(language_, tokenizer_, std::move(tokens));
  }

 private:
  Tensor forward(nn::Pass& pass) const override {
    return language_(Tensor::from(Shape{1, static_cast<int64_t>(tokens_.size())}, tokens_), pass);
  }
  LanguageModel& language_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> tokens_;
  Words words_;
};

}  // namespace

std::unique_ptr<Subject> text_subject(LanguageModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                      const std::string& text) {
  std::vector<int32_t> tokens = encode_text(*tokenizer, text);
  return std::make_unique<TextSubject>(model, std::move(tokenizer), std::move(tokens));
}

}  // namespace orrery::models
