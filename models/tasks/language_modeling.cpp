// Language modeling: the next token of a text, at every position.
//   loss = -1 / (B T) sum ln p(token_(t + 1) | tokens up to t)
#include <algorithm>

#include "models/tasks/evaluation.h"
#include "models/tasks/span_report.h"
#include "models/tasks/text_task.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
namespace {

constexpr int64_t validation_windows = 16;     // whose losses are summed together
constexpr int64_t max_logits = int64_t{1} << 24;  // elements at once in a validation on the CPU, if a window has fewer

class LanguageModeling final : public TextTask {
 public:
  static inline const TaskInfo info{.name = "language_modeling", .description = "next token of a text"};
  struct Settings : TextSettings {
    double label_smoothing = 0;
    bool documents = false;

    template <class V>
    void visit(V& v) {
      TextSettings::visit(v);
      v("label_smoothing", label_smoothing, "fraction of each target spread evenly over all tokens, in training only",
        fraction());
      v("documents", documents,
        "attend only within a document; documents end with the end-of-text token, or with their file");
    }
  };

  LanguageModeling(Settings& s, AnySettings& model, const TaskOptions& options)
      : TextTask(s, model, options), label_smoothing_(s.label_smoothing), device_(options.device) {
    if (options.purpose != Purpose::evaluate) batches_.emplace(training(), options.batch_size, context(), options.seed);
    if (!s.documents) return;
    end_of_document_ = end_of_text();
    const char* const command = command_of(options.purpose);
    check(end_of_document_.has_value(), command,
          ": documents=yes needs a tokenizer with an end-of-text token, such as GPT-2's; use one, or leave documents "
          "out");
    check_end_of_documents(command, s.data), check_end_of_documents(command, s.validation_data);
    if (options.purpose != Purpose::evaluate) check_documents(training(), *end_of_document_, "data");
    check_documents(validation(), *end_of_document_,
                    s.validation_data.empty() ? "the validation split of data" : "validation_data");
  }

  std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const override {
    Batch b = batches_.value().at(step, micro_batch);
    leave_out_first_targets(b, without_loss());
    if (!end_of_document_) return {b.inputs, b.targets};
    const Tensor ids = separate_documents(b, *end_of_document_);
    return {b.inputs, b.targets, ids};
  }
  std::vector<Tensor> dummy_batch(int64_t batch, int64_t length) const override {
    std::vector<Tensor> tensors = TextTask::dummy_batch(batch, length);
    if (end_of_document_) tensors.push_back(tensors[0]);
    return tensors;
  }
  Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::ForwardPass& pass) const override {
    if (batch.size() > 2) pass.document_ids = batch[2];
    return nn::cross_entropy(model(batch[0], pass), batch[1], pass.training ? label_smoothing_ : 0);
  }
  std::optional<Validation> validate(nn::Module& model, const ValidationOptions& options) const override {
    const SpanReport spans(model);
    const ValidationOptions own = spans.whole(options);
    const auto loss_on = [&](const TokenSequence& tokens) {
      return evaluate(model, tokens, context(), validation_windows, own, end_of_document_,
                      windows_at_once(nn::device_of(model)), without_loss());
    };
    const auto loss = loss_on(validation());
    if (!loss) return std::nullopt;
    Validation found{.loss = loss->mean()};
    if (without_loss() == 0) add_bits_per_character(found, *loss, end_of_document_);
    spans.add_to(found);
    if (training_sample().size() < 2) return found;
    const auto training_loss = loss_on(training_sample());
    if (!training_loss) return std::nullopt;
    if (training_loss->targets() > 0) found.metrics.emplace_back("training_loss", training_loss->mean());
    return found;
  }
  int64_t validation_batch() const override {
    const int64_t longest = std::max(validation_units(), training_sample().size());
    return std::min(windows_at_once(device_), (longest + context() - 1) / context());
  }

 private:
  // A GPU takes all of them: the bits of its products depend on the number of rows.
  int64_t windows_at_once(Device device) const {
    if (device != Device::cpu) return validation_windows;
    return std::clamp<int64_t>(max_logits / (context() * choices()), 1, validation_windows);
  }

  double label_smoothing_;
  Device device_;
  std::optional<TextBatches> batches_;      // none: no training data
  std::optional<int32_t> end_of_document_;  // none: one text without documents
};
REGISTER_TASK(LanguageModeling);

}  // namespace
}  // namespace orrery::models
