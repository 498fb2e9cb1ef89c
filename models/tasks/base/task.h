// What a model learns: a task makes batches of data, says what is lost on one, and judges the model on held-out data.
// The trainer knows tasks, not models.
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

#include "models/settings/any_settings.h"
#include "engine/system/hash.h"
#include "engine/settings/registry.h"
#include "engine/tensor/tensor.h"
#include "nn/base/module.h"

namespace orrery::models {

// What a task is made for.
enum class Purpose {
  learn,  // a run
  go_on,  // a run that is resumed
  begin,  // a run that begins with the weights of another
  judge,  // a model that has learned: what is held out is needed, what was learned may be gone
};

// The settings of tasks that say where data lie; a task has some of them.
inline constexpr const char* paths_of_data[] = {"data", "translations", "validation_data", "validation_translations"};

// Of a run, as far as tasks ask.
struct TaskOptions {
  int64_t batch = 1;          // sequences, images, ... of a micro-batch
  int64_t micro_batches = 1;  // of a step
  uint64_t seed = 0;
  std::string tokenizer = {};  // of the run that is gone on with, begun with or judged; empty: made from the data
  Purpose purpose = Purpose::learn;
  bool bleu = true;  // of a judged model that translates, beside its loss
  std::function<void(const std::string& done, double share)> progress = {};  // told of long work, "translated", 0.25
};

// What a validation says of all held-out data.
struct Validation {
  double loss;                                               // the mean, in nats
  std::vector<std::pair<std::string, double>> figures = {};  // beside it, such as {"accuracy", 0.87}
  std::vector<std::pair<std::string, double>> details = {};  // for the log alone
  int64_t answers = 0;                                       // of what is held out: the loss is of these; 0: of all
};

// What the means over a micro-batch are taken over: a step's means add each micro-batch with its fraction of the step.
struct BatchCounts {
  int64_t targets = 0;  // predictions; 0: the micro-batch adds nothing to the loss
  int64_t units = 0;    // tokens, images, ... that the model reads; the losses of layers are means over these
};

// The targets of an i32 tensor on the CPU: a negative number is none.
int64_t count_targets(const Tensor& targets);

// What a stream carries along at its beginning: nothing yet.
inline nn::Cache stream_cache() { return {.entries = {}, .tokens = 0, .of_states = true}; }

inline const std::string division_mark = " (files)";

class Task {
 public:
  virtual ~Task() = default;

  // ---- learning
  // The tensors of a micro-batch, on the CPU.  They depend on step, micro-batch and seed alone, so resuming agrees.
  virtual std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const = 0;
  // Whether their shapes differ from batch to batch.
  virtual bool varies() const { return false; }
  virtual BatchCounts counts(std::span<const Tensor> batch) const = 0;  // of such tensors, on the CPU
  // The mean loss over the targets of such tensors, which are on the model's device now; 0 if there are none.
  // pass.training says whether it is learned from.
  virtual Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::Pass& pass) const = 0;
  // Not 0: batches are streams.  Each row goes on where that of the same micro-batch of the step before ended, and the
  // model sees so many tokens of before: the pass brings a cache of states, which is part of a checkpoint.
  virtual int64_t carried() const { return 0; }
  // None if `stop`, asked now and then, has said true.  What takes long, such as BLEU, is told of judged models alone.
  virtual std::optional<Validation> validate(nn::Module& model, const std::function<bool()>& stop) const = 0;

  // ---- what is told about it
  virtual std::string kind() const = 0;        // of the data: "text", "images"
  virtual std::string unit() const = 0;        // what is counted: "tokens", "images"
  virtual int64_t units_of_batch() const = 0;  // in a micro-batch, on average
  virtual int64_t epoch() const = 0;                      // units of all that there is to learn
  virtual int64_t held_out() const = 0;                   // units of what is kept for validation
  virtual std::string tokenizer() const { return "{}"; }  // as Tokenizer::save wrote it; of images, the classes' names
  // How many tokens or classes the model chooses from, in its vocabulary or its head; 0: the loss is of no such choice.
  virtual int64_t choices() const { return 0; }
  // ln(choices()), the loss of a model that gives each of them the same probability.
  std::optional<double> guessing_loss() const {
    return choices() > 0 ? std::optional(std::log(static_cast<double>(choices()))) : std::nullopt;
  }
  virtual std::vector<std::string> warnings() const { return {}; }  // sentences about what was made of the data
  virtual std::string data() const = 0;                             // where it was read
  virtual Fingerprint fingerprint() const = 0;                      // of what is learned
  // Of what else was read, by the setting that names it: validation data, a tokenizer made elsewhere; and, with
  // `division_mark` behind the setting, how what it names is divided into files.
  virtual std::map<std::string, Fingerprint> read_beside() const { return {}; }

  // One example of what is held out, for looks inside: as batches of one, what the model reads, (1, T) tokens or
  // (1, H, W, C) pixels, and (T) or (1) right answers, -1 where nothing is asked.  Of a text so many tokens at most.
  // Empty: the task has none of this form.
  virtual std::vector<Tensor> held_out_example(int64_t /*most_tokens*/) const { return {}; }

  // ---- what it costs
  virtual int64_t bytes() const = 0;             // of the data, in memory
  virtual int64_t length() const { return 1; }   // steps of a sequence; 1: what is learned has none
  virtual int64_t work() const { return 1; }     // how often about a parameter is used in such a step
  virtual int64_t validation_batch() const = 0;  // sequences, images, ... at once
  virtual int64_t training_batch(int64_t batch) const { return batch; }  // the same of a micro-batch, at most
  // How many of full length take as long as a micro-batch does, in the mean.
  virtual double mean_batch(int64_t batch) const { return static_cast<double>(training_batch(batch)); }
  // Like a batch, of any numbers, and so large.
  virtual std::vector<Tensor> sample(int64_t batch, int64_t length) const = 0;

  // ---- beginning with the weights of another run
  // The paths of modules whose weights are not taken over, for the data ask for something else there.
  virtual std::vector<std::string> fresh_modules() const { return {}; }
};

struct TaskInfo {
  std::string name, description;
};
// Every task is a class with
//   static inline const TaskInfo info{.name = ..., .description = ...};
//   struct Settings { ... visit ... };
//   Type(Settings& settings, AnySettings& model, const TaskOptions& options);
// which reads the data and fills in what the data decides of the model, such as its vocabulary; and one line,
// REGISTER_TASK(Type).  Data that a model is judged by, if they are not those of its run, have the setting
// `validation_data`; with it, a judged task needs no `data`.
struct TaskClass : TaskInfo {
  AnySettings settings;  // its defaults
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
