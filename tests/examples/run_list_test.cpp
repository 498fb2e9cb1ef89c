// orrery runs FOLDER: the runs below a folder, their states, and pools.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/examples/pool.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

std::string listed(const std::string& folder) {
  const Outcome outcome = run_orrery({"runs", folder});
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  return outcome.out;
}
// Returns the entries by the names of their runs.
Json runs_json(const std::string& folder) {
  const Outcome outcome = run_orrery({"runs", folder, "--json"});
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  Json all = Json::object();
  const Json shown = Json::parse(outcome.out);
  for (const Json& run : shown["runs"]) all[run["run"].get<std::string>()] = run;
  return all;
}
void set_age(const std::string& run, int hours) {
  fs::last_write_time(run + "/metrics.jsonl", fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

}  // namespace

TEST_CASE("runs: each run below a folder is listed with settings, progress and state, newest first") {
  const Folder folder;
  const std::string runs = folder / "runs";
  set_age(trained_run(folder, "runs/old", {"--seed=1", "--evaluate_every=2"}, false), 50);
  set_age(trained_run(folder, "runs/deep/new", {"--seed=2", "--learning_rate=0.01"}, false), 3);
  const std::string table = listed(runs);
  INFO(table);
  CHECK(table.find("deep/new") < table.find("old "));
  for (const char* word : {"loss", "best", "age", "state", "seed", "4/4", "complete", "3h", "2d"})
    CHECK(contains(table, word));
  CHECK(contains(table, "2 runs of gpt-char-small"));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);)
    if (contains(line, "complete")) CHECK(line.size() <= 80);

  const Json json = runs_json(runs);
  CHECK(json["old"]["settings"]["seed"] == "1");
  CHECK(json["deep/new"]["settings"]["learning_rate"] == "0.01");
  CHECK(!json["old"]["settings"].contains("width"));  // equal in both
  CHECK(json["old"]["step"] == 4);
  CHECK(json["old"]["best_validation_loss"].get<double>() <= json["old"]["validation_loss"].get<double>());
  double best = INFINITY, last = NAN;
  std::istringstream rows(read_file(runs + "/old/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);)
    if (const Json row = Json::parse(line); row.contains("validation_loss"))
      last = row["validation_loss"], best = std::min(best, last);
  CHECK(json["old"]["validation_loss"] == last);
  CHECK(json["old"]["best_validation_loss"] == best);
}

TEST_CASE("runs: unfinished and unreadable runs are listed with their states") {
  const Folder folder;
  const std::string runs = folder / "runs", whole = trained_run(folder, "runs/whole", {}, false);
  // Cuts a copy's log after `rows` rows.
  const auto copy = [&](const std::string& name, int rows) {
    fs::copy(whole, runs + "/" + name, fs::copy_options::recursive);
    std::istringstream lines(read_file(whole + "/metrics.jsonl"));
    std::string kept, line;
    for (int i = 0; i < rows && std::getline(lines, line); ++i) kept += line + "\n";
    folder.write("runs/" + name + "/metrics.jsonl", kept);
  };
  copy("failed", 2);
  fs::remove_all(runs + "/failed/step_000004");
  copy("stopped", 2);
  fs::rename(runs + "/stopped/step_000004", runs + "/stopped/step_000002");
  copy("imported", 0);
  fs::remove(runs + "/imported/metrics.jsonl");
  fs::rename(runs + "/imported/step_000004", runs + "/imported/step_000000");
  copy("damaged", 4);
  folder.write("runs/damaged/metrics.jsonl", read_file(runs + "/damaged/metrics.jsonl") + "{\"step\":\n");
  copy("running", 2);
  folder.write("runs/running/.orrery.lock", "1\n");
  const Outcome busy = run_shell("flock '" + runs + "/running/.orrery.lock' \"$ORRERY\" runs '" + runs + "' --json");
  REQUIRE_MESSAGE(busy.code == 0, busy.err);
  const Json all = Json::parse(busy.out);
  REQUIRE(all["runs"].size() == 6);
  for (const Json& run : all["runs"]) {
    const std::string name = run["run"];
    CHECK(run["state"] == (name == "whole" ? "complete" : name == "damaged" ? "unreadable" : name));
  }
  CHECK(runs_json(runs)["running"]["state"] == "failed");  // no program holds the lock
  Message(listed(runs)).names(runs + "/damaged").names("metrics.jsonl").value("line 1");
}

TEST_CASE("runs: a pool takes one line, and --runs lists its runs by name") {
  const Folder folder;
  REQUIRE(run_orrery(sweep_of(folder, {"--seed={1,2}"})).code == 0);
  trained_run(folder, "single", {}, false);
  const std::string table = listed(folder.path());
  Message(table).names("single").value("1 run").names(folder / "pool").value("2 runs").offers("orrery runs --runs=");
  const Outcome pool = run_orrery({"runs", "--runs=" + (folder / "pool"), "--json"});
  const Json json = Json::parse(pool.out);
  REQUIRE(json["runs"].size() == 2);
  CHECK(json["runs"][0]["use"] == "used");
  CHECK(json["runs"][0]["state"] == "done");
  fs::remove_all(folder / "sweep");
  const Outcome pruned = run_orrery({"runs", "--runs=" + (folder / "pool"), "--prune", "--maybe_used", "--json"});
  CHECK(Json::parse(pruned.out)["removed"].size() == 2);
  expect_error(run_orrery({"runs", folder / "none"})).names(folder / "none").offers("orrery train --out");
  expect_error(run_orrery({"runs", folder / "a", folder / "b"})).value("2 folders").offers("--runs=POOL");
}

TEST_CASE("runs: a thousand runs are listed in seconds") {
  const Folder folder;
  const std::string first = trained_run(folder, "runs/0", {"--save_optimizer=no"}, false);
  for (int i = 1; i < 1000; ++i) {
    const std::string run = folder / ("runs/" + std::to_string(i));
    fs::create_directory(run);
    for (const char* file : {"/settings.toml", "/metrics.jsonl"}) fs::copy_file(first + file, run + file);
  }
  const auto began = std::chrono::steady_clock::now();
  Message(listed(folder / "runs")).value("1,000 runs");
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(30));  // sanitizers are slow
}
