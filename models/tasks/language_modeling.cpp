// Language modeling: the next token of a text, at every place.
//   loss = -1 / (B T) sum ln p(token_(t + 1) | tokens up to t)
#include <algorithm>

#include "models/tasks/evaluation.h"
#include "models/tasks/span_report.h"
#include "models/tasks/text_task.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
namespace {

constexpr int64_t windows_at_once = 16;  // of a validation

class LanguageModeling final : public TextTask {
 public:
  static inline const TaskInfo info{.name = "language_modeling", .description = "the next token of a text"};
  struct Settings : TextSettings {
    double label_smoothing = 0;

    template <class V>
    void visit(V& v) {
      TextSettings::visit(v);
      v("label_smoothing", label_smoothing, "fraction of each target that all tokens divide; not in validation",
        fraction());
    }
  };

  LanguageModeling(const Settings& s, AnySettings& model, const TaskOptions& options)
      : TextTask(s, model, options),
        label_smoothing_(s.label_smoothing),
        batches_(training(), options.batch, context(), options.seed) {}

  std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const override {
    const Batch b = batches_.at(step, micro_batch);
    return {b.inputs, b.targets};
  }
  Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::Pass& pass) const override {
    return nn::cross_entropy(model(batch[0], pass), batch[1], pass.training ? label_smoothing_ : 0);
  }
  std::optional<Validation> validate(nn::Module& model, const std::function<bool()>& stop) const override {
    const SpanReport spans(model);
    const auto loss = evaluate(model, validation(), context(), windows_at_once, stop);
    if (!loss) return std::nullopt;
    Validation found{.loss = *loss, .figures = {{"bits_per_character", bits_per_character(*loss)}}};
    spans.add_to(found);
    if (learned_sample().size() < 2) return found;
    const auto learned = evaluate(model, learned_sample(), context(), windows_at_once, stop);
    if (!learned) return std::nullopt;
    found.figures.emplace_back("training_loss", *learned);
    return found;
  }
  int64_t validation_batch() const override {
    return std::min(windows_at_once, (held_out() + context() - 1) / context());
  }

 private:
  double label_smoothing_;
  TextBatches batches_;
};
REGISTER_TASK(LanguageModeling);

}  // namespace
}  // namespace orrery::models
