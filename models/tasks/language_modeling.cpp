// Language modeling: the next token of a text, at every place.
//   loss = -1 / (B T) sum ln p(token_(t + 1) | tokens up to t)
#include <algorithm>

#include "engine/base/files.h"
#include "models/data/prepared.h"
#include "models/data/text.h"
#include "models/data/tokenizer.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "models/tasks/evaluation.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
namespace {

constexpr int64_t windows_at_once = 16;  // of a validation

class LanguageModeling final : public Task {
 public:
  static inline const TaskInfo info{.name = "language_modeling", .description = "the next token of a text"};
  struct Settings {
    std::string data, tokenizer = "character";
    double validation_fraction = 0.1, label_smoothing = 0;

    template <class V>
    void visit(V& v) {
      v("data", data,
        "text to learn: a file or a folder (UTF-8), or what `orrery prepare`, nanoGPT or llm.c made of it");
      v("tokenizer", tokenizer,
        "character, byte, or the folder of one made elsewhere, such as GPT-2's; prepared data have their own");
      v("validation_fraction|held_out", validation_fraction, "of the text, at its end, that is kept for validation",
        between(0.001, 0.9));
      v("label_smoothing", label_smoothing, "fraction of each target that all tokens divide; not in validation",
        fraction());
    }
  };

  LanguageModeling(const Settings& s, AnySettings& model, const TaskOptions& options)
      : settings_(s),
        tokenizer_(make(s, options)),
        text_(s.data, *tokenizer_, s.validation_fraction),
        batch_(options.batch),
        context_(setting_of<int64_t>(model, "context")) {
    int64_t& vocabulary = setting_of<int64_t>(model, "vocabulary");
    if (vocabulary == 0) vocabulary = tokenizer_->size();
    check(vocabulary >= tokenizer_->size(), "train: vocabulary ", vocabulary, " is too small for the tokenizer's ",
          tokenizer_->size(), " tokens; leave it out or raise it");
    text_.check_context(context_);
    batches_.emplace(text_.train(), options.batch, context_, options.seed);
  }

  std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const override {
    const Batch b = batches_->at(step, micro_batch);
    return {b.inputs, b.targets};
  }
  Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::Pass& pass) const override {
    return nn::cross_entropy(model(batch[0], pass), batch[1], pass.training ? settings_.label_smoothing : 0);
  }
  std::optional<double> validation_loss(nn::Module& model, const std::function<bool()>& stop) const override {
    return evaluate(model, text_.validation(), context_, windows_at_once, stop);
  }

  std::string kind() const override { return "text"; }
  std::string unit() const override { return "tokens"; }
  int64_t units_of_batch() const override { return batch_ * context_; }
  int64_t epoch() const override { return text_.train().size(); }
  int64_t held_out() const override { return text_.validation().size(); }
  std::string data() const override { return settings_.data; }
  std::string tokenizer() const override { return tokenizer_->save(); }
  Fingerprint fingerprint() const override { return text_.fingerprint(); }

  int64_t bytes() const override {
    const int64_t train = text_.train().bytes_in_memory(), apart = text_.validation().bytes_in_memory();
    return std::max(train, apart);  // one sequence, divided, or files
  }
  int64_t length() const override { return context_; }
  int64_t validation_batch() const override {
    return std::min(windows_at_once, (text_.validation().size() + context_ - 1) / context_);
  }
  std::vector<Tensor> sample(int64_t batch, int64_t length) const override {
    const Tensor tokens = Tensor::zeros(Shape{batch, length}, Dtype::i32);
    return {tokens, tokens};
  }

 private:
  static std::unique_ptr<Tokenizer> make(const Settings& s, const TaskOptions& options) {
    check(!s.data.empty(),
          "train: no text to learn; give one with --data=FILE, for instance --data=examples/data/tinyshakespeare.txt");
    if (!options.tokenizer.empty()) return restore_tokenizer(options.tokenizer);
    if (auto own = tokenizer_of_prepared(s.data)) return own;
    check(!is_prepared(s.data) || file_exists(s.tokenizer), "train: ", s.data,
          " holds tokens, but not the tokenizer that made them; give its folder with --tokenizer=FOLDER");
    return make_tokenizer(s.tokenizer, s.data);
  }

  Settings settings_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Text text_;
  int64_t batch_, context_;
  std::optional<TextBatches> batches_;
};
REGISTER_TASK(LanguageModeling);

}  // namespace
}  // namespace orrery::models
