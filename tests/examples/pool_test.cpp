// Runs shared by sweeps and studies: failing runs, damaged files, ends of the training program.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/examples/pool.h"
#include "tests/examples/study.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

std::string weights_of(const Folder& folder, const std::string& run) {
  return read_file(folder / ("pool/" + run + "/step_000004/weights.safetensors"));
}
// Returns runs.csv without the seconds.
std::string table_of(const Folder& folder) { return run_shell("cut -d, -f1-5,7- " + (folder / "sweep/runs.csv")).out; }
// Returns a claim with a variant that no model supports.
std::string broken_claim(const Folder& folder) {
  return claim_text(folder, trained + "refuted_if = \"broken > softmax\"",
                    "[variants.broken]\nposition = \"relative(4)\"\nattention = \"gau\"\n[variants.softmax]\n");
}
// Shell lines: wait until none of $runs is left, and print the remaining ones.
const std::string print_left =
    "for i in $(seq 200); do left=; for run in $runs; do kill -0 $run 2>/dev/null && left=\"$left $run\"; done; "
    "[ -z \"$left\" ] && break; sleep 0.05; done; echo \"runs:\" $runs \"left:\" $left; ";
const std::string endless_steps = "20000000";
const Words two_at_once = {"--schedule=constant", "--seed={1,2}", "--jobs=2"};

}  // namespace

TEST_CASE("pool: a damaged outcome is reported, and its run is trained again to the same bytes") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--seed={1,2}"});
  REQUIRE(run_orrery(words).code == 0);
  const std::vector<std::string> runs = runs_in(folder);
  REQUIRE(runs.size() == 2);
  const std::string table = table_of(folder), weights = weights_of(folder, runs[0]);
  const std::string outcome_file = folder / ("pool/" + runs[0] + ".json"), outcome = read_file(outcome_file);
  for (const std::string& damage :
       {std::string(), outcome.substr(0, outcome.size() / 2), std::string("{}"), std::string("[1]"),
        std::string("\xff\xfe"), std::string(outcome).replace(outcome.find("done"), 4, "dome"),
        std::string(outcome).replace(outcome.find("validation_loss"), 15, "validation_losr"),
        std::string(outcome).replace(outcome.find("validation_loss") + 18, 1, "9")}) {
    CAPTURE(damage);
    const auto before = written_runs(folder / "pool");
    folder.write("pool/" + runs[0] + ".json", damage);
    const Outcome again = run_orrery(words);
    INFO(again.out, again.err);
    CHECK(again.code == 0);
    Message(again.err).names("warning").names(outcome_file).names(folder / ("pool/" + runs[0])).offers("again");
    CHECK(table_of(folder) == table);
    CHECK(weights_of(folder, runs[0]) == weights);
    const auto after = written_runs(folder / "pool");
    CHECK(after.at(runs[0]) != before.at(runs[0]));
    CHECK(after.at(runs[1]) == before.at(runs[1]));
  }
  // A metric that only this sweep compares, and one that no run has.
  folder.write("pool/" + runs[0] + ".json",
               std::string(outcome).replace(outcome.find("bits_per_character"), 18, "bits_per_charactes"));
  const Outcome again = run_orrery(words + Words{"--metric=bits_per_character"});
  CHECK_MESSAGE(again.code == 0, again.err);
  Message(again.err).names("warning").names(folder / ("pool/" + runs[0])).offers("again");
  const auto before = written_runs(folder / "pool");
  expect_error(run_orrery(words + Words{"--metric=bits"})).names("bits");
  CHECK(written_runs(folder / "pool") == before);
}

