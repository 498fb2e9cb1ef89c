// A sentence and its translation: the encoder's input, and the decoder's input and targets.
#include <cmath>

#include "engine/types/check.h"
#include "models/inspection/base/inspected_example.h"

namespace orrery::models {
namespace {

class PairExample final : public InspectedExample {
 public:
  PairExample(TranslationModel& model, std::shared_ptr<const Tokenizer> tokenizer, Pair tokens)
      : InspectedExample(model),
        translation_(model),
        tokenizer_(std::move(tokenizer)),
        marks_(sentence_marks(*tokenizer_)),
        pair_(std::move(tokens)) {
    for (const auto& [what, tokens] : {std::pair("source", &pair_.source), std::pair("target", &pair_.target)}) {
      const auto count = static_cast<int64_t>(tokens->size());
      check(count > 1, "inspect: the ", what, " has no tokens; give one with --", what, "=\"...\"");
      check(count <= model.context(), "inspect: the ", what, " has ", count, " tokens, but the context is ",
            model.context(), "; give a shorter ", what);
    }
    for (const int32_t token : pair_.source) source_.push_back(target_name(token));
    target_ = {"[begin]"};  // decoder input: this, then the target without its end
    for (size_t i = 0; i + 1 < pair_.target.size(); ++i) target_.push_back(target_name(pair_.target[i]));
    targets_ = pair_.target;
  }

  std::string target_name(int32_t token) const override {
    if (token == marks_.begin || token == marks_.end) return token == marks_.begin ? "[begin]" : "[end]";
    if (!tokenizer_->has_token(token)) return "[" + std::to_string(token) + "]";
    return display_token(tokenizer_->decode(std::vector<int32_t>{token}));
  }
  const Labels& position_labels(const std::string& path) const override { return is_encoder(path) ? source_ : target_; }
  const Labels& key_labels(const std::string& path) const override {
    return is_cross_attention(path) ? source_ : position_labels(path);
  }
  double distance(const std::string& path, size_t position, size_t key) const override {
    return is_cross_attention(path) ? NAN : static_cast<double>(position) - static_cast<double>(key);
  }
  std::string distance_unit() const override { return "tokens"; }

 private:
  static bool is_encoder(const std::string& path) { return path.starts_with("encoder"); }
  static bool is_cross_attention(const std::string& path) { return path.find("cross_attention") != std::string::npos; }
  Tensor forward(nn::ForwardPass& pass) const override {
    const std::vector<const Pair*> one = {&pair_};
    const PairBatch batch = batch_of(one, marks_);
    translation_.encode(batch.sources, batch.source_lengths, pass);
    pass.lengths = batch.target_lengths;
    return translation_(batch.inputs, pass);
  }
  TranslationModel& translation_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  SentenceMarks marks_;
  Pair pair_;
  Labels source_, target_;
};

}  // namespace

std::unique_ptr<InspectedExample> pair_example(TranslationModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                               Pair tokens) {
  return std::make_unique<PairExample>(model, std::move(tokenizer), std::move(tokens));
}

std::unique_ptr<InspectedExample> pair_example(TranslationModel& model, std::shared_ptr<const Tokenizer> tokenizer,
                                               const std::string& source, const std::string& target) {
  Pair tokens = encode(std::vector<TextPair>{{source, target}}, *tokenizer, sentence_marks(*tokenizer))[0];
  return pair_example(model, std::move(tokenizer), std::move(tokens));
}

}  // namespace orrery::models
