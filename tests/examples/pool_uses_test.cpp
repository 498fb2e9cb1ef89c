// orrery runs: the runs of a pool that are used, and the runs that are removed.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/examples/pool.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

TEST_CASE("runs: the pool is listed with sizes and uses; only unused or named runs are removed") {
  const Folder folder;
  const std::string pool = "--runs=" + (folder / "pool");
  const Outcome first = run_orrery(sweep_of(folder, {"--seed={1,2}"}));
  REQUIRE(first.code == 0);
  Message(first.err).names(folder / "pool").value("2 runs").offers("orrery runs");
  Words other = sweep_of(folder, {"--seed={2,3}"});
  other[2] = "--out=" + (folder / "other");
  REQUIRE(run_orrery(other).code == 0);
  const std::string claim = claim_text(folder, trained + "refuted_if = \"relu > softmax\"", two);
  const Outcome study = run_study(folder, claim);
  REQUIRE(study.code == 0);
  Message(study.err).names(folder / "pool").value("6 runs").offers("orrery runs");  // the sweeps trained three of them
  const auto listed = [&](const Words& more = {}) {
    const Outcome outcome = run_orrery(Words{"runs", pool} + more);
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    return outcome.out;
  };
  const std::string list = listed();
  for (const char* name : {"sweep", "other", "study"}) CHECK(contains(list, folder / name));
  Message(list).names(folder / "pool").value("6 runs").value("0 runs").offers("--prune");
  Message(listed({"--prune"})).names(folder / "pool").value("0 runs");

  fs::remove_all(folder / "other");  // the study uses its run with seed 3, too
  Message(listed()).value("6 runs").value("0 runs").offers("--prune");
  // A missing folder may have been moved: its runs stay unless the user gives them up.
  fs::remove_all(folder / "study");
  const std::string missing = listed();
  Message(missing).value("6 runs").value("0 runs").offers("--prune").value("4 runs").offers("--prune --maybe_used");
  CHECK(contains(missing, (folder / "study") + " (missing)"));
  CHECK(runs_in(folder).size() == 6);  // listing removes no run
  Message(listed({"--prune"})).value("4 runs").offers("--maybe_used").names(folder / "pool").value("0 runs");
  Message(listed({"--prune", "--maybe_used"})).names(folder / "pool").value("4 runs");
  CHECK(runs_in(folder).size() == 2);
  const auto times = written_runs(folder / "pool");
  CHECK(run_orrery(sweep_of(folder, {"--seed={1,2}"})).code == 0);
  CHECK(written_runs(folder / "pool") == times);

  // A named run is removed, unless a program trains it.
  const std::string run = runs_in(folder)[0], run_files = folder / ("pool/" + run);
  expect_error(run_orrery({"runs", pool, "0123"})).names(folder / "pool").value("0123").offers("orrery runs");
  const Outcome busy = run_shell("flock " + run_files + ".lock \"$ORRERY\" runs " + pool + " " + run + " --prune");
  CHECK(busy.code == 1);
  Message(busy.err).names(run).names("program");
  Message(busy.out).names(folder / "pool").value("0 runs");
  CHECK(runs_in(folder).size() == 2);
  Message(listed({run, "--prune"})).names(folder / "pool").value("1 run");
  for (const char* end : {"", ".json", ".toml", ".log", ".lock"}) CHECK(!fs::exists(run_files + end));
  expect_error(run_orrery({"runs", "--runs=" + (folder / "nowhere")})).names(folder / "nowhere").offers("--runs");
  expect_error(run_orrery({"runs", "--runs=" + (folder / "sweep")}), 1)
      .names(folder / "sweep")
      .value("not a pool")
      .offers("orrery runs " + (folder / "sweep"));
  // A record that cannot be read may belong to any run.
  folder.write("pool/used_by/0123456789abcdef.json", "{");
  expect_error(run_orrery({"runs", pool, "--prune"}))
      .names(folder / "pool/used_by/0123456789abcdef.json")
      .offers("remove");
  CHECK(runs_in(folder).size() == 1);
  CHECK(run_orrery(sweep_of(folder, {"--seed={1,2}"})).code == 0);
}

TEST_CASE("runs: a run stays if its sweep was moved or replaced, or if an older version trained it") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--seed={1,2}"});
  REQUIRE(run_orrery(words).code == 0);
  const auto prune = [&](const Words& more = {}) {
    return run_orrery(Words{"runs", "--runs=" + (folder / "pool"), "--prune"} + more).out;
  };
  fs::rename(folder / "sweep", folder / "moved");
  Message(prune()).value("2 runs").offers("--maybe_used");
  CHECK(runs_in(folder).size() == 2);
  // The sweep's record is replaced by that of another sweep with the same folder.
  REQUIRE(run_orrery(sweep_of(folder, {"--seed=3"})).code == 0);
  REQUIRE(run_orrery(sweep_of(folder, {"--seed={3,4}"})).code == 0);
  Message(prune()).value("2 runs").offers("--maybe_used");
  CHECK(runs_in(folder).size() == 4);
  // Versions without source hashes in their ids wrote no record.
  const std::string run = runs_in(folder)[0], old = run.substr(0, 16);
  for (const char* end : {"", ".json", ".toml", ".log"})
    fs::rename(folder / ("pool/" + run + end), folder / ("pool/" + old + end));
  fs::remove_all(folder / "pool/used_by");
  Message(prune()).value("1 run").offers("--maybe_used");
  CHECK(runs_in(folder) == std::vector<std::string>{old});  // the other runs had a record, now gone
  Message(prune({"--maybe_used"})).names(folder / "pool").value("1 run");
  CHECK(runs_in(folder).empty());
}

TEST_CASE("runs: the runs of an interrupted sweep or study count as used") {
  const Folder folder;
  std::string text = claim_text(folder, trained + "refuted_if = \"relu > softmax\"", two);
  text.replace(text.find("steps = 4\n"), 10, "steps = 20000000\nschedule = \"constant\"\n");
  const Words words = {"study", folder.write("claim.toml", text), "--out=" + (folder / "study"),
                       "--runs=" + (folder / "pool"), "--jobs=1"};
  const Outcome stopped =
      run_shell(command_of(words) + " & study=$!; " + wait_for_runs(folder, 1) + "kill -TERM $study; wait $study");
  CHECK(stopped.code == 128 + 15);
  const Outcome pruned = run_orrery({"runs", "--runs=" + (folder / "pool"), "--prune"});
  Message(pruned.out).names(folder / "pool").value("0 runs");
  CHECK(runs_in(folder).size() == 1);
}

TEST_CASE("pool: a warning names an interrupted run of other sources when its training starts over") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--seed=1"});
  const Outcome first = run_orrery(words);
  REQUIRE(first.code == 0);
  CHECK(!contains(first.err, "warning"));
  const std::string run = runs_in(folder).at(0), other = run.substr(0, 16) + "-000000000000";
  for (const char* end : {"", ".toml", ".log"})
    fs::rename(folder / ("pool/" + run + end), folder / ("pool/" + other + end));
  fs::remove(folder / ("pool/" + run + ".json"));
  const Outcome again = run_orrery(words);
  CHECK_MESSAGE(again.code == 0, again.err);
  Message(again.err).names("warning").names(folder / ("pool/" + other)).names(folder / ("pool/" + run));
  CHECK(runs_in(folder).size() == 2);
  CHECK(!contains(run_orrery(words).err, "warning"));
}