TEST_CASE("pool: a run with damaged checkpoints resumes from an intact one or starts over") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--seed=1", "--checkpoint_every=2"});
  REQUIRE(run_orrery(words).code == 0);
  const std::string run = runs_in(folder).at(0), table = table_of(folder), weights = weights_of(folder, run);
  for (const Words& damaged : {Words{"step_000004"}, Words{"step_000002", "step_000004"}}) {
    CAPTURE(damaged.size());
    fs::remove(folder / ("pool/" + run + ".json"));  // as if it had been interrupted
    for (const std::string& checkpoint : damaged)
      folder.write("pool/" + run + "/" + checkpoint + "/weights.safetensors", "damaged");
    const Outcome again = run_orrery(words);
    INFO(again.out, again.err);
    CHECK(again.code == 0);
    CHECK(table_of(folder) == table);
    CHECK(weights_of(folder, run) == weights);
    const bool begins_anew = damaged.size() == 2;
    CHECK(contains(again.err, "warning") == begins_anew);
    if (begins_anew) Message(again.err).names("warning").names(folder / ("pool/" + run)).names("optimizer");
  }
  // A checkpoint without the optimizer state cannot be resumed.
  const Words smaller = sweep_of(folder, {"--seed=1", "--checkpoint_every=2", "--save_optimizer=no"});
  fs::remove(folder / ("pool/" + run + ".json"));
  const Outcome begun = run_orrery(smaller);
  CHECK_MESSAGE(begun.code == 0, begun.err);
  fs::remove(folder / ("pool/" + run + ".json"));
  fs::remove_all(folder / ("pool/" + run + "/step_000004"));
  const Outcome again = run_orrery(smaller);
  CHECK_MESSAGE(again.code == 0, again.out, again.err);
  CHECK(weights_of(folder, run) == weights);
}

TEST_CASE("pool: a study trains a run again if its log or checkpoint is unreadable") {
  const Folder folder;
  const std::string claim = claim_text(
      folder, "kind = \"trained\"\nseeds = [1, 2]\nmetric = \"max(heads/row_sum/*)\"\nrefuted_if = \"softmax > 2\"",
      "[variants.softmax]\n[example]\ntext = \"abeabeab\"\n");
  const Outcome first = run_study(folder, claim);
  INFO(first.out, first.err);
  REQUIRE(first.code == 0);
  const std::string run = runs_in(folder).at(0), samples = read_file(folder / "study/samples.csv");
  const std::string path = folder / ("pool/" + run);
  const auto tested_again = [&] {
    const Outcome again = run_study(folder, claim);
    INFO(again.out, again.err);
    CHECK(again.code == 0);
    Message(again.err).names("warning").names(path).offers("again");
    CHECK(read_file(folder / "study/samples.csv") == samples);
  };
  folder.write("pool/" + run + "/metrics.jsonl", "{\"step\": 1, \"lo\n");
  tested_again();
  folder.write("pool/" + run + "/step_000004/weights.safetensors", "damaged");
  tested_again();
  fs::remove_all(path);
  tested_again();
  // Rows are missing: the last ones, all, one step's, the validation's.
  const std::string log = read_file(path + "/metrics.jsonl"), second = log.substr(log.find('\n') + 1);
  const size_t validation = log.rfind('\n', log.find("validation_loss")) + 1;
  for (const std::string& damaged : {log.substr(0, second.find('\n') + 1), std::string(), second,
                                     log.substr(0, validation) + log.substr(log.find('\n', validation) + 1)}) {
    CAPTURE(damaged);
    folder.write("pool/" + run + "/metrics.jsonl", damaged);
    tested_again();
  }
}

TEST_CASE("study: a claim with failed runs has no verdict, and the runs are tried again") {
  const Folder folder;
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = run_study(folder, broken_claim(folder));
    INFO(outcome.out, outcome.err);
    expect_error(outcome).names("claim.toml").names("no verdict").value(3).offers("again");
    CHECK(contains(outcome.err, "gau"));  // the reason
    CHECK(!contains(outcome.out, "not shown"));
    CHECK(!fs::exists(folder / "study/verdict.json"));
  }
  CHECK(runs_in(folder).size() == 3);  // of the other variant

  fs::create_directory(folder / "claims");
  folder.write("claims/a.toml", broken_claim(folder));
  for (int time = 0; time < 2; ++time) {
    const Outcome all = run_orrery(
        {"study", "--all=" + (folder / "claims"), "--out=" + (folder / "all"), "--runs=" + (folder / "pool")});
    CHECK(all.code == 1);
    Message(all.err).names("a.toml").names("no verdict").value(3).offers("again");
    CHECK(!fs::exists(folder / "all/a/verdict.json"));
    CHECK(contains(read_file(folder / "all/verdicts.csv"), "a,-,"));
  }
  const Outcome smoke = run_study(folder, broken_claim(folder), {"--smoke"});
  expect_error(smoke).names("claim.toml").value(1).offers("again");
}

