// Files and arguments of studies: results, logs, compared files, values in braces, sweep tables.
#include "models/study/runs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "models/formats/csv.h"
#include "models/reports/report_sweep.h"
#include "models/study/checkpoint_diff.h"
#include "models/study/combinations.h"
#include "models/study/pool.h"
#include "models/study/run_list.h"
#include "models/study/run_log.h"
#include "models/training/not_finite.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using orrery::models::Outcome;

const std::vector<std::string> words_of_runs =
    json_words({"\"step\":", "\"loss\":", "\"why\"", "done\"", "failed\"", "\"validation_loss\":", "\"figures\":{",
                "\"gradient_norm\":", "\"step_ms\":", "\n"});

void promise_same_again(const std::string& folder, const Outcome& outcome) {
  const std::string path = folder + "/again.json";
  orrery::models::write_outcome(path, outcome);
  const Outcome again = orrery::models::read_outcome(path).value();
  promise(again.kind == outcome.kind && again.step == outcome.step && again.seconds == outcome.seconds &&
              again.metrics == outcome.metrics && again.why == outcome.why && again.version == outcome.version,
          "written and read again it is another outcome");
}

void read_outcome(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/outcome.json";
  put(path, bytes);
  promise_same_again(folder, orrery::models::read_outcome(path).value());
}

REGISTER_FORMAT(outcome, {.name = "outcome",
                          .readers = {"models/study/runs.cpp", "models/formats/json.cpp"},
                          .read = read_outcome,
                          .memory_multiple = 256,
                          .memory_base = 1 << 20,
                          .words = words_of_runs});

// Records of which sweeps and studies use a pool's runs, by folder; only the pool's folder exists.
void read_uses(const std::string& folder, std::string_view bytes) {
  std::filesystem::create_directories(folder + "/used_by");
  put(folder + "/used_by/0123456789abcdef.json", bytes);
  for (const auto& [user, runs] : orrery::models::uses_of_pool(folder))
    promise(runs.missing || std::filesystem::is_directory(user), "a missing folder uses runs");
}

REGISTER_FORMAT(pool_use, {.name = "pool_use",
                           .readers = {"models/study/pool.cpp", "models/formats/json.cpp"},
                           .read = read_uses,
                           .memory_multiple = 256,
                           .memory_base = 1 << 20,
                           .words = json_words({"\"folder\":", "\"runs\":", "\".\"", "\"0123456789abcdef\""})});

void read_log(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/metrics.jsonl";
  put(path, bytes);
  put(folder + "/settings.toml",
      "# The settings of a run, written by orrery when it began.\nmodel = \"gpt-char-small\"\n");
  const std::vector<orrery::models::ListedRun> listed = orrery::models::runs_below(folder).runs;
  promise(listed.size() == 1 && listed[0].settings.has_value(), "a run is not listed");
  promise(listed[0].error.empty() || listed[0].state == orrery::models::RunState::unreadable,
          "a run that cannot be read has another state");
  const std::vector<orrery::models::LogRow> rows = orrery::models::RunLog::of_run(folder).rows();
  promise(static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\n')) == rows.size(),
          "a row is missing or extra");
  for (const auto& row : rows)
    for (const auto& [key, value] : row.metrics)
      promise(key != "step" && !std::isinf(value), "a metric is infinite, or is the step");
  const Outcome outcome = orrery::models::outcome_of(rows);
  promise(outcome.kind == Outcome::Kind::done || !outcome.why.empty(), "an unfinished run without a reason");
  promise(outcome.kind != Outcome::Kind::done || outcome.metrics.contains("validation_loss"),
          "a run without a validation is done");
  promise(std::isfinite(outcome.seconds), "a duration that is not finite");
  promise_same_again(folder, outcome);
  promise(!orrery::models::step_not_finite(bytes) || bytes.starts_with("train: "),
          "a step is read from a message that is not from training");
}

REGISTER_FORMAT(run_log,
                {.name = "run_log",
                 .readers = {"models/study/run_log.cpp", "models/study/run_log.h", "models/study/run_list.cpp",
                             "models/training/log_rows.cpp", "models/training/log_rows.h",
                             "models/training/not_finite.h", "models/study/runs.cpp", "models/formats/json.cpp"},
                 .read = read_log,
                 .memory_multiple = 256,
                 .memory_base = 1 << 20,
                 .words = words_of_runs});

