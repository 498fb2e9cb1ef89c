#include "models/study/runs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/base/version.h"
#include "models/json.h"
#include "models/study/statistics.h"
#include "models/tasks/base/task.h"

namespace orrery::models {
namespace {

// What changes no number of a run, or is told by the data's fingerprint.
const std::set<std::string, std::less<>> without_effect = {
    "out",   "threads", "checkpoint_every", "keep_checkpoints", "keep_best", "save_optimizer", "resume",     "profile",
    "probe", "data",    "from_previous",    "other_text",       "graph",     "nan_guard",      "peak_tflops"};

struct Row {
  int64_t step;
  double loss, gradient_norm;
};

// Where the norm of the gradients leaves what it was, if the loss never came back from there.
std::optional<int64_t> divergence(const std::vector<Row>& rows) {
  for (const Row& row : rows)
    if (!std::isfinite(row.loss) || !std::isfinite(row.gradient_norm)) return row.step;
  constexpr size_t least = 20;
  constexpr double factor = 1000;
  if (rows.size() < least) return {};
  const size_t tenth = rows.size() / 10;
  std::vector<double> losses, norms;
  for (const Row& row : rows) losses.push_back(row.loss);
  const std::span<const double> all(losses);
  if (spread_of(all.last(tenth)).mean < spread_of(all.first(tenth)).mean) return {};
  double smallest = INFINITY;  // spares most medians
  for (const Row& row : rows) {
    if (norms.size() >= least / 2 && row.gradient_norm > factor * smallest &&
        row.gradient_norm > factor * median_of(norms))
      return row.step;
    norms.push_back(row.gradient_norm);
    smallest = std::min(smallest, row.gradient_norm);
  }
  return {};
}

}  // namespace

std::string run_key(const TrainSettings& settings) {
  TrainSettings complete = resolved(from_the_beginning(settings));
  const TaskOptions options{.batch = complete.batch,
                            .micro_batches = complete.gradient_accumulation_steps,
                            .seed = static_cast<uint64_t>(complete.seed)};
  const auto task = tasks().at(complete.task).make(complete.task_settings, complete.model_settings, options);
  const Fingerprint data = task->fingerprint();
  std::string all = text("data ", data.bytes, " ", data.sha256, "\n");
  for (const auto& [key, value] : list_settings(complete))
    if (!without_effect.contains(key)) all += key + "=" + value + "\n";
  return sha256(std::as_bytes(std::span(all))).substr(0, 16);
}

std::string name(Outcome::Kind kind) {
  return kind == Outcome::Kind::done ? "done" : kind == Outcome::Kind::diverged ? "diverged" : "failed";
}

Outcome outcome_of(std::span<const LogRow> log) {
  Outcome outcome;
  outcome.kind = Outcome::Kind::done, outcome.version = build().version;
  std::vector<Row> rows;
  for (const LogRow& row : log) {
    const auto number = [&](const char* key) {
      const auto found = row.figures.find(key);
      return found == row.figures.end() ? NAN : found->second;
    };
    outcome.step = std::max(outcome.step, row.step);
    if (row.figures.contains("loss")) {
      rows.push_back({row.step, number("loss"), number("gradient_norm")});
      outcome.seconds += std::isfinite(number("milliseconds")) ? number("milliseconds") / 1000 : 0;
    } else if (row.figures.contains("validation_loss")) {
      outcome.figures.clear();
      for (const auto& [key, value] : row.figures)
        if (std::isfinite(value)) outcome.figures[key] = value;
    }
  }
  if (const auto step = divergence(rows)) {
    outcome.kind = Outcome::Kind::diverged, outcome.step = *step;
    const auto at = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.step == *step; });
    outcome.why = text("diverged at step ", *step, ", where the gradients' norm was ", print_number(at->gradient_norm));
  } else if (!outcome.figures.contains("validation_loss")) {
    outcome.kind = Outcome::Kind::failed;
    outcome.why = text("it ended after step ", outcome.step, " without a validation");
  }
  return outcome;
}

void write_outcome(const std::string& path, const Outcome& o) {
  Json json = {{"outcome", name(o.kind)}, {"step", o.step}, {"seconds", o.seconds}, {"version", o.version}};
  if (!o.why.empty()) json["why"] = o.why;
  json["figures"] = o.figures;
  write_file_atomically(path, json.dump(1) + "\n");
}

std::optional<Outcome> read_outcome(const std::string& path) {
  if (!file_exists(path)) return {};
  const Json json = parse_json(read_file(path, largest_json), path);
  const std::string kind = text_member(json, "outcome", path);
  Outcome o;
  o.step = whole_number_member(json, "step", path), o.seconds = number_member(json, "seconds", path);
  check(kind == "done" || kind == "diverged" || kind == "failed", path, ": 'outcome' is ", kind,
        "; it must be done, diverged or failed");
  o.kind = kind == "done" ? Outcome::Kind::done : kind == "diverged" ? Outcome::Kind::diverged : Outcome::Kind::failed;
  o.version = text_member(json, "version", path);
  if (json.contains("why")) o.why = text_member(json, "why", path);
  for (const auto& [key, value] : member(json, "figures", path).items()) {
    check(value.is_number(), path, ": the figure '", key, "' must be a number");
    o.figures[key] = value.get<double>();
  }
  return o;
}

}  // namespace orrery::models
