// orrery sweep: trains all combinations of settings and compares them seed by seed.
#include <algorithm>
#include <exception>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/run_table.h"
#include "examples/orrery/commands/train_settings.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/csv.h"
#include "models/formats/json.h"
#include "models/formats/shell_words.h"
#include "models/reports/report_sweep.h"
#include "models/settings/settings_file.h"
#include "models/study/combinations.h"
#include "models/study/pool.h"
#include "models/study/statistics.h"
#include "models/training/loss_settings.h"

namespace orrery::program {
namespace {

using models::Outcome;

constexpr const char* sweep_columns = "row,seeds,mean,deviation,difference,low,high,diverged,failed\n";

// Files that a sweep writes (models/formats/output_file.h).
const Outputs& sweep_outputs() {
  static const Outputs all = {
      "sweep",
      {{"runs.csv", runs_csv_kind()},
       {"table.csv", models::marked_kind("a table of a sweep", sweep_columns)},
       {"sweep.json", models::marked_kind("a description of a sweep", "{\n \"metric\": \"", "\n \"runs\": \"")}}};
  return all;
}

struct SweepSettings {
  std::string out = "runs/sweep", runs = "runs/pool", baseline, metric = "validation_loss";
  int64_t jobs = 0;
  bool retrain = false, yes = false, json = false;