TEST_CASE("study: killed runs give no verdict and no learning rate; the same command then tests the claim") {
  const Folder folder;
  std::string text = claim_text(folder,
                                "kind = \"trained\"\nseeds = [1, 2]\nlearning_rates = [0.001, 0.01]\n"
                                "metric = \"validation_loss\"\nrefuted_if = \"relu != softmax +- 10\"",
                                two);
  const std::string command = command_of(
      {"study", folder / "claim.toml", "--out=" + (folder / "study"), "--runs=" + (folder / "pool"), "--jobs=1"});
  text.replace(text.find("steps = 4\n"), 10, "steps = 2000\n");
  folder.write("claim.toml", text);
  // Kills the first run, like a machine without memory; the other runs of the search finish.
  const Outcome killed = run_shell(command + " & study=$!; " + wait_for_runs(folder, 1) + "kill -9 $runs; wait $study");
  INFO(killed.out, killed.err);
  expect_error(killed).names("no verdict").value(1).offers("again");
  Message(killed.err).value("signal 9");
  CHECK(!contains(killed.err, "of 8"));  // no run has a learning rate that was not chosen
  CHECK(!fs::exists(folder / "study/verdict.json"));
  const Outcome again = run_shell(command);
  INFO(again.out, again.err);
  CHECK(again.code == 0);
  CHECK(contains(again.out, "verdict: shown"));
}

TEST_CASE("study: a damaged verdict is computed again, and the verdict of another claim is kept") {
  const Folder folder;
  fs::create_directory(folder / "claims");
  const std::string text = claim_text(folder, trained + "refuted_if = \"relu > softmax + 1\"", two);
  folder.write("claims/a.toml", text);
  const Words all = {"study", "--all=" + (folder / "claims"), "--runs=" + (folder / "pool")};
  REQUIRE(run_orrery(all).code == 0);
  const std::string verdict = folder / "claims/a/verdict.json", before = read_file(verdict);
  std::string aside = verdict + ".damaged";
  for (const std::string& damage : {before.substr(0, before.size() / 2), std::string("not of this program")}) {
    folder.write("claims/a/verdict.json", damage);
    const Outcome again = run_orrery(all);
    INFO(again.out, again.err);
    CHECK(again.code == 0);
    Message(again.err).names("warning").names(verdict).names(aside).offers("again");
    CHECK(verdict_in(folder / "claims/a")["comparisons"] == nlohmann::json::parse(before)["comparisons"]);
    CHECK(read_file(aside) == damage);
    aside = verdict + ".2.damaged";
  }
  CHECK(read_file(verdict + ".damaged") == before.substr(0, before.size() / 2));
  const std::string kept = read_file(verdict);
  folder.write("other.toml", std::string(text).replace(text.find("Two variants"), 12, "Two others"));
  const Words other = {"study", folder / "other.toml", "--out=" + (folder / "claims/a"), "--runs=" + (folder / "pool")};
  expect_error(run_orrery(other)).names(folder / "claims/a").value("a.toml").offers("--out");
  const Outcome smoke = run_orrery(all + Words{"--smoke"});
  CHECK(smoke.code == 1);
  Message(smoke.err).names(folder / "claims/a").names("verdict").value("--smoke").offers("--out");
  CHECK(read_file(verdict) == kept);
}

TEST_CASE("sweep: a killed run is a failure, and the same command tries it again") {
  for (const std::string signal : {"9", "15"}) {
    CAPTURE(signal);
    const Folder folder;
    const std::string command = command_of(sweep_of(folder, {"--seed={1,2}", "--jobs=1"}, "2000"));
    const Outcome killed =
        run_shell(command + " & sweep=$!; " + wait_for_runs(folder, 1) + "kill -" + signal + " $runs; wait $sweep");
    INFO(killed.out, killed.err);
    expect_error(killed).names("sweep").value(1).value(2).offers("again");
    CHECK(contains(killed.out, "1 failed"));
    Message(read_file(folder / "sweep/runs.csv")).value("signal " + signal);
    const Outcome again = run_shell(command);
    CHECK_MESSAGE(again.code == 0, again.out, again.err);
  }
}

