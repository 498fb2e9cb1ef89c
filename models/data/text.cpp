#include "models/data/text.h"

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/system/machine_memory.h"
#include "engine/types/format.h"
#include "models/data/prepared.h"
#include "models/data/text_files.h"
#include "models/settings/at_least_one.h"

namespace orrery::models {
namespace {

// Returns rows of `time` tokens that begin at `starts`; targets are one token later.
Batch crops(const TokenSequence& tokens, std::span<const int64_t> starts, int64_t time) {
  const Shape shape{static_cast<int64_t>(starts.size()), time};
  Batch batch{Tensor::empty(shape, Dtype::i32, Device::cpu), Tensor::empty(shape, Dtype::i32, Device::cpu)};
  int32_t* inputs = batch.inputs.mutable_data<int32_t>();
  int32_t* targets = batch.targets.mutable_data<int32_t>();
  std::vector<int32_t> row(static_cast<size_t>(time) + 1);
  for (const int64_t start : starts) {
    tokens.read(start, row);
    inputs = std::copy_n(row.begin(), time, inputs);
    targets = std::copy_n(row.begin() + 1, time, targets);
  }
  return batch;
}

constexpr const char* shorter_text = "use a shorter text, or convert it to token files with `orrery prepare`";

// Tokens of a text, with their characters if all are known. Checks memory before it is allocated.
class TokensInMemory {
 public:
  explicit TokensInMemory(const TextFiles& files) : files_(files) {
    tokens_.reserve(files.bytes());  // uncompressed text has at most one token per byte
  }
  void add(std::span<const int32_t> some, std::span<const int32_t> characters) {
    counted_ &= characters.size() == some.size();
    if (!counted_) characters_ = {};
    const size_t size = tokens_.size() + some.size();
    if (size > checked_) check_room(size);
    tokens_.insert(tokens_.end(), some.begin(), some.end());
    if (counted_) characters_.insert(characters_.end(), characters.begin(), characters.end());
  }
  void read(uint64_t bytes) { bytes_read_ += bytes; }
  TokenSequence take() {
    const TokenSequence tokens(std::move(tokens_));
    return counted_ ? tokens.with_characters(std::move(characters_)) : tokens;
  }

 private:
  // Checks memory for the next tokens, and for all remaining ones if they are like those so far.
  void check_room(size_t size) {
    const auto held = static_cast<double>(tokens_.size()), whole = static_cast<double>(files_.bytes());
    const bool grows = size > tokens_.capacity();
    const size_t next = grows ? size + std::max(at_once, size / 4) : std::min(size + at_once, tokens_.capacity());
    const double still = bytes_read_ > 0 ? held * (whole / static_cast<double>(bytes_read_) - 1) : 0;
    const double bytes_of_one = sizeof(int32_t) * (counted_ ? 2 : 1);
    const std::string so_far = held > 0 ? text(", after ", in_megabytes(bytes_of_one * held), " of tokens,") : "";
    check_memory("text: " + files_.path() + so_far,
                 bytes_of_one * std::max(still, static_cast<double>(next) - (grows ? 0 : held)), shorter_text);
    if (grows) tokens_.reserve(next);
    if (counted_) characters_.reserve(next);
    checked_ = next;
  }

