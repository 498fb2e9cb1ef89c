#include "models/tasks/text_task.h"

#include <algorithm>

#include "engine/base/files.h"
#include "models/data/prepared.h"
#include "models/model.h"

namespace orrery::models {
namespace {

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
