// All settings that determine a run of `train`: the model's and the training's, in one flat list.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/settings/config.h"
#include "models/settings/any_settings.h"
#include "nn/base/module.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {

constexpr double max_seed = 9e18;  // a little below 2^63, so that seed + 1 is valid

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
  std::string out = "runs/latest", init_from, lr_scales, weight_decay_rules, device = "cpu", dtype = "f32",
              precision = "highest", products = "auto";
  int64_t steps = 2000, batch_size = 12, gradient_accumulation_steps = 1, gradient_parts = 1;
  double learning_rate = 1e-3, min_learning_rate = 1e-4;
  int64_t warmup_steps = 100, lr_decay_iters = 0;
  std::string warmup_form = "linear";
  Spec schedule = parse_spec("cosine");
  Spec optimizer = parse_spec("adamw(beta1=0.9, beta2=0.99, weight_decay=0.1)");
  LossWeights losses;
  double grad_clip = 1;
  int64_t seed = 1337, threads = 0;
  int64_t evaluate_every = 500, checkpoint_every = 500, keep_checkpoints = 2, metrics_every = 100;
  std::string metrics = "default";
  double peak_tflops = 0;
  bool keep_best = true, save_optimizer = true, overfit_one_batch = false, cuda_graph = false, resume = false,
       resume_from_previous = false, allow_new_text = false, nan_guard = false, signal_propagation = false,
       profile = false;

  // `model`: preset or class; `task` empty: the model's default. Throws for unknown names.
  explicit TrainSettings(const std::string& model = "gpt-char-small", const std::string& task = "");

  template <class V>
  void visit(V& v) {
    v.section("model");
    v.common("model", model, "preset or class from `orrery list model`; the settings depend on the model and the task");
    v.section("data");
    v("task", task, "training task from `orrery list task`; if not given, that of the model");
    v.section("model");
    model_settings.visit(v);
    v.section("data");
    task_settings.visit(v);
    v.section("run");
    v.common("out", out, "folder for checkpoints, metrics and settings");
    v.common("init_from", init_from,
             "run or checkpoint to start from; gives model, task, weights and tokenizer; if not given, random initial "
             "weights");
    v.section("steps");
    v.common("steps", steps, "total number of updates; includes those before a resume", between(1, 1e9));
    v.common("batch_size|batch", batch_size,
             "sequences or images per update; with gradient_accumulation_steps above 1, per micro-batch",
             between(1, 16384));
    v("gradient_accumulation_steps|accumulate", gradient_accumulation_steps, "micro-batches per update",
      between(1, 4096));
    v("gradient_parts", gradient_parts,
      "parts of a step's gradient, which are added by a fixed tree; at most gradient_accumulation_steps",
      between(1, 4096));
    v.common("learning_rate|rate", learning_rate, "peak learning rate", above(0, 1e30));
    v("min_learning_rate|final_rate", min_learning_rate,
      "final learning rate of a decaying schedule, reached one step after the last step", between(0, 1000));
    v.common("warmup_steps|warm_up", warmup_steps, "steps in which the learning rate rises to its peak; 0: no warm-up",
             between(0, 1e9));
    v("warmup_form|warm_up_form", warmup_form,
      "shape of the warm-up: linear, or quadratic, which is steep at first and flat at the peak",
      one_of({"linear", "quadratic"}));
    v("|lr_decay_iters", lr_decay_iters, "setting of nanoGPT; must equal `steps`", between(0, 1e9));
    v.common("schedule", schedule,
             "learning rate schedule from `orrery list schedule`; such as warmup_stable_decay(...)",
             name_of_family("schedule"));
    v.common("optimizer", optimizer, "optimizer from `orrery list optimizer`; such as adamw(beta2=0.95)",
             name_of_family("optimizer"));
    v("lr_scales|rate_factors", lr_scales,
      "learning rate factors by parameter path, PATTERN=FACTOR, ...; the last match counts: '*.bias=2'");
    v("weight_decay_rules|decays", weight_decay_rules,
      "turn weight decay on or off by parameter path, PATTERN=yes|no, ...; if not given, matrices only");
    v.group("losses", losses);
    v("grad_clip|clip", grad_clip, "maximum global norm of the gradients; 0: no clipping", zero_or(tiny, 1e12));
    v.common("seed", seed, "random seed; equal seeds give bit-identical runs", between(0, max_seed));
    v.section("machine");
    v.common("threads", threads, "CPU threads (0: OMP_NUM_THREADS, else all cores); results do not depend on it",
             between(0, 1024));
    v.common("device", device, "device to train on: cpu or cuda", one_of({"cpu", "cuda"}));
    v.common("dtype", dtype, "f32, f64 or bf16: dtype of weights and activations; bf16 with f32 master weights",
             one_of({"f32|float32", "f64|float64", "bf16|bfloat16"}));
    v("precision", precision,
      "precision of f32 matrix products on a GPU: highest; high: split into bf16 terms; medium: bf16",
      one_of({"highest", "high", "medium"}));
    v("products", products, "CPU kernels for matrix products: auto (the fastest of orrery's), one by name, or openblas",
      one_of({"auto", "avx2", "avx512", "avx512_bf16", "openblas"}));
    v("cuda_graph|graph", cuda_graph,
      "with device=cuda: capture a step as a CUDA graph and replay it; speeds up small models most");
    v.section("run");
    v.common("evaluate_every", evaluate_every, "steps between validations; 0: at the end only", between(0, 1e9));
    v("checkpoint_every", checkpoint_every, "steps between checkpoints; 0: at the end only", between(0, 1e9));
    v.section("log");
    v("metrics|figures", metrics,
      "logged metrics of model components: default, all, none, or names from `orrery list metrics`: a,b",
      with_aliases({"default|usual"}));
    v("metrics_every|figures_every", metrics_every, "steps between two rows of the metrics in `metrics`; 0: never",
      between(0, 1e9));
    v("peak_tflops", peak_tflops,
      "peak TFLOPS of the machine, for the fraction in use (MFU); 0: the GPU's, if its type is known",
      zero_or(1e-6, 1e6));
    v.section("run");
    v("keep_checkpoints|keep", keep_checkpoints, "number of checkpoints to keep; older ones are removed; 0: keep all",
      between(0, 1e6));
    v("keep_best", keep_best, "also write a checkpoint at each new lowest validation loss, and keep the best one");
    v("save_optimizer", save_optimizer,
      "save the optimizer state in checkpoints; no: smaller ones that cannot be resumed");
    v.section("checks");
    v("overfit_one_batch", overfit_one_batch,
      "train on the first batch only, as a check: the loss must fall to nearly 0");
    v.section("run");
    v.common("resume", resume,
             "continue a run: yes (that in `out`) or its folder; its own settings hold, except those given");
    v("resume_from_previous|from_previous", resume_from_previous,
      "with resume: if the last checkpoint is damaged, rename it to step_....damaged and use the previous");
    v("allow_new_text|other_text", allow_new_text, "with resume: allow other data than the run was trained on so far");
    v.section("checks");
    v("nan_guard", nan_guard,
      "stop at the first non-finite value, report its source, and save the step for `orrery replay`");
    v("signal_propagation|probe", signal_propagation,
      "before step 1, print mean squares of activations and gradients per layer, with predicted values");
    v("profile", profile, "print a table of the operations and their times at the end");
  }
};

// Names that are not settings of a run, with what to use: those of other programs, mostly nanoGPT, and
// `edits` of other commands.
std::span<const ForeignKey> foreign_keys();

// Returns the preset of the last "model" among the assignments {key, value}, changed by all of them
// in order. Aliases, also inside specs, count as the settings that they stand for.
TrainSettings make_settings(const Assignments& assignments);

// Completes every spec and mask, as checkpoints record it: pointwise(relu) gets alpha 1 and length
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
