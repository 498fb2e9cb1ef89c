// Algorithmic problems: generated sequences with the loss on the answers alone.
//   loss = -1 / answers sum ln p(answer | the sequence up to it)
// Each validation uses equal sequences, which are never trained on. accuracy: fraction of answers
// that are the most likely token.
#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/types/usage_error.h"
#include "models/architectures/masks.h"
#include "models/data/algorithmic/base/problem.h"
#include "models/data/text.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "models/tasks/evaluation.h"
#include "models/tasks/span_report.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
namespace {

constexpr int64_t sequences_at_once = 64;  // per validation batch

class Algorithmic final : public Task {
 public:
  static inline const TaskInfo info{.name = "algorithmic",
                                    .description = "answers of algorithmic problems with generated sequences"};
  struct Settings {
    Spec problem = parse_spec("copy");
    int64_t validation_sequences = 512;
    template <class V>
    void visit(V& v) {
      v.common("problem", problem,
               "problem from `orrery list problem`, with its sizes; as in copy(length=32)",
               name_of_family("problem"));
      v("validation_sequences", validation_sequences, "sequences per validation", between(1, 1048576));
    }
  };

  Algorithmic(const Settings& s, AnySettings& model, const TaskOptions& options)
      : settings_(s),
        problem_(make_problem(s.problem)),
        batch_(options.batch_size),
        rng_(RandomKey{options.seed, 0}.derive("algorithmic")) {
    const int64_t context = setting_of<int64_t>(model, "context");
    check_usage(problem_->length() <= context, "train: problem=", s.problem, " has sequences of ", problem_->length(),
                " tokens, but context is ", context, "; use context=", problem_->length(), " or shorter sequences");
    int64_t& vocabulary = setting_of<int64_t>(model, "vocabulary");
    if (vocabulary == 0) vocabulary = problem_->vocabulary();
    check_usage(vocabulary >= problem_->vocabulary(), "train: vocabulary (", vocabulary, ") must be at least ",
                problem_->vocabulary(), ", the tokens of problem=", s.problem, "; leave it out or raise it");
    vocabulary_ = vocabulary, without_loss_ = positions_without_loss(model);
    check_usage(count_targets(sequences(rng_, 0, 1)[1]) > 0, "train: mask: the ", without_loss_,
                " tokens of its prefix bear no loss, and problem=", s.problem, " has no target after them; use a "
                "shorter prefix");
  }

  std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const override {
    return sequences(rng_.derive("train").derive(step).derive(micro_batch), 0, batch_);
  }
  BatchCounts counts(std::span<const Tensor> batch) const override {
    return {.targets = count_targets(batch[1]), .units = batch[0].numel()};
  }
  Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::ForwardPass& pass) const override {
    return nn::cross_entropy(model(batch[0], pass), batch[1]);
  }
  std::optional<Validation> validate(nn::Module& model, const ValidationOptions& options) const override {
    const NoGrad guard;
    const Device device = nn::device_of(model);
    const SpanReport spans(model);
    const ValidationOptions own = spans.whole(options);
    MeanLoss loss(own.ranks);
    for (int64_t first = 0; first < settings_.validation_sequences; first += sequences_at_once) {
      if (own.stop && own.stop()) return std::nullopt;
      if (!loss.evaluates_next()) continue;
      const int64_t rows = std::min(sequences_at_once, settings_.validation_sequences - first);
      const std::vector<Tensor> some = sequences(rng_.derive("validation"), first, rows);
      nn::ForwardPass pass;
      const Tensor logits = model(some[0].to(device), pass), predicted = argmax(logits).to(Device::cpu);
      const int32_t *target = some[1].data<int32_t>(), *most_likely = predicted.data<int32_t>();
      int64_t correct = 0;
      for (int64_t i = 0; i < some[1].numel(); ++i) correct += target[i] != no_target && most_likely[i] == target[i];
      loss.add(nn::cross_entropy(logits, some[1].to(device)).item(), count_targets(some[1]), correct);
    }
    loss.add_others();
    Validation found{.loss = loss.mean(), .targets = loss.targets()};
    found.metrics.emplace_back("accuracy", loss.accuracy());
    spans.add_to(found);
    return found;
  }

  std::string kind() const override { return "sequences"; }
  std::string unit() const override { return "tokens"; }
  int64_t units_per_batch() const override { return batch_ * problem_->length(); }
  int64_t units_per_epoch() const override { return 0; }  // unlimited
  int64_t validation_units() const override { return settings_.validation_sequences * problem_->length(); }
  int64_t choices() const override { return vocabulary_; }
  std::string data() const override { return "problem=" + print(settings_.problem); }
  Fingerprint fingerprint() const override { return {}; }

  int64_t validation_examples(int64_t) const override { return settings_.validation_sequences; }
  std::vector<Tensor> validation_example(int64_t number, int64_t) const override {
    const std::vector<Tensor> one = sequences(rng_.derive("validation"), number, 1);
    return {one[0], one[1].reshape(Shape{problem_->length()})};
  }

  int64_t bytes() const override { return 0; }
  int64_t sequence_length() const override { return problem_->length(); }
  int64_t validation_batch() const override { return std::min(sequences_at_once, settings_.validation_sequences); }
  std::vector<Tensor> dummy_batch(int64_t batch, int64_t length) const override {
    const Tensor tokens = Tensor::zeros(Shape{batch, length}, Dtype::i32);
    return {tokens, tokens};
  }

 private:
  // Returns inputs and targets of the sequences `first`, `first` + 1, ... of a key.
  std::vector<Tensor> sequences(RandomKey rng, int64_t first, int64_t rows) const {
    const int64_t length = problem_->length();
    const auto tokens = static_cast<size_t>(length);
    const Tensor inputs = Tensor::zeros(Shape{rows, length}, Dtype::i32),
                 targets = Tensor::full_like(inputs, Shape{rows, length}, no_target);
    for (int64_t row = 0; row < rows; ++row)
      problem_->write(rng.derive(first + row), {inputs.mutable_data<int32_t>() + row * length, tokens},
                      {targets.mutable_data<int32_t>() + row * length, tokens});
    Batch all{inputs, targets};
    leave_out_first_targets(all, without_loss_);
    return {inputs, targets};
  }

  Settings settings_;
  std::unique_ptr<Problem> problem_;
  int64_t batch_, vocabulary_ = 0, without_loss_ = 0;
  RandomKey rng_;
};
REGISTER_TASK(Algorithmic);

}  // namespace
}  // namespace orrery::models
