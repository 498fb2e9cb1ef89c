// All settings that determine a run of `train`: the model's and the training's, in one flat list.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/settings/any_settings.h"
#include "engine/settings/config.h"
#include "nn/base/module.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {

constexpr double largest_seed = 9e18;  // a little below 2^63, so that seed + 1 is valid

// Weights of all registered extra losses, added to the cross-entropy; weight 0: not computed.
struct LossWeights {
  std::map<std::string, double> by_name;

  LossWeights() {
    for (const auto& [name, loss] : nn::losses())
      if (!loss.weight_of.empty()) by_name[name] = 0;
  }
  template <class V>
  void visit(V& v) {
    for (auto& [name, weight] : by_name)
      v(name, weight, text("weight of ", nn::losses().at(name).weight_of), between(0, 1e6));
  }
};

struct TrainSettings {
  std::string model = "gpt-char-small", task;
  AnySettings model_settings, task_settings;  // defaults of the model and task, then changed one by one
  std::string out = "runs/latest", init_from, rate_factors, decays, device = "cpu", dtype = "f32",
              precision = "highest", products = "auto";
  int64_t steps = 2000, batch = 12, gradient_accumulation_steps = 1;
  double learning_rate = 1e-3, min_learning_rate = 1e-4;
  int64_t warmup_steps = 100, lr_decay_iters = 0;
  std::string warmup_form = "linear";
  Spec schedule = parse_spec("cosine");
  Spec optimizer = parse_spec("adamw(beta1=0.9, beta2=0.99, weight_decay=0.1)");
  LossWeights losses;
  double grad_clip = 1;
  int64_t seed = 1337, threads = 0;
  int64_t evaluate_every = 500, checkpoint_every = 500, keep_checkpoints = 2, figures_every = 100;
  std::string figures = "usual";
  double peak_tflops = 0;
  bool keep_best = true, save_optimizer = true, overfit_one_batch = false, graph = false, resume = false,
       from_previous = false, other_text = false, nan_guard = false, probe = false, profile = false;

  // `model`: preset or class; `task` empty: the model's default. Throws for unknown names.
  explicit TrainSettings(const std::string& model = "gpt-char-small", const std::string& task = "");

