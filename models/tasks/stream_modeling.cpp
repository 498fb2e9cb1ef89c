// Language modeling over text streams: each row of a batch is a continuous text, and the cached
// states of earlier tokens pass from step to step as constants. Sukhbaatar et al. 2019,
// arXiv:1905.07799, after Dai et al. 2019, arXiv:1901.02860.
//   loss = -1 / (B M) sum ln p(token_(t + 1) | all tokens of the row up to t)         M tokens of a block
// A validation reads its text once, as parallel streams with their own cache.
//   bits_per_character = loss targets / (characters ln 2),  characters: those of the text, in Unicode,
//                                                             without marks between documents
#include <algorithm>

#include "engine/attention/work.h"
#include "engine/autograd/autograd.h"
#include "models/data/text_streams.h"
#include "models/model.h"
#include "models/tasks/evaluation.h"
#include "models/tasks/span_report.h"
#include "models/tasks/text_task.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
namespace {

constexpr int64_t max_streams = 16;  // per validation
constexpr int64_t min_blocks = 16;   // of each stream: the first block has no cached states

class StreamModeling final : public TextTask {
 public:
  static inline const TaskInfo info{.name = "stream_modeling",
                                    .description = "next token of text streams, which are read block by block"};
  using Settings = TextSettings;

  StreamModeling(Settings& s, AnySettings& model, const TaskOptions& options)
      : TextTask(s, model, options), cache_length_(setting_of<int64_t>(model, "cache_length")) {
    if (options.purpose != Purpose::evaluate)
      streams_.emplace(training(), product_of_sizes("train: streams", {options.batch_size, options.micro_batches}),
                       context(), "text: " + s.data);
    check(validation_units() >= 2, "text: the number of validation tokens is ", validation_units(),
          "; at least 2 are needed; raise validation_fraction or validation_tokens, or use a longer validation_data");
  }

  std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const override {
    const Batch b = streams_.value().at(step, micro_batch * batch_size(), batch_size());
    return {b.inputs, b.targets};
  }
  int64_t stream_context() const override { return cache_length_; }
  Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::ForwardPass& pass) const override {
    return nn::cross_entropy(model(batch[0], pass), batch[1]);
  }

  // One memory passes through the text, so that ranks cannot share it: each evaluates all of it.
  std::optional<Validation> validate(nn::Module& model, const ValidationOptions& options) const override {
    const SpanReport spans(model);
    const int64_t multiply_adds = attention_multiply_adds();
    const auto loss = mean_loss(model, validation(), options.stop);
    if (!loss) return std::nullopt;
    Validation found{.loss = loss->mean()};
    add_bits_per_character(found, *loss);
    spans.add_to(found);
    if (nn::device_of(model) == Device::cpu)
      found.metrics.emplace_back(
          "attention_multiply_adds_per_token",
          static_cast<double>(attention_multiply_adds() - multiply_adds) / static_cast<double>(validation_units() - 1));
    if (training_sample().size() < 2) return found;
    const auto training_loss = mean_loss(model, training_sample(), options.stop);
    if (!training_loss) return std::nullopt;
    found.metrics.emplace_back("training_loss", training_loss->mean());
    return found;
  }
  int64_t validation_batch() const override {
    return std::max(streams_of(validation()), streams_of(training_sample()));
  }

 private:
  // Returns the number of parallel streams that a validation splits a text into.
  int64_t streams_of(const TokenSequence& tokens) const {
    return std::clamp<int64_t>((tokens.size() - 1) / (min_blocks * context()), 1, max_streams);
  }
  std::optional<MeanLoss> mean_loss(nn::Module& model, const TokenSequence& tokens,
                                    const std::function<bool()>& stop) const {
    const NoGrad guard;
    const Device device = nn::device_of(model);
    nn::Cache cache = empty_stream_state();
    MeanLoss mean;
    bool stopped = false;
    each_block(tokens, context(), streams_of(tokens), [&](const Batch& block) {
      if (stop && stop()) return stopped = true, false;
      nn::ForwardPass pass;
      pass.cache = &cache;
      const std::vector<Tensor> batch = {block.inputs.to(device), block.targets.to(device)};
      mean.add(loss(model, batch, pass).item(), count_targets(block.targets));
      return true;
    });
    if (stopped) return std::nullopt;
    return mean;
  }

  int64_t cache_length_;
  std::optional<TextStreams> streams_;  // none: no training data
};
REGISTER_TASK(StreamModeling);

}  // namespace
}  // namespace orrery::models