TEST_CASE("sweep: a killed run is a failure even if its rows look like those of a diverged run") {
  const Folder folder;
  const std::string command = command_of(
      sweep_of(folder, {"--seed={1,2}", "--jobs=2", "--learning_rate=5", "--schedule=constant", "--evaluate_every=50"},
               endless_steps));
  const std::string validated = "for i in $(seq 600); do set -- $(grep -l '\"step\":100,.*validation_loss' " +
                                (folder / "pool") + "/*/metrics.jsonl); [ $# -ge 2 ] && break; sleep 0.05; done; ";
  const Outcome killed =
      run_shell(command + " & sweep=$!; " + wait_for_runs(folder, 2) + validated + "kill -9 $runs; wait $sweep");
  INFO(killed.out, killed.err);
  expect_error(killed).names("sweep").value(2).value(2).offers("again");
  CHECK(contains(read_file(folder / "sweep/runs.csv"), ",failed,"));
  CHECK(!contains(read_file(folder / "sweep/runs.csv"), ",diverged,"));
}

TEST_CASE("sweep: an error message with 'not finite' in a path does not count as divergence") {
  const Folder folder;
  Words words = sweep_of(folder, {"--seed={1,2}"});
  words[3] = "--runs=" + (folder / "the loss is not finite at step 1/pool");
  const Outcome full = run_shell("ulimit -f 10; " + command_of(words));
  INFO(full.out, full.err);
  expect_error(full).names("sweep").value(2).value(2).offers("again");
  const std::string table = read_file(folder / "sweep/runs.csv");
  CHECK(contains(table, "not finite"));
  CHECK(!contains(table, ",diverged,"));
  CHECK(run_shell(command_of(words)).code == 0);
}

TEST_CASE("pool: no run survives when the training program is killed or ends with an error") {
  for (const std::string signal : {"KILL", "QUIT"}) {  // sh makes background processes ignore QUIT
    CAPTURE(signal);
    const Folder folder;
    const Outcome outcome =
        run_shell("ulimit -c 0; env --default-signal=QUIT --block-signal=TERM " +
                  command_of(sweep_of(folder, two_at_once, endless_steps)) + " & sweep=$!; " +
                  wait_for_runs(folder, 2) + "kill -" + signal + " $sweep; wait $sweep; " + print_left);
    INFO(outcome.out, outcome.err);
    CHECK(contains(outcome.out, "runs: "));
    CHECK(!contains(outcome.out, "runs: left:"));
    CHECK(outcome.out.ends_with("left:\n"));
  }
  // A study, whose runs are started in the same way.
  {
    const Folder folder;
    std::string text = claim_text(folder, trained + "refuted_if = \"relu > softmax\"", two);
    text.replace(text.find("steps = 4\n"), 10, "steps = 20000000\nschedule = \"constant\"\n");
    const Words words = {"study", folder.write("claim.toml", text), "--out=" + (folder / "study"),
                         "--runs=" + (folder / "pool"), "--jobs=2"};
    const Outcome outcome = run_shell(command_of(words) + " & study=$!; " + wait_for_runs(folder, 2) +
                                      "kill -9 $study; wait $study; " + print_left);
    INFO(outcome.out, outcome.err);
    CHECK(!contains(outcome.out, "runs: left:"));
    CHECK(outcome.out.ends_with("left:\n"));
  }
  // An error in the sweep: the first run ends without the compared metric, the other is endless.
  {
    const Folder folder;
    const Words words = sweep_of(folder, {"--schedule=constant", "--seed=1", "--jobs=2", "--metric=acuracy"},
                                 "{2000," + endless_steps + "}");
    const Outcome outcome = run_shell("( " + command_of(words) + "; echo \"code $?\" >&2 ) > /dev/null & " +
                                      wait_for_runs(folder, 2) + "wait; " + print_left);
    INFO(outcome.out, outcome.err);
    CHECK(contains(outcome.err, "code 2\n"));
    CHECK(!contains(outcome.out, "runs: left:"));
    CHECK(outcome.out.ends_with("left:\n"));
    // The run has saved and ended in order.
    CHECK(contains(run_shell("ls -d " + (folder / "pool") + "/*/step_*").out, "step_"));
  }
}

