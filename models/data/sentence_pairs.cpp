#include "models/data/sentence_pairs.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/system/machine_memory.h"
#include "engine/types/check.h"

namespace orrery::models {
namespace {

// Calls f for all sources, then for all targets.
template <class F>
void each_side(std::span<const TextPair> pairs, const F& f) {
  for (const auto& [source, target] : pairs) f(source);
  for (const auto& [source, target] : pairs) f(target);
}

bool breaks_line(const Tokenizer& tokenizer, int32_t token) {
  return tokenizer.has_token(token) && tokenizer.decode({&token, 1}).find_first_of("\r\n") != std::string::npos;
}

int64_t length(const std::vector<int32_t>& tokens) { return static_cast<int64_t>(tokens.size()); }

}  // namespace

std::string text_of(std::span<const TextPair> pairs) {
  size_t bytes = 0;
  each_side(pairs, [&](const std::string& text) { bytes += text.size() + 1; });
  check_memory("pairs: joining the text", static_cast<double>(bytes), fewer_pairs);
  std::string all;
  all.reserve(bytes);
  each_side(pairs, [&](const std::string& text) { all.append(text).push_back('\n'); });
  return all;
}

Fingerprint fingerprint_of(std::span<const TextPair> pairs) {
  Fingerprint all;
  Sha256 hash;
  each_side(pairs, [&](const std::string& text) {
    for (const std::string_view part : {std::string_view(text), std::string_view("\n")})
      hash.add(std::as_bytes(std::span(part))), all.bytes += part.size();
  });
  all.sha256 = hash.digits();
  return all;
}

SentenceMarks sentence_marks(const Tokenizer& tokenizer) {
  SentenceMarks marks{.begin = 0, .end = 0, .vocabulary = tokenizer.size()};
  const auto token = [&](std::optional<int32_t> own) { return own ? *own : static_cast<int32_t>(marks.vocabulary++); };
  marks.begin = token(tokenizer.begin());
  marks.end = token(tokenizer.end());
  for (int32_t number = 0; number < tokenizer.size(); ++number) {
    const bool ends_line = number != marks.end && breaks_line(tokenizer, number);
    if (!tokenizer.has_token(number) || ends_line) marks.never.push_back(number);
  }
  return marks;
}

std::vector<Pair> encode(std::span<const TextPair> pairs, const Tokenizer& tokenizer, const SentenceMarks& marks) {
  constexpr double held = sizeof(Pair) + 64;  // bytes of a pair, with the smallest heap blocks for its tokens
  constexpr size_t at_once = size_t{1} << 20;
  const auto check_room = [&](double bytes) { check_memory("pairs: encoding", bytes, fewer_pairs); };
  check_room(held * static_cast<double>(pairs.size()));
  std::vector<Pair> all;
  all.reserve(pairs.size());
  size_t bytes = 0;  // of text since memory was last checked
  const auto with_end = [&](const std::string& text) {
    std::vector<int32_t> tokens = tokenizer.encode(text);
    tokens.reserve(tokens.size() + 1);  // exact size: push_back alone could double the capacity
    tokens.push_back(marks.end);
    return tokens;
  };
  for (const auto& [source, target] : pairs) {
    bytes += source.size() + target.size();
    if (bytes >= at_once) check_room(8 * static_cast<double>(std::exchange(bytes, 0)));
    all.push_back({with_end(source), with_end(target)});
  }
  return all;
}

std::pair<Tensor, Tensor> padded(std::span<const std::vector<int32_t>> rows, int32_t padding) {
  int64_t longest = 1;
  std::vector<int32_t> lengths;
  for (const auto& row : rows) {
    longest = std::max(longest, length(row));
    lengths.push_back(static_cast<int32_t>(row.size()));
  }
  const auto count = static_cast<int64_t>(rows.size());
  Tensor all = Tensor::empty(Shape{count, longest}, Dtype::i32, Device::cpu);
  int32_t* out = all.mutable_data<int32_t>();
  for (const auto& row : rows) {
    std::fill_n(std::copy(row.begin(), row.end(), out), longest - length(row), padding);
    out += longest;
  }
  return {all, Tensor::from(Shape{count}, lengths)};
}

PairBatch batch_of(std::span<const Pair* const> pairs, const SentenceMarks& marks) {
  std::vector<std::vector<int32_t>> sources, inputs, targets;
  for (const Pair* const pair : pairs) {
    sources.push_back(pair->source);
    targets.push_back(pair->target);
    inputs.push_back({marks.begin});
    inputs.back().insert(inputs.back().end(), pair->target.begin(), pair->target.end() - 1);
  }
  PairBatch batch;
  std::tie(batch.sources, batch.source_lengths) = padded(sources);
  std::tie(batch.inputs, batch.target_lengths) = padded(inputs);
  batch.targets = padded(targets, -1).first;
  return batch;
}

PairBatches::PairBatches(std::span<const Pair> pairs, const SentenceMarks& marks, int64_t max_tokens, uint64_t seed)
    : pairs_(pairs), marks_(marks), rng_(RandomKey{seed, 0}.derive("pairs")) {
  check(!pairs.empty(), "pairs: batches require at least one pair");
  check_memory("pairs: sorting", 3 * sizeof(size_t) * static_cast<double>(pairs.size()), fewer_pairs);
  check(max_tokens >= 1, "pairs: tokens per batch is ", max_tokens, "; it must be at least 1");
  order(0);
  int64_t tokens = 0, rows = 0, longest = 0;
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const Pair& pair = pairs_[sorted_[i]];
    const int64_t source = length(pair.source), target = length(pair.target);
    if (rows == 0 || tokens + source + target > max_tokens) {
      begins_.push_back(i);
      tokens = rows = longest = 0;
    }
    tokens += source + target, all_tokens_ += source + target;
    longest = std::max({longest, source, target});
    max_positions_ = std::max(max_positions_, ++rows * longest);
    longest_ = std::max(longest_, longest);
  }
  begins_.push_back(sorted_.size());
  ordered_ = -1;  // the order of the batches is not drawn yet
}