  template <class V>
  void visit(V& v) {
    v("model", model, "preset or class from `orrery list model`, which the keys below change; others have other keys");
    v("task", task, "what it learns, from `orrery list task`");
    model_settings.visit(v);
    task_settings.visit(v);
    v("out", out, "folder for checkpoints, metrics and settings");
    v("init_from", init_from,
      "run or checkpoint whose model, task, weights and tokenizer this run begins with; none: fresh weights");
    v("steps", steps, "updates in all, those before a resume counted", between(1, 1e9));
    v("batch", batch, "sequences of a micro-batch", between(1, 16384));
    v("gradient_accumulation_steps|accumulate", gradient_accumulation_steps, "micro-batches of an update",
      between(1, 4096));
    v("learning_rate|rate", learning_rate, "learning rate at its peak", above(0, 1e30));
    v("min_learning_rate|final_rate", min_learning_rate,
      "learning rate that falling schedules reach when the run ends, one step after its last", between(0, 1000));
    v("warmup_steps|warm_up", warmup_steps, "steps in which the rate rises to its peak", between(0, 1e9));
    v("warmup_form|warm_up_form", warmup_form,
      "linear; quadratic: steep at first and level where it reaches the peak",
      one_of({"linear", "quadratic"}));
    v("|lr_decay_iters", lr_decay_iters, "nanoGPT's, which must equal `steps`", between(0, 1e9));
    v("schedule", schedule, "a name of `orrery list schedule` with its settings, such as warmup_stable_decay(...)",
      name_of_family("schedule"));
    v("optimizer", optimizer, "a name of `orrery list optimizer` with its settings, such as adamw(beta2=0.95)",
      name_of_family("optimizer"));
    v("rate_factors", rate_factors,
      "of the learning rate, by path: PATTERN=FACTOR, ..., the last that fits counts, as in '*.bias=2, "
      "blocks.0.*=0.5'");
    v("decays", decays,
      "what weight decay applies to beside matrices: PATTERN=yes or no, ..., as in '*norm*.weight=yes, "
      "token_embedding.weight=no'");
    v.group("losses", losses);
    v("grad_clip|clip", grad_clip, "largest global norm of the gradients; 0: no clipping", zero_or(tiny, 1e12));
    v("seed", seed, "same seed, same bits", between(0, largest_seed));
    v("threads", threads, "cores to use; 0: all.  The result does not depend on it", between(0, 1024));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
    v("dtype", dtype, "of weights and activations: f32, f64, or bf16 beside weights in f32 that the optimizer keeps",
      one_of({"f32", "f64", "bf16"}));
    v("precision", precision,
      "of f32 products on a GPU, without effect on a CPU: highest; high: as bf16 parts, nearly as exact; medium: "
      "rounded to bf16",
      one_of({"highest", "high", "medium"}));
    v("products", products,
      "whose kernels multiply on a CPU: orrery's for this processor, the fastest or one by its name, or OpenBLAS's",
      one_of({"auto", "avx2", "avx512", "avx512_bf16", "openblas"}));
    v("graph", graph, "on a GPU: record a step once for each shape of its batch and replay it; small models gain most");
    v("evaluate_every", evaluate_every, "steps between validations; 0: at the end only", between(0, 1e9));
    v("checkpoint_every", checkpoint_every, "steps between checkpoints; 0: at the end only", between(0, 1e9));
    v("figures", figures,
      "figures of the model's parts that the log gets: usual, all, none, or names from `orrery list figures`, with "
      "commas");
    v("figures_every", figures_every, "steps between two rows of figures; 0: never", between(0, 1e9));
    v("peak_tflops", peak_tflops,
      "10^12 operations a second that the machine could do, for the share that is used (MFU); 0: those of the GPU, if "
      "its kind is known",
      zero_or(1e-6, 1e6));
    v("keep_checkpoints|keep", keep_checkpoints, "checkpoints that stay; older ones are removed; 0: all",
      between(0, 1e6));
    v("keep_best", keep_best,
      "keep the checkpoint of the lowest validation loss as well, and write one at each new lowest");
    v("save_optimizer", save_optimizer,
      "checkpoints with the optimizer's numbers; no: smaller ones, from which a run cannot be resumed");
    v("overfit_one_batch", overfit_one_batch, "learn the first batch again and again: the loss must fall to nearly 0");
    v("resume", resume,
      "go on with the run in `out`, by its own settings but for those given; --resume=RUN names it too");
    v("from_previous", from_previous,
      "with resume: where the last checkpoint is damaged, set it aside as "
      "step_....damaged and go on from the one before it");
    v("other_text", other_text, "with resume: go on with another text than the run has learned so far");
    v("nan_guard", nan_guard,
      "stop at the first value that is not finite, name it, and keep the step for `orrery replay`");
    v("probe", probe,
      "before the first step, show what each layer does to variances, forward and backward, beside what papers "
      "predict");
    v("profile", profile, "print a table of the operations at the end");
  }
};

// Maps nanoGPT's setting names to those of orrery.
std::span<const ForeignKey> nanogpt_keys();

// Returns the preset of the last "model" among the assignments {key, value}, changed by all of them
// in order. Aliases, also inside specs, count as the settings that they stand for.
TrainSettings make_settings(const std::vector<std::pair<std::string, std::string>>& assignments);

// Completes every spec, as checkpoints record it: pointwise(relu) gets alpha 1 and length
// keys_visible, so that later defaults do not change it.
TrainSettings resolved(TrainSettings settings);
// Resets what concerns resuming: settings that begin the run, and so repeat it.
TrainSettings from_the_beginning(TrainSettings settings);
// Returns a setting's value as list_settings prints it; empty if the model and task lack it.
std::string setting_of(const TrainSettings& settings, const std::string& key);

Dtype parse_dtype(const std::string& name);  // value of the setting `dtype`

// Returns the model that the settings describe, not initialized.
std::unique_ptr<nn::Module> make_model(const TrainSettings& settings);

}  // namespace orrery::models
