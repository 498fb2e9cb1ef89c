// A task makes batches of data, computes the loss of a batch and evaluates the model on held-out
// data. The trainer uses tasks and does not depend on models.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/distributed/ranks.h"
#include "engine/settings/registry.h"
#include "engine/system/hash.h"
#include "engine/tensor/tensor.h"
#include "models/data/training_data.h"
#include "models/settings/any_settings.h"
#include "nn/base/module.h"

namespace orrery::models {

// The purpose of a task.
enum class Purpose {
  train,      // train
  resume,     // resume a run
  init_from,  // begin with the weights of another run
  evaluate,   // evaluate a trained model: held-out data are required, training data may be missing
};

// Returns the command that an error about a task's settings begins with.
constexpr const char* command_of(Purpose purpose) { return purpose == Purpose::evaluate ? "evaluate" : "train"; }

// The settings of tasks that hold paths of data; a task has some of them.
inline constexpr const char* paths_of_data[] = {"data", "translations", "validation_data", "validation_translations"};

// The settings of tasks that define the meaning of a model's inputs and outputs, and so of its
// weights; a task has some of them. A run takes them over from the run in `init_from`.
inline constexpr const char* settings_of_weights[] = {"tokenizer",  "documents", "problem",       "loss",
                                                      "pixel_mean", "pixel_std", "source_column", "target_column",
                                                      "source_field", "target_field"};

// The options of a run that tasks use.
struct TaskOptions {
  int64_t batch_size = 1;     // sequences, images, ... of a micro-batch
  int64_t micro_batches = 1;  // per step
  IndexRange own_micro_batches = {0, 1};  // those of this rank
  uint64_t seed = 0;
  std::string tokenizer = {};  // of the run that is resumed, init_from or evaluated; empty: made from the data
  std::vector<TrainingData> trained_on = {};  // data that the same run was trained on
  Purpose purpose = Purpose::train;
  bool bleu = true;  // with Purpose::evaluate: compute BLEU of a translating model, too
  std::string among = {};       // with Purpose::evaluate: file of the classes to evaluate alone; empty: all
  Device device = Device::cpu;  // of the model
  std::function<void(const std::string& done, double fraction)> progress =
      {};  // called in long work: "translated", 0.25
};

struct ValidationOptions {
  std::function<bool()> stop = {};  // called between batches; true: the validation has no result
  Ranks* ranks = nullptr;           // that share the batches; null: this process evaluates all of them
};

// The results of a validation on all held-out data.
struct Validation {
  double loss;                                               // mean, in nats
  std::vector<std::pair<std::string, double>> metrics = {};  // further metrics, such as {"accuracy", 0.87}
  std::vector<std::pair<std::string, double>> details = {};  // metrics that only the log gets
  int64_t targets = 0;                                       // number of held-out targets in the loss; 0: all
};

// The counts that weight a micro-batch in the means over a step.
struct BatchCounts {
  int64_t targets = 0;  // predictions; 0: the micro-batch adds nothing to the loss
  int64_t units = 0;    // tokens, images, ... that the model reads; the layers' losses are means over these
};

// Counts the targets in an i32 tensor on the CPU: negative values are not targets.
int64_t count_targets(const Tensor& targets);

// Returns the state of a stream at its start: empty.
inline nn::Cache empty_stream_state() { return {.entries = {}, .length = 0, .holds_states = true}; }

inline const std::string division_mark = " (files)";

class Task {
 public:
  virtual ~Task() = default;

  // ---- training
  // Returns a micro-batch on the CPU; depends only on step, micro_batch and seed, for resuming.
  virtual std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const = 0;
  // Returns true if shapes differ from batch to batch.
  virtual bool has_dynamic_shapes() const { return false; }
  virtual BatchCounts counts(std::span<const Tensor> batch) const = 0;  // of a batch on the CPU
  // Returns the mean loss over the targets of a batch on the model's device; 0 if there are none.
  // pass.training selects training mode.
  virtual Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::ForwardPass& pass) const = 0;
  // Returns 0, or for streams the cache length in tokens: each row continues the row of this
  // micro-batch in the previous step; pass.cache holds earlier states, which checkpoints save.
  virtual int64_t stream_context() const { return 0; }
  // Returns nothing if it was stopped. BLEU and other slow metrics need Purpose::evaluate.
  virtual std::optional<Validation> validate(nn::Module& model, const ValidationOptions& options) const = 0;