  template <class V>
  void visit(V& v) {
    v("out", out, "folder for runs.csv (per run) and table.csv (per combination); `orrery report` shows them");
    v("runs", runs, "folder of the runs that sweeps and studies share; each run is trained once");
    v("baseline|against", baseline, "reference row of the comparison, by its number or text; if not given, the first");
    v("metric", metric, "metric of the last validation to compare: validation_loss, bits_per_character, accuracy, ...");
    v("jobs", jobs, "runs in parallel (0: one per core, with one thread each)", between(0, 1024));
    v("retrain|fresh", retrain, "train all runs again");
    v("yes", yes, "allow more than 1,000 runs");
    v("json", json, json_help);
  }
};

struct Sweep {
  SweepSettings settings;
  std::string baseline;                       // the setting, with canonical keys, as rows have them
  RunRows all;                                // a row is a combination of all varied settings except the seed
  std::vector<models::LossMeaning> meanings;  // by run
  mutable std::map<std::string, bool> complete = {};  // by id of a diverged run: it did all its steps
};

// Rejects settings that the sweep controls: runs start new or resume by themselves, with an
// equal share of the cores.
void check_may_be_set(const std::string& key, const std::string& value) {
  check_usage(key != "threads", "sweep: --threads=", value,
              " cannot be set, because parallel runs share the cores; set their number with --jobs");
  const bool is_resume_setting = key == "resume" || key == "resume_from_previous" || key == "from_previous" ||
                                 key == "allow_new_text" || key == "other_text";
  check_usage(!is_resume_setting || value == "no" || value == "false", "sweep: --", key, "=", value,
              " cannot be set; the same command resumes an interrupted sweep");
}

// Returns an argument with the first value of its list; settings of the sweep itself have no lists.
std::string first_of_list(const std::string& word, const std::vector<Setting>& own) {
  const bool is_key = word.starts_with("--");
  const size_t equals = word.find('=');
  if (is_key && find_setting(own, word.substr(2, equals - 2))) return word;
  const size_t value = is_key && equals != word.npos ? equals + 1 : 0;
  return word.substr(0, value) + models::expand_braces(word.substr(value))[0];
}

Sweep read_sweep(const Arguments& arguments) {
  Sweep sweep;
  Arguments words = arguments;
  if (!words.empty() && !words[0].starts_with("--")) words[0] = "--config=" + words[0];
  const std::vector<Setting> own = settings_of(sweep.settings);
  // Model and task define the keys; a file or init_from may name them. Lists: the first values.
  Arguments first_values;
  for (const std::string& word : words)
    if (!word.starts_with("--resume"))
      first_values.push_back(first_of_list(word, own));  // check_may_be_set refuses resume
  models::TrainSettings known = known_train_settings("sweep", first_values);
  std::vector<Setting> all = settings_of(known);
  all.insert(all.end(), own.begin(), own.end());
  const ParsedArguments parsed = parse_arguments("sweep", words, all);
  check_usage(parsed.positional.empty(), "sweep: '", parsed.positional.empty() ? "" : parsed.positional[0],
              "' is not of the form --key=value; give a file of settings first, or with --config");
  Assignments given;  // by canonical names, so that all names of a setting give one list
  std::map<std::string, std::string> typed;
  for (const auto& [key, value] : parsed.assignments) {
    check_may_be_set(key, value);
    if (!find_setting(own, key)) {
      given.emplace_back(models::canonical_key(all, key, models::foreign_keys()), value);
      typed[given.back().first] = key;
      continue;
    }
    check_usage(value.find('}') == std::string::npos || value.find('{') > value.find('}'), "sweep: --", key, "=", value,
                " is a setting of the sweep itself and cannot vary; give one value, without braces");
    set_setting(std::span<const Setting>(own), "sweep", key, value);
  }
  models::check_utf8_settings("sweep", list_settings(sweep.settings));
  sweep.baseline = models::with_canonical_keys(sweep.settings.baseline, all, models::foreign_keys());
  const std::vector<std::string> varied = models::varied_keys(given);
  const std::vector<Assignments> combined = models::combinations(given);
  check_many_runs("sweep: the combinations are ", combined.size(), sweep.settings.yes);
  const models::RunIds ids(sweep.settings.runs, sweep.settings.retrain);
  std::exception_ptr unreadable;  // error of the first run whose data, for example, are missing
  bool any = false;
  DistinctSettings distinct;
  for (const Assignments& each : combined) {
    Arguments of_run;
    std::string label;
    for (const auto& [key, value] : each) {
      of_run.push_back("--" + typed.at(key) + "=" + value);  // errors name the setting as typed
      const bool shown = key != "seed" && std::find(varied.begin(), varied.end(), key) != varied.end();
      if (shown) label += (label.empty() ? "" : " ") + key + "=" + value;
    }
    if (label.empty()) label = "all";
    models::TrainSettings settings = read_train_settings("sweep", of_run);
    const std::string& same = distinct.add(settings, label);
    check_usage(same == label, "sweep: the rows '", same, "' and '", label,
                "' have the same settings; leave one of them out");
    std::string hash;
    try {
      models::IdentifiedRun run = models::identify_run(settings);
      hash = run.hash;
      sweep.meanings.push_back(std::move(run.meaning));
      any = true;
    } catch (const Error& error) {
      hash = models::hash_of_unreadable(settings, error.what());
      sweep.meanings.push_back({settings});
      if (!unreadable) unreadable = std::current_exception();
    }
    sweep.all.add(label, std::move(settings), ids.of(hash));
  }
  if (!any) std::rethrow_exception(unreadable);
  return sweep;
}

size_t reference_row(const Sweep& sweep) {
  const std::string& baseline = sweep.settings.baseline;
  if (baseline.empty()) return 0;
  std::vector<std::string> labels;
  for (size_t i = 0; i < sweep.all.rows.size(); ++i) {
    const std::string& label = sweep.all.rows[i].label;
    if (label == baseline || label == sweep.baseline || std::to_string(i + 1) == baseline) return i;
    labels.push_back(label);
  }
  fail_usage("sweep: there is no row '", baseline, "' for --baseline; rows are ", join(labels),
             ", or their numbers from 1");
}

// Reads the log of a diverged run once, since the table is redrawn after each run.
bool is_complete(const Sweep& sweep, const std::string& id) {
  const auto [known, is_new] = sweep.complete.try_emplace(id);
  for (const PooledRun& run : sweep.all.runs)
    if (is_new && run.id == id) known->second = models::is_complete(sweep.settings.runs + "/" + id, run.settings.steps);
  return known->second;
}

// Returns nothing for a failed run and, as in studies, for a diverged one that was stopped.
std::optional<double> metric_value(const Sweep& sweep, const Outcomes& outcomes, const std::string& id) {
  const auto found = outcomes.find(id);
  if (found == outcomes.end() || !found->second.metrics.contains(sweep.settings.metric)) return {};
  const Outcome::Kind kind = found->second.kind;
  if (kind == Outcome::Kind::failed || (kind == Outcome::Kind::diverged && !is_complete(sweep, id))) return {};
  return found->second.metrics.at(sweep.settings.metric);
}

// The compared metric must be in each run's last validation.
void check_metric(const std::string& metric, const Outcome& outcome) {
  if (outcome.kind != Outcome::Kind::done || outcome.metrics.contains(metric)) return;
  std::vector<std::string> names;
  for (const auto& [name, value] : outcome.metrics) names.push_back(name);
  const std::string meant = nearest(metric, names);
  fail_usage("sweep: validations of these runs do not log '", metric, "', given by --metric; ",
             meant.empty() ? "available: " + join(names) : "did you mean '" + meant + "'?");
}

// A row of the sweep's table. The difference from the reference row is that of equal seeds.
struct Summary {
  std::string label;
  int64_t seeds = 0, diverged = 0, failed = 0, missing = 0;  // counts of runs; seeds: with the metric
  std::optional<models::Spread> spread = {};                 // none: no run has the metric
  std::optional<double> difference = {};                     // none: the reference row, or no common seed
  std::optional<models::Interval> interval = {};             // of the difference
};
Summary summary_of(const Sweep& sweep, const RunRow& row, const RunRow& reference, const Outcomes& outcomes) {
  Summary all{row.label};
  std::vector<double> values, differences;
  for (const auto& [seed, id] : row.id_of_seed) {
    const auto found = outcomes.find(id);
    if (found == outcomes.end()) {
      ++all.missing;
      continue;
    }
    all.diverged += found->second.kind == Outcome::Kind::diverged;
    all.failed += found->second.kind == Outcome::Kind::failed;
    const std::optional<double> own = metric_value(sweep, outcomes, id);
    if (!own) continue;
    values.push_back(*own);
    const auto other = reference.id_of_seed.find(seed);
    if (other == reference.id_of_seed.end()) continue;
    if (const auto its = metric_value(sweep, outcomes, other->second)) differences.push_back(*own - *its);
  }
  all.seeds = static_cast<int64_t>(values.size());
  if (!values.empty()) all.spread = models::spread_of(values);
  if (&row == &reference) return all;
  if (!differences.empty()) all.difference = models::spread_of(differences).mean;
  all.interval = models::confidence_interval(differences);
  return all;
}

std::vector<Summary> summaries_of(const Sweep& sweep, const Outcomes& outcomes) {
  std::vector<Summary> all;
  const RunRow& reference = sweep.all.rows[reference_row(sweep)];
  for (const RunRow& row : sweep.all.rows) all.push_back(summary_of(sweep, row, reference, outcomes));
  return all;
}

std::string state_of(const Summary& s) {
  std::string all;
  const auto add = [&](int64_t count, const char* what) {
    if (count) all += (all.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  add(s.diverged, "diverged"), add(s.failed, "failed"), add(s.missing, "pending");
  return all;
}

Table table_of(const Sweep& sweep, const Outcomes& outcomes) {
  Table table({"", "", humanize(sweep.settings.metric), "seeds", "difference", "95 % interval", ""}, "rlrrrrl");
  size_t number = 0;
  for (const Summary& s : summaries_of(sweep, outcomes)) {
    const bool is_reference = number++ == reference_row(sweep);
    std::vector<std::string> cells = {std::to_string(number),          s.label, "-",        std::to_string(s.seeds),
                                      is_reference ? "reference" : "", "",      state_of(s)};
    if (s.spread) cells[2] = fixed(s.spread->mean, 4) + (s.seeds > 1 ? " +- " + fixed(s.spread->deviation, 4) : "");
    if (s.difference) cells[4] = signed_fixed(*s.difference, 4);
    if (s.interval) cells[5] = signed_fixed(s.interval->low, 4) + " " + signed_fixed(s.interval->high, 4);
    table.add(cells);
  }
  return table;
}

std::string table_csv(const Sweep& sweep, const Outcomes& outcomes) {
  std::string all = sweep_columns;
  for (const Summary& s : summaries_of(sweep, outcomes)) {
    std::vector<std::string> fields = {
        s.label, std::to_string(s.seeds), "", "", "", "", "", std::to_string(s.diverged), std::to_string(s.failed)};
    if (s.spread) fields[2] = print_number(s.spread->mean), fields[3] = print_number(s.spread->deviation);
    if (s.difference) fields[4] = print_number(*s.difference);
    if (s.interval) fields[5] = print_number(s.interval->low), fields[6] = print_number(s.interval->high);
    all += models::csv_line(fields);
  }
  return all;
}

Json rows_json(const Sweep& sweep, const Outcomes& outcomes) {
  Json rows = Json::array();
  for (const Summary& s : summaries_of(sweep, outcomes)) {
    Json row = {{"row", s.label}, {"seeds", s.seeds}};
    row["mean"] = s.spread ? json_number(s.spread->mean) : Json();
    row["deviation"] = s.spread ? json_number(s.spread->deviation) : Json();
    row["difference"] = s.difference ? json_number(*s.difference) : Json();
    row["low"] = s.interval ? json_number(s.interval->low) : Json();
    row["high"] = s.interval ? json_number(s.interval->high) : Json();
    row.update({{"diverged", s.diverged}, {"failed", s.failed}, {"pending", s.missing}});
    rows.push_back(std::move(row));
  }
  return rows;
}

Json runs_json(const Sweep& sweep, const Outcomes& outcomes) {
  Json runs = Json::array();
  for (const auto& [key, outcome] : outcomes) {
    const auto& [label, seed] = sweep.all.named.at(key);
    runs.push_back({{"run", sweep.settings.runs + "/" + key},
                    {"row", label},
                    {"seed", std::stoll(seed)},
                    {"outcome", name(outcome.kind)},
                    {"step", outcome.step},
                    {"seconds", json_number(outcome.seconds)},
                    {"metrics", json_numbers(outcome.metrics)},
                    {"why", outcome.why}});
  }
  return runs;
}

Json sweep_json(const Sweep& sweep, const Outcomes& outcomes) {
  const SweepSettings& s = sweep.settings;
  return {{"metric", s.metric},
          {"reference", sweep.all.rows[reference_row(sweep)].label},
          {"rows", rows_json(sweep, outcomes)},
          {"runs", runs_json(sweep, outcomes)},
          {"files", Json::array({s.out + "/table.csv", s.out + "/runs.csv"})}};
}

// Throws if the folder has other files, or results of runs that this sweep does not have.
void check_replaceable(const Sweep& sweep) {
  const std::string& out = sweep.settings.out;
  std::set<std::string> ids;  // without the hash of the program's sources
  for (const std::string& id : sweep.all.ids()) ids.insert(models::hash_of_id(id));
  for (const models::TabledRun& run : models::runs_in_tables(out))
    check(run.outcome == "failed" || ids.contains(models::hash_of_id(run.id)), "sweep: ", out,
          " has the results of another sweep (", run.row, " seed=", run.seed,
          ", with other settings or data); choose another --out, or remove ", out, "/runs.csv");
}

// Writes the inputs of a sweep's report besides the tables.
void write_sweep_file(const Sweep& sweep, Arguments arguments, const std::string& note) {
  arguments.insert(arguments.begin(), "sweep");
  models::Json json = {
      {"metric", sweep.settings.metric}, {"runs", sweep.settings.runs}, {"command", models::command_line(arguments)}};
  if (!note.empty()) json["note"] = note;
  sweep_outputs().write(sweep.settings.out, "sweep.json", models::shown_json(json, 1) + "\n");
}

}  // namespace

CommandHelp sweep_help(const Arguments&) {
  SweepSettings settings;
  models::TrainSettings of_runs;
  return {
      "The settings of the runs are those of orrery train.  A setting with several values varies, and every "
      "combination is trained: give values in braces, quoted for the shell "
      "('--attention={softmax,pointwise(relu)}', '--seed={0..4}', '--normalization=dyt(alpha={1,2})'), or give the "
      "setting several times.",
      with_rest(describe(settings_of(settings)), describe(settings_of(of_runs), models::foreign_keys())),
      "The exit code is 1 if a run failed; the other runs are still trained and the tables written.  A diverged "
      "run has not failed.",
      "orrery sweep examples/configs/quickstart.toml '--attention={softmax,pointwise(relu)}' '--seed={0..2}' "
      "--steps=400"};
}

int sweep(const Arguments& arguments) {
  std::optional<Progress> progress(std::in_place, "reading settings and data");
  const Sweep sweep = read_sweep(arguments);
  progress.reset();
  JsonOutput json(sweep.settings.json);
  reference_row(sweep);  // checks it before any training
  sweep_outputs().check(sweep.settings.out);
  FolderLock lock(sweep.settings.out, {"sweep"});
  check_replaceable(sweep);
  lock.keep();  // the runs of an interrupted sweep stay in use
  models::record_use(sweep.settings.runs, lock.folder(), sweep.all.ids());
  print_message(pluralize(static_cast<int64_t>(sweep.all.rows.size()), "row") + ", " +
                pluralize(static_cast<int64_t>(sweep.all.named.size()), "run"));
  const std::string note = models::comparability_note(sweep.settings.metric, sweep.meanings);
  if (!note.empty()) warn(note);
  const std::string& metric = sweep.settings.metric;
  const RunFormatter formatter{
      [&](const Outcomes& outcomes) { return table_of(sweep, outcomes); },
      [&](const Outcome& outcome) {
        const auto found = outcome.metrics.find(metric);
        return found == outcome.metrics.end() ? "" : humanize(metric) + " " + fixed(found->second, 4);
      }};
  PoolOptions options{"sweep", sweep.settings.runs, sweep.settings.jobs, sweep.settings.retrain};
  options.check_files = [&](const std::string& folder, const Outcome& outcome) {
    // check_metric rejects a finished run without the metric; is_complete reads the log of a diverged one with it.
    const bool is_done = outcome.kind == Outcome::Kind::done;
    if (is_done != outcome.metrics.contains(metric)) models::check_log(folder, outcome);
  };
  const TrainedRuns trained = train_rows(
      sweep.all, options, formatter, [&](const PooledRun&, const Outcome& outcome) { check_metric(metric, outcome); });
  sweep_outputs().write(sweep.settings.out, "runs.csv", runs_csv(sweep.all, trained.outcomes));
  sweep_outputs().write(sweep.settings.out, "table.csv", table_csv(sweep, trained.outcomes));
  write_sweep_file(sweep, arguments, note);
  std::cout << "files:\n  " << for_terminal(sweep.settings.out) << "/table.csv\n  " << for_terminal(sweep.settings.out)
            << "/runs.csv\n"
            << std::flush;
  print_message(pool_line(sweep.settings.runs));
  if (trained.signal != 0)
    print_message(text("stopped after ", trained.outcomes.size(), " of ", sweep.all.named.size(),
                       " runs; the same command resumes"));
  if (json) json.print(sweep_json(sweep, trained.outcomes));
  if (trained.signal != 0) return 128 + trained.signal;
  const int64_t failed = count_failed(trained.outcomes);
  check(failed == 0, "sweep: ", failed, " of ", pluralize(static_cast<int64_t>(sweep.all.named.size()), "run"),
        " failed; ", sweep.settings.out, "/runs.csv has the reasons, and the same command tries again");
  return 0;
}

}  // namespace orrery::program