void PairBatches::order(int64_t epoch) const {
  if (ordered_ == epoch) return;
  const RandomKey rng = rng_.derive(epoch), of_pairs = rng.derive("pairs"), of_batches = rng.derive("batches");
  sorted_.resize(pairs_.size());
  std::iota(sorted_.begin(), sorted_.end(), size_t{0});
  std::vector<uint64_t> drawn(pairs_.size());
  for (size_t i = 0; i < drawn.size(); ++i) drawn[i] = below(of_pairs, i, uint64_t{1} << 63);
  const auto sort_key = [&](size_t i) {
    return std::tuple(pairs_[i].target.size(), pairs_[i].source.size(), drawn[i], i);
  };
  std::sort(sorted_.begin(), sorted_.end(), [&](size_t a, size_t b) { return sort_key(a) < sort_key(b); });
  batch_order_.resize(begins_.empty() ? 0 : begins_.size() - 1);
  std::iota(batch_order_.begin(), batch_order_.end(), size_t{0});
  for (size_t i = batch_order_.size(); i > 1; --i)
    std::swap(batch_order_[i - 1], batch_order_[below(of_batches, i, i)]);
  ordered_ = epoch;
}

std::vector<const Pair*> PairBatches::pairs_at(int64_t number) const {
  order(number / batches_per_epoch());
  const size_t batch = batch_order_[static_cast<size_t>(number % batches_per_epoch())];
  std::vector<const Pair*> chosen;
  for (size_t i = begins_[batch]; i < begins_[batch + 1]; ++i) chosen.push_back(&pairs_[sorted_[i]]);
  return chosen;
}

}  // namespace orrery::models
