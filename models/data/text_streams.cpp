#include "models/data/text_streams.h"

#include <algorithm>
#include <span>
#include <vector>

#include "models/settings/at_least_one.h"

namespace orrery::models {
namespace {

// Reads `count` + 1 tokens from `position` on; the first token follows the last.
std::vector<int32_t> read_wrapped(const TokenSequence& tokens, int64_t position, int64_t count) {
  std::vector<int32_t> read(static_cast<size_t>(count + 1));
  for (std::span<int32_t> left(read); !left.empty(); position = 0) {
    const std::span<int32_t> now = left.first(std::min(left.size(), static_cast<size_t>(tokens.size() - position)));
    tokens.read(position, now);
    left = left.subspan(now.size());
  }
  return read;
}

}  // namespace

TextStreams::TextStreams(TokenSequence tokens, int64_t rows, int64_t context, const std::string& what)
    : tokens_(std::move(tokens)), rows_(rows), context_(context) {
  check_at_least_one(what, {{"batch_size", rows}, {"context", context}});
  const int64_t needed = product_of_sizes(what + ": streams x context", {rows, context});
  check(tokens_.size() > needed, what, " has too few tokens for training (", tokens_.size(), "); batch_size=", rows,
        " and context=", context, " need more than ", needed,
        "; use a longer text, a smaller batch_size or a shorter context");
}

Batch TextStreams::at(int64_t step, int64_t first_row, int64_t rows) const {
  const int64_t tokens = tokens_.size(), read = (step % tokens) * (context_ % tokens) % tokens;
  const Shape shape{rows, context_};
  Batch batch{Tensor::empty(shape, Dtype::i32, Device::cpu), Tensor::empty(shape, Dtype::i32, Device::cpu)};
  int32_t *input = batch.inputs.mutable_data<int32_t>(), *target = batch.targets.mutable_data<int32_t>();
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    // row N / R without overflow
    const int64_t begin = tokens / rows_ * row + tokens % rows_ * row / rows_;
    const std::vector<int32_t> block = read_wrapped(tokens_, (begin + read) % tokens, context_);
    input = std::copy_n(block.begin(), context_, input);
    target = std::copy_n(block.begin() + 1, context_, target);
  }
  return batch;
}

void each_block(const TokenSequence& tokens, int64_t context, int64_t rows,
                const std::function<bool(const Batch&)>& take) {
  check_at_least_one("text", {{"streams", rows}, {"context", context}});
  check(tokens.size() >= 2, "text: validation needs at least 2 tokens, but has ", tokens.size(),
        "; use a longer text or another validation_fraction");
  const int64_t targets = tokens.size() - 1, streams = std::min(rows, targets),
                longest = (targets + streams - 1) / streams;
  for (int64_t read = 0; read < longest; read += context) {
    const int64_t time = std::min(context, longest - read);
    std::vector<int32_t> inputs(static_cast<size_t>(streams * time), 0), target_ids(inputs.size(), -1);
    for (int64_t row = 0; row < streams; ++row) {
      const int64_t begin = targets * row / streams + read, end = targets * (row + 1) / streams,
                    here = std::clamp<int64_t>(end - begin, 0, time);
      std::vector<int32_t> block(static_cast<size_t>(here + 1));
      if (here > 0) tokens.read(begin, block);
      std::copy_n(block.begin(), here, inputs.begin() + row * time);
      std::copy_n(block.begin() + 1, here, target_ids.begin() + row * time);
    }
    const Shape shape{streams, time};
    if (!take({Tensor::from(shape, inputs), Tensor::from(shape, target_ids)})) return;
  }
}

}  // namespace orrery::models
