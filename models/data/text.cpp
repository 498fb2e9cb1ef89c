#include "models/data/text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/files.h"

namespace orrery::models {
namespace {

// Rows of `time` tokens that begin at `starts`, and the same one token later.
Batch crops(std::span<const int32_t> tokens, std::span<const int64_t> starts, int64_t time) {
  const Shape shape{static_cast<int64_t>(starts.size()), time};
  Batch batch{Tensor::empty(shape, Dtype::i32, Device::cpu), Tensor::empty(shape, Dtype::i32, Device::cpu)};
  int32_t* inputs = batch.inputs.mutable_data<int32_t>();
  int32_t* targets = batch.targets.mutable_data<int32_t>();
  for (const int64_t start : starts) {
    inputs = std::copy_n(tokens.begin() + start, time, inputs);
    targets = std::copy_n(tokens.begin() + start + 1, time, targets);
  }
  return batch;
}

}  // namespace

Text::Text(const std::string& path, const Tokenizer& tokenizer, double validation_fraction) : path_(path) {
  check(validation_fraction >= 0 && validation_fraction < 1, "text: validation_fraction ", validation_fraction,
        " must be at least 0 and below 1");
  const std::string bytes = read_file(path);
  check(!bytes.empty(), "text: ", path, " is empty");
  fingerprint_ = {bytes.size(), sha256(std::as_bytes(std::span(bytes)))};
  try {
    tokens_ = tokenizer.encode(bytes);
  } catch (const Error& error) {
    fail("text: ", path, ": ", error.what());
  }
  split_ = static_cast<size_t>(std::floor(static_cast<double>(tokens_.size()) * (1 - validation_fraction)));
}

void Text::check_context(int64_t context) const {
  check(context >= 1, "text: context ", context, " must be at least 1");
  check(static_cast<int64_t>(split_) > context, "text: ", path_, " has ", split_, " tokens for training, a context of ",
        context, " needs at least ", static_cast<uint64_t>(context) + 1, "; take a longer text or a shorter context");
  check(validation().size() != 1, "text: ", path_,
        " has 1 token for validation, where 2 are the least; take a longer text or another validation_fraction");
}

TextBatches::TextBatches(std::span<const int32_t> tokens, int64_t batch, int64_t context, uint64_t seed)
    : tokens_(tokens), batch_(batch), context_(context), key_(RandomKey{seed, 0}.derive("text")) {
  check(batch >= 1 && context >= 1, "text: batch ", batch, " and context ", context, " must be at least 1");
  check(static_cast<int64_t>(tokens.size()) > context, "text: ", tokens.size(), " tokens, a context of ", context,
        " needs at least ", static_cast<uint64_t>(context) + 1, "; take a longer text or a shorter context");
  static_cast<void>(product_of_sizes("text: batch x context", {batch, context}));
}

Batch TextBatches::at(int64_t step, int64_t micro_batch) const {
  const RandomKey key = key_.derive(step).derive(micro_batch);
  const uint64_t places = tokens_.size() - static_cast<uint64_t>(context_);
  std::vector<int64_t> starts(static_cast<size_t>(batch_));
  for (size_t row = 0; row < starts.size(); ++row) starts[row] = static_cast<int64_t>(below(key, row, places));
  return crops(tokens_, starts, context_);
}

std::vector<Batch> consecutive_windows(std::span<const int32_t> tokens, int64_t context, int64_t batch) {
  check(batch >= 1 && context >= 1, "text: batch ", batch, " and context ", context, " must be at least 1");
  check(tokens.size() >= 2, "text: validation needs at least 2 tokens, not ", tokens.size(),
        "; take a longer text or another validation_fraction");
  const int64_t targets = static_cast<int64_t>(tokens.size()) - 1;
  std::vector<Batch> all;
  std::vector<int64_t> starts;
  int64_t at = 0;
  for (; targets - at >= context; at += context) {
    starts.push_back(at);
    const bool last = targets - at - context < context;
    if (static_cast<int64_t>(starts.size()) < batch && !last) continue;
    all.push_back(crops(tokens, starts, context));
    starts.clear();
  }
  if (at < targets) all.push_back(crops(tokens, std::array{at}, targets - at));
  return all;
}

}  // namespace orrery::models
