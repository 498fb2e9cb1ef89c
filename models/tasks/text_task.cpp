#include "models/tasks/text_task.h"

#include <algorithm>
#include <cmath>

#include "engine/base/files.h"
#include "models/data/prepared.h"
#include "models/model.h"

namespace orrery::models {
namespace {

constexpr int64_t tokens_at_once = 1 << 16;

std::unique_ptr<Tokenizer> tokenizer_of(const TextSettings& s, const TaskOptions& options) {
  check(!s.data.empty(),
        "train: no text to learn; give one with --data=FILE, for instance --data=examples/data/tinyshakespeare.txt");
  if (!options.tokenizer.empty()) return restore_tokenizer(options.tokenizer);
  if (auto own = tokenizer_of_prepared(s.data)) return own;
  check(!is_prepared(s.data) || file_exists(s.tokenizer), "train: ", s.data,
        " holds tokens, but not the tokenizer that made them; give its folder with --tokenizer=FOLDER");
  return make_tokenizer(s.tokenizer, s.data);
}

}  // namespace

TextTask::TextTask(const TextSettings& s, AnySettings& model, const TaskOptions& options)
    : data_(s.data),
      tokenizer_of_text_(is_made_of_text(s.tokenizer) && !tokenizer_of_prepared(s.data)),
      tokenizer_(tokenizer_of(s, options)),
      text_(s.data, *tokenizer_, s.validation_data.empty() ? s.validation_fraction : 0),
      batch_(options.batch),
      context_(setting_of<int64_t>(model, "context")) {
  int64_t& vocabulary = setting_of<int64_t>(model, "vocabulary");
  if (vocabulary == 0) vocabulary = tokenizer_->size();
  check(vocabulary >= tokenizer_->size(), "train: vocabulary ", vocabulary, " is too small for the tokenizer's ",
        tokenizer_->size(), " tokens; leave it out or raise it");
  if (!s.validation_data.empty()) own_.emplace(s.validation_data, *tokenizer_, 0);
  text_.check_context(context_);
  const TokenSequence& all = own_ ? own_->train() : text_.validation();
  check(s.validation_tokens <= all.size(), "train: validation_tokens ", s.validation_tokens, ", but only ", all.size(),
        " tokens are held out; leave it out to take all");
  validation_ = s.validation_tokens > 0 ? all.part(0, s.validation_tokens) : all;
  const int64_t learned = training().size();
  learned_sample_ = training().part(learned - std::min(learned, s.training_loss_tokens), learned);
}

std::map<std::string, Fingerprint> TextTask::read_beside() const {
  std::map<std::string, Fingerprint> all;
  if (own_) all["validation_data"] = own_->fingerprint();
  if (!tokenizer_of_text_) all["tokenizer"] = fingerprint_of(*tokenizer_);
  return all;
}

// Unicode's characters, whatever the tokens are: every byte but those that go on with one.
int64_t TextTask::characters() const {
  int64_t count = 0;
  for (int64_t at = 1; at < held_out(); at += tokens_at_once) {
    std::vector<int32_t> some(static_cast<size_t>(std::min(tokens_at_once, held_out() - at)));
    validation().read(at, some);
    const std::string text = tokenizer_->decode(some);
    count +=
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }
  return count;
}
double TextTask::bits_per_character(double loss) const {
  if (characters_ == 0) characters_ = characters();
  return loss * static_cast<double>(held_out() - 1) / std::log(2.0) / static_cast<double>(characters_);
}

int64_t TextTask::bytes() const {
  const int64_t train = training().bytes_in_memory(), apart = validation().bytes_in_memory();
  return own_ ? train + apart : std::max(train, apart);  // one sequence, divided, or files
}

std::vector<Tensor> TextTask::sample(int64_t batch, int64_t length) const {
  const Tensor tokens = Tensor::zeros(Shape{batch, length}, Dtype::i32);
  return {tokens, tokens};
}

}  // namespace orrery::models
