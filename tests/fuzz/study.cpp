// What studies keep and are told: outcomes of runs, the rows they come of, and values in braces.
#include "models/study/runs.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "models/study/combinations.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using orrery::models::Outcome;

const std::vector<std::string> json_words = {"{",
                                             "}",
                                             "[",
                                             "]",
                                             ",",
                                             ":",
                                             "\"",
                                             "null",
                                             "1e300",
                                             "-1",
                                             "\"step\":",
                                             "\"loss\":",
                                             "\"why\"",
                                             "done\"",
                                             "failed\"",
                                             "\"validation_loss\":",
                                             "\"figures\":{",
                                             "\"gradient_norm\":",
                                             "\"milliseconds\":",
                                             "\n"};

void promise_same_again(const std::string& folder, const Outcome& outcome) {
  const std::string path = folder + "/again.json";
  orrery::models::write_outcome(path, outcome);
  const Outcome again = orrery::models::read_outcome(path).value();
  promise(again.kind == outcome.kind && again.step == outcome.step && again.seconds == outcome.seconds &&
              again.figures == outcome.figures && again.why == outcome.why && again.version == outcome.version,
          "written and read again it is another outcome");
}

void read_outcome(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/outcome.json";
  put(path, bytes);
  promise_same_again(folder, orrery::models::read_outcome(path).value());
}

REGISTER_FORMAT(outcome, {.name = "outcome",
                          .readers = {"models/study/runs.cpp", "models/json.cpp"},
                          .read = read_outcome,
                          .memory_multiple = 256,
                          .memory_base = 1 << 20,
                          .words = json_words});

void read_rows(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/metrics.jsonl";
  put(path, bytes);
  const std::vector<orrery::models::LogRow> rows = orrery::models::read_run_log(folder);
  promise(static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\n')) == rows.size(),
          "a row is lost, or made up");
  const Outcome outcome = orrery::models::outcome_of(rows);
  promise(outcome.kind == Outcome::Kind::done || !outcome.why.empty(), "it does not say why the run is not done");
  promise(outcome.kind != Outcome::Kind::done || outcome.figures.contains("validation_loss"),
          "a run without a validation is done");
  promise(std::isfinite(outcome.seconds), "it took no number of seconds");
  promise_same_again(folder, outcome);
}

REGISTER_FORMAT(run_rows, {.name = "run_rows",
                           .readers = {"models/study/run_log.cpp", "models/study/runs.cpp", "models/json.cpp"},
                           .read = read_rows,
                           .memory_multiple = 256,
                           .memory_base = 1 << 20,
                           .words = json_words});

void read_braces(const std::string&, std::string_view bytes) {
  const std::string given(bytes);
  const std::vector<std::string> values = orrery::models::expand_braces(given, 1000);
  promise(!values.empty() && values.size() <= 1000, "it has no values, or more than are allowed");
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

}  // namespace
