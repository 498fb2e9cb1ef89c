#include "models/study/runs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/system/files.h"
#include "engine/system/hash.h"
#include "engine/system/version.h"
#include "models/catalogue/plugins.h"
#include "models/formats/json.h"
#include "models/model.h"
#include "models/source_hash.h"
#include "models/study/id_names.h"
#include "models/study/statistics.h"
#include "models/tasks/base/task.h"
#include "models/training/run_folder.h"

namespace orrery::models {
namespace {

// Settings that do not change a run's numbers, or that the data's fingerprint covers.
const std::set<std::string, std::less<>> ignored_settings = {"out",
                                                             "threads",
                                                             "checkpoint_every",
                                                             "keep_checkpoints",
                                                             "keep_best",
                                                             "save_optimizer",
                                                             "resume",
                                                             "resume_from_previous",
                                                             "allow_new_text",
                                                             "profile",
                                                             "signal_propagation",
                                                             "data",
                                                             "text_field",
                                                             "cuda_graph",
                                                             "nan_guard",
                                                             "peak_tflops"};

// Settings that are newer than the first ids, and the value that earlier runs had: with it, a
// setting is not in the id, so pools of earlier versions stay in use. `model` empty: any.
struct NewerSetting {
  std::string_view model, key, value;
};
constexpr NewerSetting newer[] = {{"", "products", "auto"},
                                  {"", "gradient_parts", "1"},
                                  {"gpt", "mask", "causal"},
                                  {"stream", "mask", "causal"},
                                  {"vit", "mask", "full"},
                                  {"encoder_decoder", "mask", "full"},
                                  {"encoder_decoder", "decoder_mask", "causal"},
                                  {"", "source_field", "source"},
                                  {"", "target_field", "target"},
                                  {"stream", "attention_bias", "same"},
                                  {"stream", "feed_forward_bias", "same"},
                                  {"resnet", "shortcut", "projection"}};

bool is_in_id(const std::string& model, const std::string& key, const std::string& value) {
  return !ignored_settings.contains(key) &&
         std::none_of(std::begin(newer), std::end(newer), [&](const NewerSetting& n) {
           return n.key == key && n.value == value && (n.model.empty() || n.model == model);
         });
}

struct Row {
  int64_t step;
  double loss, gradient_norm;
};

struct Divergence {
  int64_t step;
  std::string why;
};
Divergence gradient_divergence(const Row& row) {
  return {row.step,
          text("diverged at step ", row.step, ", where the gradient norm was ", print_number(row.gradient_norm))};
}

double mean_loss(std::span<const Row> rows) {
  std::vector<double> losses;
  for (const Row& row : rows) losses.push_back(row.loss);
  return spread_of(losses).mean;
}

// Returns the first row whose gradient norm is more than `factor` times the median before it.
const Row* outlier(std::span<const Row> rows) {
  constexpr size_t min_rows = 20;
  constexpr double factor = 1000;
  if (rows.size() < min_rows) return nullptr;
  std::vector<double> norms;
  double smallest = INFINITY;  // avoids computing most medians
  for (const Row& row : rows) {
    if (norms.size() >= min_rows / 2 && row.gradient_norm > factor * smallest &&
        row.gradient_norm > factor * median_of(norms))
      return &row;
    norms.push_back(row.gradient_norm);
    smallest = std::min(smallest, row.gradient_norm);
  }
  return nullptr;
}

// Applies the criteria in runs.h. `validation_loss`: the last validation's loss.
std::optional<Divergence> divergence(std::span<const Row> rows, double validation_loss) {
  const auto first_of = [&](const auto& holds) {
    const auto found = std::find_if(rows.begin(), rows.end(), holds);
    return found == rows.end() ? nullptr : &*found;
  };
  if (const Row* const row = first_of([](const Row& r) { return !std::isfinite(r.loss + r.gradient_norm); }))
    return gradient_divergence(*row);
  if (rows.empty()) return {};
  constexpr double huge = 1e8, worse = 0.5;
  const size_t tenth = std::max<size_t>(1, rows.size() / 10);
  const double begin = rows[0].loss, first = mean_loss(rows.first(tenth)), last = mean_loss(rows.last(tenth));
  if (const Row* const row = first_of([](const Row& r) { return r.gradient_norm > huge; })) {
    std::vector<double> norms;
    for (const Row& each : rows.last(tenth)) norms.push_back(each.gradient_norm);
    if (rows.size() > 1 && (last >= std::min(begin, first) || median_of(norms) > huge))
      return gradient_divergence(*row);
  }
  if (last > begin + worse && validation_loss > begin + worse) {
    const Row* const row = first_of([&](const Row& r) { return r.loss > begin + worse; });
    return Divergence{row->step,
                      text("diverged at step ", row->step, ", where the loss was ", print_number(row->loss),
                           "; the run ended with loss ", print_number(last), " and began with ", print_number(begin))};
  }
  if (const Row* const row = last < first ? nullptr : outlier(rows)) return gradient_divergence(*row);
  return {};
}

// Returns true if the run need not be trained again: it has an outcome, neither failed nor damaged.
bool is_usable(const std::string& path) {
  try {
    const std::optional<Outcome> outcome = read_outcome(path);
    return outcome && outcome->kind != Outcome::Kind::failed;
  } catch (const Error&) {
    return false;
  }
}

const std::string plug_in = "plug-in ";

struct RunInputs {
  TrainSettings settings;  // complete, including values that depend on the data
  std::map<std::string, Fingerprint> files;
  std::string tokenizer = {};  // as Task::tokenizer
};
RunInputs read_inputs(const TrainSettings& settings) {
  RunInputs run{resolved(from_the_beginning(settings)), {}};
  TrainSettings& s = run.settings;
  TaskOptions options{.batch_size = s.batch_size,
                      .micro_batches = s.gradient_accumulation_steps,
                      .seed = static_cast<uint64_t>(s.seed)};
  if (!s.init_from.empty()) {
    const std::string init_checkpoint = checkpoint_at(s.init_from);
    options.tokenizer = read_state(init_checkpoint).tokenizer;
    const std::string both = sha256_of_file(init_checkpoint + "/" + weights_name) + options.tokenizer;
    run.files["init_from"] = {both.size(), sha256(std::as_bytes(std::span(both)))};
  }
  const auto task = tasks().at(s.task).make(s.task_settings, s.model_settings, options);
  run.files.merge(task->extra_inputs());
  run.files["data"] = task->fingerprint();
  run.tokenizer = task->tokenizer();
  for (const Plugin& plugin : loaded_plugins())
    if (uses_plugin(s, plugin)) run.files[plug_in + plugin.path] = {0, plugin.sha256};
  return run;
}

std::string hash_of(const RunInputs& run, const std::string& data) {
  std::string all = data + "\n";
  const std::string model = named_model(run.settings.model).model_class.name;
  for (const auto& [key, value] : list_settings(run.settings)) {
    if (!is_in_id(model, key, value)) continue;
    const auto found = run.files.find(key);
    all += key_in_id(key) + "=" + (found == run.files.end() ? value_in_id(key, value) : found->second.sha256) + "\n";
  }
  for (const auto& [what, file] : run.files) {
    if (what.starts_with(plug_in)) all += plug_in + file.sha256 + "\n";
    if (what.ends_with(division_mark)) all += what + "=" + file.sha256 + "\n";
  }
  return sha256(std::as_bytes(std::span(all))).substr(0, 16);
}

}  // namespace

std::map<std::string, Fingerprint> input_fingerprints(const TrainSettings& settings) {
  return read_inputs(settings).files;
}

std::string run_hash(const TrainSettings& settings) { return identify_run(settings).hash; }

IdentifiedRun identify_run(const TrainSettings& settings) {
  const RunInputs run = read_inputs(settings);
  const Fingerprint& data = run.files.at("data");
  const CheckpointState first{.tokenizer = run.tokenizer, .settings = {}, .text = data, .extra_inputs = run.files};
  return {hash_of(run, text("data ", data.bytes, " ", data.sha256)), loss_meaning(run.settings, first)};
}

std::string hash_of_unreadable(const TrainSettings& settings, const std::string& why) {
  return hash_of({resolved(from_the_beginning(settings)), {}}, why);
}

bool is_run_id(std::string_view text) {
  constexpr size_t key_length = 16, hash_length = 12;
  const auto is_hexadecimal = [](std::string_view digits, size_t length) {
    return digits.size() == length && digits.find_first_not_of("0123456789abcdef") == digits.npos;
  };
  const size_t dash = std::min(text.find('-'), text.size());
  return is_hexadecimal(text.substr(0, dash), key_length) &&
         (dash == text.size() || is_hexadecimal(text.substr(dash + 1), hash_length));
}

std::string hash_of_id(const std::string& id) { return id.substr(0, id.find('-')); }

std::string program_version() { return text(build().version, " (sources ", source_hash, ")"); }

RunIds::RunIds(std::string pool, bool fresh) : pool_(std::move(pool)) {
  if (fresh || !folder_exists(pool_)) return;
  for (const std::string& path : files_in(pool_)) {
    const std::filesystem::path file(path);
    const std::string id = file.stem().string();
    if (file.extension() == ".json" && !id.ends_with(text("-", source_hash))) others_[hash_of_id(id)].push_back(id);
  }
}

std::string RunIds::of(const std::string& hash) const {
  const auto file = [&](const std::string& id) { return text(pool_, "/", id, ".json"); };
  const std::string own = text(hash, "-", source_hash);
  const auto others = others_.find(hash);
  if (others == others_.end() || file_exists(file(own))) return own;
  std::optional<std::pair<std::filesystem::file_time_type, std::string>> newest;
  for (const std::string& id : others->second) {
    if (!is_usable(file(id))) continue;
    std::error_code gone;  // then its time is the earliest
    const auto written = std::pair(std::filesystem::last_write_time(file(id), gone), id);
    if (!newest || written > *newest) newest = written;
  }
  return newest ? newest->second : own;
}

std::string name(Outcome::Kind kind) {
  return kind == Outcome::Kind::done ? "done" : kind == Outcome::Kind::diverged ? "diverged" : "failed";
}

Outcome outcome_of(const RunLog& log) {
  Outcome outcome;
  outcome.kind = Outcome::Kind::done, outcome.version = program_version();
  std::vector<Row> rows;
  std::vector<double> milliseconds;
  log.each([&](const LogRow& row) {
    const auto number = [&](const char* key) {
      const auto found = row.metrics.find(key);
      return found == row.metrics.end() ? NAN : found->second;
    };
    outcome.step = std::max(outcome.step, row.step);
    if (row.metrics.contains("loss")) {
      rows.push_back({row.step, number("loss"), number("gradient_norm")});
      if (std::isfinite(number("step_ms"))) milliseconds.push_back(number("step_ms"));
    } else if (row.metrics.contains("validation_loss")) {
      outcome.metrics.clear();
      for (const auto& [key, value] : row.metrics)
        if (std::isfinite(value)) outcome.metrics[key] = value;
    }
  });
  if (const size_t steps = milliseconds.size(); steps > 0) {
    const auto fast = milliseconds.begin() + static_cast<std::ptrdiff_t>(steps / 10);
    std::nth_element(milliseconds.begin(), fast, milliseconds.end());
    outcome.seconds = static_cast<double>(steps) * *fast / 1000;
  }
  const auto validation_loss = outcome.metrics.find("validation_loss");
  const bool complete = validation_loss != outcome.metrics.end();
  if (const auto lost = divergence(rows, complete ? validation_loss->second : NAN)) {
    outcome.kind = Outcome::Kind::diverged, outcome.step = lost->step, outcome.why = lost->why;
  } else if (!complete) {
    outcome.kind = Outcome::Kind::failed;
    outcome.why = text("the run ended after step ", outcome.step, " without a validation");
  }
  return outcome;
}

void check_log(const std::string& run_folder, const Outcome& outcome) {
  const RunLog log = RunLog::of_run(run_folder);
  int64_t steps = 0;  // consecutive, from 1
  log.each([&](const LogRow& row) { steps += row.step == steps + 1 && row.metrics.contains("gradient_norm"); });
  const bool diverged = outcome.kind == Outcome::Kind::diverged;  // possibly in a step that was not logged
  check(diverged ? steps >= outcome.step - 1 : steps == outcome.step, run_folder, "/metrics.jsonl has ", steps,
        " consecutive steps from 1, but the run ended at step ", outcome.step);
  check(outcome_of(log).metrics == outcome.metrics, run_folder,
        "/metrics.jsonl differs from the run's outcome in the last validation");
}

bool is_complete(const std::string& run_folder, int64_t steps) {
  int64_t last = 0;  // step of the last validation
  RunLog::of_run(run_folder).each([&](const LogRow& row) {
    if (row.metrics.contains("validation_loss")) last = row.step;
  });
  return last == steps;
}

void write_outcome(const std::string& path, const Outcome& o) {
  Json json = {{"outcome", name(o.kind)}, {"step", o.step}, {"seconds", o.seconds}, {"version", o.version}};
  if (!o.why.empty()) json["why"] = o.why;
  json["metrics"] = o.metrics;
  add_seal(json);
  write_file_atomically(path, json_text(json, 1) + "\n");
}

std::optional<Outcome> read_outcome(const std::string& path) {
  if (!file_exists(path)) return {};
  Json json = parse_json(read_file(path, max_json_bytes), path);
  if (json.contains("sha256")) take_seal(json, path);  // older versions wrote no seal
  const std::string kind = text_member(json, "outcome", path);
  Outcome o;
  o.step = whole_number_member(json, "step", path), o.seconds = number_member(json, "seconds", path);
  check(kind == "done" || kind == "diverged" || kind == "failed", path, ": 'outcome' is ", kind,
        "; it must be done, diverged or failed");
  o.kind = kind == "done" ? Outcome::Kind::done : kind == "diverged" ? Outcome::Kind::diverged : Outcome::Kind::failed;
  o.version = text_member(json, "version", path);
  if (json.contains("why")) o.why = text_member(json, "why", path);
  const char* const metrics_key = json.contains("figures") ? "figures" : "metrics";  // the former name, or today's
  for (const auto& [key, value] : member(json, metrics_key, path).items()) {
    check(value.is_number(), path, ": the metric '", key, "' must be a number");
    o.metrics[key] = value.get<double>();
  }
  check(o.kind != Outcome::Kind::done || o.metrics.contains("validation_loss"), path,
        ": the metric 'validation_loss' is missing; a run with outcome done must have it");
  return o;
}

}  // namespace orrery::models