TEST_CASE("process I/O: every command refuses a folder that another program is writing to") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), run = folder / "run";
  REQUIRE(run_orrery(Words{"train", "--data=" + text, "--out=" + run} + tiny).code == 0);
  const std::string gpt2 = ORRERY_SOURCE_DIR "/tests/golden/hugging_face/gpt2";
  const std::string claim =
      folder.write("claim.toml", claim_text(folder, trained + "refuted_if = \"relu > softmax\"", two));
  const std::string busy = folder / "busy", pool = "--runs=" + (folder / "pool");
  struct Case {
    Words words;
    std::string locked;
  };
  const std::vector<Case> cases = {
      {Words{"train", "--data=" + text, "--out=" + busy} + tiny, busy},
      {{"prepare", "--input=" + text, "--out=" + busy}, busy},
      {{"import", gpt2, "--out=" + busy}, busy},
      {{"export", run, "--out=" + busy}, busy + ".partial"},
      {Words{"sweep", "--data=" + text, "--out=" + busy, pool} + tiny, busy},
      {{"study", claim, "--out=" + busy, pool}, busy},
      {{"study", "--all=" + folder.path(), "--out=" + busy, pool}, busy},
      {{"inspect", run, "--text=abe", "--analysis=normalization_curves", "--out=" + busy}, busy},
  };
  for (const Case& each : cases) {
    const std::string command = each.words[0];
    CAPTURE(command);
    const Outcome outcome =
        run_shell("mkdir -p " + each.locked + "; flock " + each.locked + "/.orrery.lock " + command_of(each.words));
    expect_error(outcome).names(command).value(each.locked).offers("--out");
    CHECK(run_shell("ls " + each.locked).out.empty());
    fs::remove_all(each.locked);
    // A lock that is a link to another file is not followed.
    const std::string precious = folder.write("precious", "kept"), link = each.locked + "/.orrery.lock";
    fs::create_directories(each.locked);
    fs::create_symlink(precious, link);
    expect_error(run_orrery(each.words)).names(link).value("symbolic link").offers("remove");
    CHECK(read_file(precious) == "kept");
    fs::remove_all(each.locked);
  }
  // Two at once without a foreign lock: one prepares, and its files equal those of a single one.
  const std::string shakespeare = ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt";
  const auto prepare = [&](const std::string& out) {
    return command_of({"prepare", "--input=" + shakespeare, "--tokenizer=character", "--out=" + (folder / out)});
  };
  REQUIRE(run_shell(prepare("alone")).code == 0);
  const Outcome both = run_shell(prepare("twice") + " & first=$!; " + prepare("twice") +
                                 "; second=$?; wait $first; echo \"codes $((second + $?))\"");
  CHECK_MESSAGE(contains(both.out, "codes 1\n"), both.out, both.err);
  CHECK(run_shell("diff -r " + (folder / "alone") + " " + (folder / "twice")).code == 0);
}

TEST_CASE("sweep: results of another sweep and foreign files are not replaced; the same sweep continues") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--seed={1,2}"});
  REQUIRE(run_orrery(words).code == 0);
  const auto tables = [&] { return read_file(folder / "sweep/runs.csv") + read_file(folder / "sweep/table.csv"); };
  const std::string before = tables();
  expect_error(run_orrery(sweep_of(folder, {"--seed={1,2}"}, "5")))
      .names(folder / "sweep")
      .value("seed=1")
      .offers("--out");
  expect_error(run_orrery(sweep_of(folder, {"--seed={2,3}"}))).names(folder / "sweep").value("seed=1").offers("--out");
  folder.write("text.txt", tiny_text());
  CHECK(tables() == before);
  // An equal sweep, and one with more runs.
  CHECK(run_orrery(words + Words{"--jobs=1", "--metric=bits_per_character"}).code == 0);
  const Outcome more = run_orrery(sweep_of(folder, {"--seed={1..3}"}));
  CHECK_MESSAGE(more.code == 0, more.err);
  for (const std::string name : {"table.csv", "runs.csv", "sweep.json"}) {
    const std::string kept = read_file(folder / ("sweep/" + name));
    for (const std::string& foreign : {std::string("a,b\n1,2\n"), std::string("not of this program"), std::string()}) {
      CAPTURE(name);
      folder.write("sweep/" + name, foreign);
      expect_error(run_orrery(sweep_of(folder, {"--seed={1..3}"}))).names(folder / ("sweep/" + name)).offers("--out");
      CHECK(read_file(folder / ("sweep/" + name)) == foreign);
    }
    folder.write("sweep/" + name, kept);
  }
}