  // ---- description
  virtual std::string kind() const = 0;                   // of data: "text", "images"
  virtual std::string unit() const = 0;                   // counted unit: "tokens", "images"
  virtual int64_t units_per_batch() const = 0;            // per micro-batch, on average
  virtual int64_t units_per_epoch() const = 0;            // units of the training data
  virtual int64_t validation_units() const = 0;           // units of the validation split
  virtual std::string tokenizer() const { return "{}"; }  // as Tokenizer::save wrote it; of images, the class names
  // Returns the number of tokens or classes to predict; 0: the loss does not choose among such.
  virtual int64_t choices() const { return 0; }
  // Returns ln(choices()), the loss of a uniform prediction.
  std::optional<double> uniform_loss() const {
    return choices() > 0 ? std::optional(std::log(static_cast<double>(choices()))) : std::nullopt;
  }
  virtual std::vector<std::string> warnings() const { return {}; }  // messages about the data
  virtual std::string data() const = 0;                             // path of the data
  virtual Fingerprint fingerprint() const = 0;                      // of the training data
  // Returns what else is known to hold tokens of the training data: the files of a folder, the text
  // that tokens were made of.
  virtual std::vector<TrainedPart> trained_parts() const { return {}; }
  // Fingerprints of other inputs, by the setting that names them: validation data, an external
  // tokenizer; with `division_mark` after the setting, of their division into files.
  virtual std::map<std::string, Fingerprint> extra_inputs() const { return {}; }

  // Returns the number of held-out examples for inspection of at most max_tokens tokens (on a side):
  // consecutive windows of a text, pairs, images, generated sequences; 0: not available.
  virtual int64_t validation_examples(int64_t /*max_tokens*/) const { return 0; }
  // Returns one of them, from 0, as a batch of one: (1, T) tokens or (1, H, W, C) pixels, and (T) or
  // (1) targets, -1 for none. Source and target of a pair have the end token.
  virtual std::vector<Tensor> validation_example(int64_t /*number*/, int64_t /*max_tokens*/) const { return {}; }

  // ---- cost
  virtual int64_t bytes() const = 0;                                     // of the data in memory
  virtual int64_t sequence_length() const { return 1; }                  // positions of a sequence; 1: no sequences
  virtual int64_t uses_per_parameter() const { return 1; }               // approximate uses of a parameter per position
  virtual int64_t validation_batch() const = 0;                          // sequences, images, ... in a validation batch
  virtual int64_t training_batch(int64_t batch) const { return batch; }  // maximum in a micro-batch
  // Returns the number of full-length sequences that take as long as a mean micro-batch.
  virtual double mean_batch_size(int64_t batch) const { return static_cast<double>(training_batch(batch)); }
  // A dummy batch of this size, for memory planning.
  virtual std::vector<Tensor> dummy_batch(int64_t batch, int64_t length) const = 0;

  // ---- weights of another run
  // Returns paths of modules that get fresh weights, because the data require others there.
  virtual std::vector<std::string> fresh_modules() const { return {}; }
};

struct TaskInfo {
  std::string name, description;
};
// A task is a class with
//   static inline const TaskInfo info{.name = ..., .description = ...};
//   struct Settings { ... visit ... };
//   Type(Settings& settings, AnySettings& model, const TaskOptions& options);
// and the line REGISTER_TASK(Type). The constructor reads the data and sets the model's settings
// that depend on them, such as its vocabulary. The setting `validation_data` names other data to
// evaluate a model on; with it, an evaluated task needs no `data`.
struct TaskClass : TaskInfo {
  AnySettings settings;  // default values
  std::unique_ptr<Task> (*make)(const AnySettings& settings, AnySettings& model, const TaskOptions& options);
};
Registry<TaskClass>& tasks();

template <class Type>
bool register_task() {
  using Settings = typename Type::Settings;
  tasks().add(
      {{Type::info},
       AnySettings(Settings()),
       [](const AnySettings& settings, AnySettings& model, const TaskOptions& options) -> std::unique_ptr<Task> {
         return std::make_unique<Type>(settings.as<Settings>(), model, options);
       }});
  return true;
}
#define REGISTER_TASK(Type) \
  [[maybe_unused]] static const bool registered_task_##Type = ::orrery::models::register_task<Type>()

}  // namespace orrery::models