// Compares a checkpoint with one whose files all hold these bytes: a difference must be reported.
void compare_files(const std::string& folder, std::string_view bytes) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"
                             "  ";
  const std::string tensors = std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header +
                              std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  const std::map<std::string, std::string> files = {{"weights.safetensors", tensors},
                                                    {"state.json", R"({"step":4,"files":{"a":{"bytes":8}}})"}};
  for (const char* name : {"/one", "/two"}) std::filesystem::create_directory(folder + name);
  for (const auto& [name, content] : files) put(folder + "/one/" + name, content), put(folder + "/two/" + name, bytes);
  for (const auto& file : orrery::models::compare_checkpoints(folder + "/one", folder + "/two"))
    promise(file.difference.empty() == (files.at(file.name) == bytes), "a difference is missed, or equal files differ");
}

REGISTER_FORMAT(compared_files, {.name = "compared_files",
                                 .readers = {"models/study/checkpoint_diff.cpp", "models/formats/json.cpp",
                                             "engine/tensor/safetensors.cpp"},
                                 .read = compare_files,
                                 .memory_multiple = 256,
                                 .memory_base = 1 << 20,
                                 .words = {"{", "}", ",", "\"a\":", "\"step\":4", "\"bytes\":8", "\"dtype\":\"F32\"",
                                           "\"shape\":[2]", "\"data_offsets\":[0,8]", "null", "1e300"}});

void read_braces(const std::string&, std::string_view bytes) {
  const std::string given(bytes);
  const std::vector<std::string> values = orrery::models::expand_braces(given, 1000);
  promise(!values.empty() && values.size() <= 1000, "no values, or too many");
  for (const std::string& value : values)
    promise(value.find_first_of("{}") == std::string::npos, "a brace is left in a value");
  promise((given.find('{') == std::string::npos) == (values.size() == 1 && values[0] == given),
          "text without braces is not its own only value");
}

REGISTER_FORMAT(braces, {.name = "braces",
                         .readers = {"models/study/combinations.cpp"},
                         .read = read_braces,
                         .memory_multiple = 4096,
                         .memory_base = 1 << 20,
                         .words = {"{", "}", ",", "..", "0..4", "(", ")", "{,", "9..1", "softmax"}});

void read_csv(const std::string&, std::string_view bytes) {
  const auto rows = orrery::models::parse_csv(bytes, "table");
  std::string again;
  for (const auto& row : rows) again += orrery::models::csv_line(row);
  promise(orrery::models::parse_csv(again, "table") == rows, "a written table is read back differently");
}

REGISTER_FORMAT(csv, {.name = "csv",
                      .readers = {"models/formats/csv.cpp"},
                      .read = read_csv,
                      .memory_multiple = 1024,
                      .memory_base = 1 << 20,
                      .words = {",", "\"", "\n", "\r\n", "\"\"", "row", "0.5", ",,"}});

// The three files of a sweep in sequence, separated by lines with a single =.
void read_sweep(const std::string& folder, std::string_view bytes) {
  for (const char* name : {"/table.csv", "/runs.csv", "/sweep.json"}) {
    const size_t end = std::min(bytes.find("\n=\n"), bytes.size());
    put(folder + name, bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 3, bytes.size()));
  }
  orrery::models::Json sections = orrery::models::Json::array();
  orrery::models::add_sweep(sections, folder);
  promise(sections.size() >= 2, "a sweep has no tables");
  for (const auto& section : sections)
    if (section.at("kind") == "table")
      for (const auto& row : section.at("data").at("rows"))
        promise(row.size() == section.at("data").at("columns").size(), "a row without a cell for each column");
}

REGISTER_FORMAT(sweep,
                {.name = "sweep",
                 .readers = {"models/reports/report_sweep.cpp", "models/formats/csv.cpp", "models/formats/json.cpp"},
                 .read = read_sweep,
                 .memory_multiple = 4096,
                 .memory_base = 4 << 20,
                 .words = {",", "\"", "\n", "\n=\n", "row", "difference", "low", "high", "0.5", "-1e300", "nan",
                           "metric", "runs", "diverged"}});

}  // namespace