  static constexpr size_t at_once = size_t{1} << 22;
  const TextFiles& files_;
  std::vector<int32_t> tokens_, characters_;  // characters_: by token; empty unless counted_
  bool counted_ = true;
  size_t checked_ = 0;
  uint64_t bytes_read_ = 0;
};

// Adds the files to `parts` if there are several.
TokenSequence encode_all(const TextFiles& files, const Tokenizer& tokenizer,
                         const TextFiles::Fingerprints& fingerprints, std::vector<TextPart>& parts) {
  TokensInMemory tokens(files);
  const auto ranges = encode_files(
      tokenizer, files,
      [&](std::span<const int32_t> some, std::span<const int32_t> characters) { tokens.add(some, characters); },
      [&](uint64_t bytes) { tokens.read(bytes); });
  for (size_t i = 0; i < fingerprints.files.size(); ++i) {
    const auto& [begin, end] = ranges[i];
    parts.push_back({fingerprints.files[i], begin, end, 0, end - begin});
  }
  return tokens.take();
}

}  // namespace

void check_text_fits(const TextSource& source, const std::string& tokenizer) {
  constexpr double packing = 0.99;  // gzip slightly enlarges data that it cannot compress
  const uint64_t bytes = TextFiles(source).min_text_bytes();
  check_memory("text: " + source.path, packing * sizeof(int32_t) * min_token_count(tokenizer, bytes),
               shorter_text);
}

Text::Text(const TextSource& source, const Tokenizer& tokenizer, double validation_fraction) : path_(source.path) {
  check_validation_fraction(validation_fraction);
  if (const TextFormat* const format = token_format_of(TextPath(source))) {
    check_tokenizer_of_prepared(path_, tokenizer);
    PreparedTokens prepared = format->read_tokens(path_, tokenizer.size());
    fingerprint_ = std::move(prepared.fingerprint);
    train_ = std::move(prepared.train), validation_ = std::move(prepared.validation);
    parts_ = std::move(prepared.parts), notes_ = std::move(prepared.notes);
  } else {
    check_text_fits(source, tokenizer.name());
    const TextFiles files(source);
    notes_ = files.notes();
    const TextFiles::Fingerprints fingerprints = files.fingerprints();
    fingerprint_ = fingerprints.text, division_ = fingerprints.division;
    train_ = encode_all(files, tokenizer, fingerprints, parts_);
  }
  const int64_t all = train_.size() + validation_.size();
  parts_.insert(parts_.begin(), TextPart{fingerprint_, 0, all, 0, all});
  if (validation_.size() > 0) return;
  whole_ = train_;
  std::tie(train_, validation_) = split(*whole_, validation_fraction);
}

int64_t Text::training_tokens(double validation_fraction) const {
  return whole_ ? split(*whole_, validation_fraction).first.size() : train_.size();
}

void Text::check_context(int64_t context) const {
  check_at_least_one("text", {{"context", context}});
  check(train_.size() > context, "text: ", path_, " has too few tokens for training (", train_.size(),
        "); context=", context, " needs at least ", static_cast<uint64_t>(context) + 1,
        "; use a longer text or a shorter context");
  check(validation_.size() != 1, "text: ", path_,
        " has 1 token for validation, but at least 2 are needed; use a longer text or another validation_fraction");
}

TextBatches::TextBatches(TokenSequence tokens, int64_t batch, int64_t context, uint64_t seed)
    : tokens_(std::move(tokens)), batch_(batch), context_(context), rng_(RandomKey{seed, 0}.derive("text")) {
  check_at_least_one("text", {{"batch_size", batch}, {"context", context}});
  check(tokens_.size() > context, "text: too few tokens (", tokens_.size(), "); context=", context, " needs at least ",
        static_cast<uint64_t>(context) + 1, "; use a longer text or a shorter context");
  static_cast<void>(product_of_sizes("text: batch_size x context", {batch, context}));
}

Batch TextBatches::at(int64_t step, int64_t micro_batch) const {
  const RandomKey rng = rng_.derive(step).derive(micro_batch);
  const auto start_count = static_cast<uint64_t>(tokens_.size() - context_);
  std::vector<int64_t> starts(static_cast<size_t>(batch_));
  for (size_t row = 0; row < starts.size(); ++row) starts[row] = static_cast<int64_t>(below(rng, row, start_count));
  return crops(tokens_, starts, context_);
}

Tensor separate_documents(Batch& batch, int32_t end) {
  const Tensor ids = Tensor::empty_like(batch.inputs);
  const int32_t* const token = batch.inputs.data<int32_t>();
  int32_t* const target = batch.targets.mutable_data<int32_t>();
  int32_t* const id = ids.mutable_data<int32_t>();
  for (int64_t row = 0, i = 0; row < ids.size(0); ++row)
    for (int32_t document = 0; i < (row + 1) * ids.size(1); ++i) {
      id[i] = document;
      if (token[i] == end) target[i] = -1, ++document;
    }
  return ids;
}

void leave_out_first_targets(Batch& batch, int64_t count) {
  const int64_t length = batch.inputs.size(1);
  for (int64_t row = 0; row < batch.inputs.size(0); ++row)
    std::fill_n(batch.targets.mutable_data<int32_t>() + row * length, std::min(count, length), -1);
}

void check_documents(const TokenSequence& tokens, int32_t end, const std::string& what) {
  constexpr int64_t tokens_at_once = 1 << 16;
  std::vector<int32_t> some;
  for (int64_t at = 0; at + 1 < tokens.size(); at += tokens_at_once) {
    some.resize(static_cast<size_t>(std::min(tokens_at_once, tokens.size() - 1 - at)));
    tokens.read(at, some);
    if (std::any_of(some.begin(), some.end(), [&](int32_t token) { return token != end; })) return;
  }
  fail("train: with documents=yes, ", what, " has no targets (tokens: ", tokens.size(),
       "), because each of its documents is one token; use a text with longer documents, or "
       "documents=no");
}

void each_window(const TokenSequence& tokens, int64_t context, int64_t batch,
                 const std::function<bool(const Batch&)>& take) {
  check_at_least_one("text", {{"batch_size", batch}, {"context", context}});
  check(tokens.size() >= 2, "text: validation needs at least 2 tokens, but has ", tokens.size(),
        "; use a longer text or another validation_fraction");
  const int64_t targets = tokens.size() - 1;
  std::vector<int64_t> starts;
  int64_t at = 0;
  for (; targets - at >= context; at += context) {
    starts.push_back(at);
    const bool last = targets - at - context < context;
    if (static_cast<int64_t>(starts.size()) < batch && !last) continue;
    if (!take(crops(tokens, starts, context))) return;
    starts.clear();
  }
  if (at < targets) take(crops(tokens, std::array{at}, targets - at));
}

}  // namespace orrery::models
