#include "models/training/run_plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "engine/matmul/matmul.h"
#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "engine/types/sizes.h"
#include "engine/types/usage_error.h"
#include "models/settings/settings_file.h"
#include "models/training/parameter_rules.h"
#include "models/training/resume.h"
#include "models/training/run_folder.h"
#include "models/training/signal_propagation.h"
#include "nn/schedules/base/schedule.h"

namespace orrery::models {
namespace {

constexpr const char* part_names[] = {"embedding", "attention", "feed-forward", "norm", "head", "other"};

// Returns the part of a model that one component of a path names; empty: it names none.
std::string part_named(std::string_view component) {
  const auto has = [&](std::string_view word) { return component.find(word) != component.npos; };
  if (component.ends_with("norm")) return "norm";
  if (has("attention")) return "attention";
  if (has("feed_forward")) return "feed-forward";
  if (has("embedding") || component == "position" || component == "class_token") return "embedding";
  return component == "head" ? "head" : "";
}

// Returns the part of a parameter: that of the outermost component that names one.
std::string part_of(std::string_view path) {
  while (!path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    if (const std::string part = part_named(path.substr(0, end)); !part.empty()) return part;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return "other";
}

std::map<std::string, int64_t> count_parts(const TrainSettings& settings) {
  const nn::ParameterCount untouched(max_elements);
  const auto model = make_model(settings);
  std::map<std::string, int64_t> parts;
  for (const nn::NamedParameter& each : nn::parameters_of(*model))
    parts[part_of(each.path)] += each.parameter->value.numel();
  return parts;
}

// Every layer beyond the first equals the second, as in count_parameters.
std::vector<std::pair<std::string, int64_t>> parameters_by_part(const TrainSettings& settings) try {
  const int64_t layers = layers_of(settings);
  auto one = count_parts(settings_with_layers(settings, 1));
  auto two = layers > 1 ? count_parts(settings_with_layers(settings, 2)) : one;
  std::vector<std::pair<std::string, int64_t>> all;
  for (const char* part : part_names)
    if (const int64_t count = one[part] + (two[part] - one[part]) * (layers - 1); count > 0)
      all.emplace_back(part, count);
  return all;
} catch (const Error&) {  // the memory plan reports that the model is too large
  return {};
}

bool ends_above_peak(const TrainSettings& s) {
  return s.min_learning_rate > s.learning_rate && schedule_of(s)->learning_rate(s.steps) > s.learning_rate;
}

void check_end_of_schedule(const TrainSettings& s) {
  check(!ends_above_peak(s), "train: schedule ", print(s.schedule), " ends at min_learning_rate ",
        print_number(s.min_learning_rate), ", above its peak, learning_rate ", print_number(s.learning_rate),
        "; use --min_learning_rate=", print_number(s.learning_rate / 10), " or --schedule=constant");
}

void check_no_conflict(const TrainSettings& s) {
  check(!s.cuda_graph || s.device == "cuda",
        "train: --cuda_graph=yes needs a GPU; add --device=cuda, or leave --cuda_graph out");
  check(s.resume || !(s.resume_from_previous || s.allow_new_text),
        "train: --resume_from_previous and --allow_new_text apply only to a resumed run; add --resume=yes, or leave "
        "them out");
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  check(s.steps <= most / s.gradient_accumulation_steps, "train: steps (", s.steps,
        ") times gradient_accumulation_steps (", s.gradient_accumulation_steps, ") must be at most ", most,
        "; lower one of the two");
  check(s.gradient_parts <= s.gradient_accumulation_steps, "train: gradient_parts (", s.gradient_parts,
        ") must be at most gradient_accumulation_steps (", s.gradient_accumulation_steps,
        "), because a part has at least one micro-batch; use --gradient_parts=", s.gradient_accumulation_steps,
        " or --gradient_accumulation_steps=", s.gradient_parts);
  check(
      !s.nan_guard || !s.cuda_graph,
      "train: --nan_guard=yes checks each operation, but a replayed step runs none separately; leave --cuda_graph out");
  check(!s.nan_guard || !s.profile,
        "train: --nan_guard=yes would distort the times of --profile=yes; leave one of them out");
  if (!s.resume) check_end_of_schedule(s);
  check(!s.cuda_graph || !s.profile,
        "train: --profile=yes times each operation, but a replayed step runs none separately; leave --cuda_graph out");
}

// Throws if the model does not fit to the checkpoint or to rules about its parameters. The model is
// allocated, but touched only if there is a checkpoint.
void check_model(const TrainSettings& settings, const RunStart& start, const Task& task) {
  const nn::ParameterCount untouched(max_elements);
  const auto model = make_model(settings);
  if (!start.checkpoint.empty()) {
    nn::convert(*model, parse_dtype(settings.dtype));
    load_weights(start.checkpoint, *model, task.fresh_modules());
  }
  apply_parameter_rules(settings, *model);
}

}  // namespace

std::unique_ptr<nn::Schedule> schedule_of(const TrainSettings& s) {
  return nn::make_schedule(s.schedule, {.learning_rate = s.learning_rate,
                                        .min_learning_rate = s.min_learning_rate,
                                        .warmup_steps = s.warmup_steps,
                                        .steps = s.steps,
                                        .warmup_form = s.warmup_form});
}

void check_settings(const TrainSettings& s) {
  check_utf8_settings("train", list_settings(s));
  check_available(parse_device(s.device));
  as_usage([&] { check_no_conflict(s); });
}

void check_out(const TrainSettings& s) {
  check(s.resume || !holds_checkpoints(s.out), "train: ", s.out,
        " already holds a run; choose another --out, or resume it: ", resume_command(s.out));
  if (!s.resume) check_free(s.out);
  if (!s.resume && s.signal_propagation) check_free_for_propagation(s.out);
}

void use_machine(const TrainSettings& s) {
  set_product_precision(parse_product_precision(s.precision));
  use_product_kernels(s.products);
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
}

RunStart::RunStart(const TrainSettings& settings, std::string resumed_checkpoint, Ranks* ranks)
    : resumed(std::move(resumed_checkpoint)) {
  std::string content;  // of state.json
  if (!ranks || ranks->is_first()) {
    check(!settings.resume || !resumed.empty(), "train: there is no checkpoint to resume in ", settings.out,
          "; leave --resume out to start a new run");
    checkpoint = !resumed.empty() || settings.init_from.empty() ? resumed : checkpoint_at(settings.init_from);
    if (!checkpoint.empty()) content = state_text(checkpoint);
  }
  if (ranks)
    for (std::string* const each : {&resumed, &checkpoint, &content}) *each = ranks->meet(*each)[0];
  if (checkpoint.empty()) return;
  state = parse_state(content, checkpoint), trained_on = training_data(state);
  check(resumed.empty() || has_optimizer(state) || state.step == 0, "train: ", resumed,
        " has no optimizer state (save_optimizer=no), so the run cannot be resumed; start a new run from its weights "
        "with --init_from=",
        resumed);
  if (resumed.empty()) trained_on = as_of_init_from(std::move(trained_on));
}

std::unique_ptr<Task> make_task(TrainSettings& s, const RunStart& start, const Ranks& ranks) {
  const TaskOptions options{.batch_size = s.batch_size,
                            .micro_batches = s.gradient_accumulation_steps,
                            .own_micro_batches = micro_batches_of(ranks.rank(), ranks.count(), s.gradient_parts,
                                                                  s.gradient_accumulation_steps),
                            .seed = static_cast<uint64_t>(s.seed),
                            .tokenizer = start.state.tokenizer,
                            .trained_on = start.trained_on,
                            .purpose = !start.resumed.empty()     ? Purpose::resume
                                       : start.checkpoint.empty() ? Purpose::train
                                                                  : Purpose::init_from,
                            .device = parse_device(s.device)};
  std::unique_ptr<Task> task = tasks().at(s.task).make(s.task_settings, s.model_settings, options);
  check(!s.cuda_graph || !task->has_dynamic_shapes() || s.gradient_accumulation_steps == 1,
        "train: --cuda_graph=yes captures a step per combination of batch shapes, and the batches of task=", s.task,
        " vary in shape; use gradient_accumulation_steps=1 with larger batches instead of ",
        s.gradient_accumulation_steps, ", or leave --cuda_graph out");
  if (!start.resumed.empty()) {
    check_same_run(s, start.state, *task);
    // A run that was begun with such an end, by an older version, still resumes as it is.
    if (!ends_above_peak(make_settings(start.state.settings))) as_usage([&] { check_end_of_schedule(s); });
  }
  check(start.resumed.empty() || start.state.step < s.steps || !has_new_data(s, start.state, *task), "train: steps ",
        s.steps, ", but the run in ", s.out, " has done ", start.state.step,
        ", so it would not train on the other data of --allow_new_text=yes; raise --steps, or evaluate it on them with "
        "orrery evaluate and --validation_data=PATH");
  check(!s.cuda_graph || task->stream_context() == 0,
        "train: --cuda_graph=yes replays equal steps, but the stream state grows from step to step; leave --cuda_graph "
        "out");
  return task;
}

RunPlan plan_run(const TrainSettings& settings) {
  check_settings(settings);
  use_machine(settings);
  schedule_of(settings);
  RunPlan plan{settings};
  try {
    check_usable(settings.out);
    check_out(settings);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    plan.problem = error.what();
  }
  const RunStart start(settings,
                       settings.resume ? checkpoint_to_resume(settings.out, settings.resume_from_previous) : "");
  plan.task = make_task(plan.settings, start);
  plan.steps = std::max<int64_t>(0, settings.steps - (settings.resume ? start.state.step : 0));
  plan.parameters = parameters_by_part(plan.settings);
  std::string too_large;
  try {
    plan.memory = plan_memory(plan.settings, *plan.task);
    check_duration(plan.steps, plan.memory.seconds_of_step);
    check_model(plan.settings, start, *plan.task);
  } catch (const MemoryError& error) {
    plan.memory = error.plan, too_large = error.what();
  } catch (const DurationError& error) {
    too_large = error.what();
  }
  if (plan.problem.empty()) plan.problem = too_large;
  return plan;
}

}  // namespace orrery::models
