#include "models/tasks/text_task.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "models/architectures/masks.h"
#include "models/data/characters.h"
#include "models/data/text_format.h"
#include "models/model.h"

namespace orrery::models {
namespace {

void check_named(const TextSettings& s, Purpose purpose) {
  if (!s.data.empty()) return;
  check_usage(purpose == Purpose::evaluate,
              "train: there is no training text; use --data=FILE, such as --data=examples/data/tinyshakespeare.txt");
  check_usage(!s.validation_data.empty(), "evaluate: there is no text to evaluate on; use --validation_data=FILE");
}

// Replaces the default in `s` by the name of prepared data's tokenizer.
std::unique_ptr<Tokenizer> tokenizer_of(TextSettings& s, const TaskOptions& options) {
  check_named(s, options.purpose);
  const bool by_default = s.tokenizer == TextSettings().tokenizer;
  if (!options.tokenizer.empty()) {
    std::unique_ptr<Tokenizer> restored = restore_tokenizer(options.tokenizer);
    if (by_default && tokenizer_of_tokens(s.data)) s.tokenizer = restored->name();
    return restored;
  }
  if (!has_tokens(s.data)) {
    const TextSource data(s.data, s.text_field);
    if (is_made_of_text(s.tokenizer)) check_text_fits(data, s.tokenizer);  // checked before the text is read
    return make_tokenizer(s.tokenizer, data);
  }
  std::unique_ptr<Tokenizer> own = tokenizer_of_tokens(s.data);
  if (own && by_default) s.tokenizer = own->name();
  if (own && s.tokenizer == own->name()) return own;
  const auto refuse = [&]() -> std::string { refuse_tokenizer(s.data, own.get(), s.tokenizer); };
  std::unique_ptr<Tokenizer> named = make_tokenizer(s.tokenizer, refuse);  // if it needs a text, refuse: there is none
  if (own && named->save() != own->save()) refuse();
  return named;
}

}  // namespace

void refuse_tokenizer(const std::string& data, const Tokenizer* own, const std::string& named) {
  fail("train: ", data,
       own ? text(" was prepared with the tokenizer ", own->name(), ", not with --tokenizer=", named,
                  "; leave that out, or prepare the text again")
           : text(" contains tokens, but not their tokenizer; give its folder with --tokenizer=FOLDER, or use "
                  "--tokenizer=byte if they are bytes"));
}

TextTask::TextTask(TextSettings& s, AnySettings& model, const TaskOptions& options)
    : data_(s.data.empty() ? s.validation_data : s.data),
      tokenizer_(tokenizer_of(s, options)),
      own_(!s.validation_data.empty()),
      batch_(options.batch_size),
      context_(setting_of<int64_t>(model, "context")) {
  int64_t& vocabulary = setting_of<int64_t>(model, "vocabulary");
  if (vocabulary == 0) vocabulary = tokenizer_->size();
  check(vocabulary >= tokenizer_->size(), "train: vocabulary (", vocabulary, ") must be at least the tokenizer's ",
        tokenizer_->size(), " tokens; leave it out or raise it");
  vocabulary_ = vocabulary, without_loss_ = positions_without_loss(model);
  TokenSequence held_out;
  std::vector<TrainingData> trained_on = options.trained_on;
  TrainingOverlap overlap;
  const auto note_share = [&](const Text& text, int64_t begin) {
    const int64_t all = held_out.size(), judged = s.validation_tokens > 0 ? std::min(all, s.validation_tokens) : all;
    overlap = trained_tokens(text, begin, begin + judged, trained_on);
  };
  const auto note_files = [&](const std::string& key, const Text& text) {
    notes_.insert(notes_.end(), text.notes().begin(), text.notes().end());
    if (text.division().bytes > 0) extra_inputs_[key + division_mark] = text.division();
  };
  if (!s.data.empty()) {
    const Text text({s.data, s.text_field}, *tokenizer_, own_ ? 0 : s.validation_fraction);
    if (options.purpose != Purpose::evaluate) text.check_context(context_);
    fingerprint_ = text.fingerprint(), training_ = text.train(), held_out = text.validation();
    trained_parts_ = models::trained_parts(text, training_.size());
    if (options.purpose != Purpose::evaluate)
      trained_on.insert(trained_on.begin(),
                        TrainingData{fingerprint_, own_ ? 0 : s.validation_fraction, trained_parts_});
    if (!own_) note_share(text, training_.size());
    note_files("data", text);
  }
  if (own_) {
    const Text text({s.validation_data, s.text_field}, *tokenizer_, 0);
    const bool split = text.validation().size() > 0;  // a prepared folder has its own
    held_out = split ? text.validation() : text.train();
    note_share(text, split ? text.train().size() : 0);
    (s.data.empty() ? fingerprint_ : extra_inputs_["validation_data"]) = text.fingerprint();
    note_files("validation_data", text);
  }
  const bool made_of_text = s.data.empty() || (is_made_of_text(s.tokenizer) && !tokenizer_of_tokens(s.data));
  if (!made_of_text) extra_inputs_["tokenizer"] = fingerprint_of(*tokenizer_);
  check(s.validation_tokens <= held_out.size(), command_of(options.purpose), ": validation_tokens (",
        s.validation_tokens, ") must be at most ", held_out.size(),
        ", the held-out tokens; lower it, or use all with --validation_tokens=0");
  validation_ = s.validation_tokens > 0 ? held_out.slice(0, s.validation_tokens) : held_out;
  for (std::string& warning : overlap_warnings(overlap, validation_.size(), TextTask::unit(), own_))
    notes_.push_back(std::move(warning));
  const int64_t train_size = training().size();
  training_sample_ = training().slice(train_size - std::min(train_size, s.training_loss_tokens), train_size);
}

void TextTask::check_end_of_documents(const char* command, const std::string& data) const {
  const auto own = tokenizer_of_tokens(data);
  if (!own || own->end_of_text() == end_of_text()) return;
  const auto described = [](const std::optional<int32_t>& end) { return end ? text("token ", *end) : "no token"; };
  fail(command, ": documents=yes, but in ", data, " a document ends with ", described(own->end_of_text()),
       ", and for the model with ", described(end_of_text()), "; give the text itself, or take documents=no");
}

std::vector<std::string> TextTask::warnings() const {
  std::vector<std::string> all = tokenizer_->notes();
  all.insert(all.end(), notes_.begin(), notes_.end());
  return all;
}

void TextTask::add_bits_per_character(Validation& found, const MeanLoss& loss,
                                      std::optional<int32_t> end_of_document) const {
  if (!std::exchange(counted_, true)) characters_ = characters_of_targets(*tokenizer_, validation(), end_of_document);
  if (const int64_t count = characters_.value_or(0); count > 0)
    found.metrics.emplace_back("bits_per_character", loss.mean() * static_cast<double>(loss.targets()) / std::log(2.0) /
                                                         static_cast<double>(count));
}

int64_t TextTask::validation_examples(int64_t max_tokens) const {
  return validation_units() > 0 ? validation_units() / window(max_tokens) : 0;
}

std::vector<Tensor> TextTask::validation_example(int64_t number, int64_t max_tokens) const {
  const int64_t count = window(max_tokens), first = number * count,
                with_targets = std::min(count + 1, validation_units() - first);
  std::vector<int32_t> tokens(static_cast<size_t>(with_targets));
  validation().read(first, tokens);
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.resize(static_cast<size_t>(count), -1), tokens.resize(static_cast<size_t>(count));
  std::fill_n(targets.begin(), std::min(count, without_loss_), -1);
  return {Tensor::from(Shape{1, count}, tokens), Tensor::from(Shape{count}, targets)};
}

int64_t TextTask::bytes() const {
  const int64_t train = training().bytes_in_memory(), apart = validation().bytes_in_memory();
  return own_ ? train + apart : std::max(train, apart);  // one sequence that is split, or files
}

std::vector<Tensor> TextTask::dummy_batch(int64_t batch, int64_t length) const {
  const Tensor tokens = Tensor::zeros(Shape{batch, length}, Dtype::i32);
  return {tokens, tokens};
}

}  // namespace orrery::models
