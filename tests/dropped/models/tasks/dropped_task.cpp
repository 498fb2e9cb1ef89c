// The next token of a text as in language_modeling, from the start of its windows.
#include <algorithm>
#include <optional>

#include "models/tasks/evaluation.h"
#include "models/tasks/text_task.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
namespace {

class DroppedTask final : public TextTask {
 public:
  static inline const TaskInfo info{.name = "dropped_task", .description = "the next token of a text, for a test"};
  struct Settings : TextSettings {};

  DroppedTask(Settings& s, AnySettings& model, const TaskOptions& options) : TextTask(s, model, options) {
    if (options.purpose != Purpose::evaluate) batches_.emplace(training(), options.batch_size, context(), options.seed);
  }
  std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const override {
    const Batch b = batches_.value().at(step, micro_batch);
    return {b.inputs, b.targets};
  }
  Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::ForwardPass& pass) const override {
    return nn::cross_entropy(model(batch[0], pass), batch[1]);
  }
  std::optional<Validation> validate(nn::Module& model, const ValidationOptions& options) const override {
    const auto loss = evaluate(model, validation(), context(), 4, options);
    if (!loss) return std::nullopt;
    Validation found{.loss = loss->mean()};
    add_bits_per_character(found, *loss);
    return found;
  }
  int64_t validation_batch() const override { return 4; }

 private:
  std::optional<TextBatches> batches_;
};
REGISTER_TASK(DroppedTask);

}  // namespace
}  // namespace orrery::models
