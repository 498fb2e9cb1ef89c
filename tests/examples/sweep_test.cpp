// orrery sweep: every combination once, its tables, failures, and continuing when interrupted.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/examples/study.h"
#include "tests/examples/training.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"

using orrery::testing::Message;
namespace fs = std::filesystem;
using orrery::testing::expect_error;
using orrery::testing::logged_rows;
using Words = std::vector<std::string>;

namespace {

Words sweep_of(const Folder& folder, const Words& more) {
  return Words{"sweep", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + (folder / "sweep"),
               "--runs=" + (folder / "pool")} +
         tiny + more;
}
std::vector<std::vector<std::string>> csv(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);) {
    rows.emplace_back(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) rows.back().emplace_back();
      if (c != '"' && (c != ',' || quoted)) rows.back().back() += c;
    }
  }
  return rows;
}
double validation_in(const std::string& run) {
  double loss = NAN;
  for (const auto& row : logged_rows(run))
    if (row.contains("validation_loss")) loss = row.at("validation_loss");
  return loss;
}

}  // namespace

TEST_CASE("sweep: every combination is in the table, and a repeated sweep trains nothing") {
  const Folder folder;
  const Words words =
      sweep_of(folder, {"--attention={softmax,pointwise(relu, alpha=1)}", "--seed={1..3}", "--normalization=layer"});
  const Outcome first = run_orrery(words);
  INFO(first.out, first.err);
  REQUIRE(first.code == 0);
  Message(first.err).value("2 rows").value("6 runs").value("6 of 6").names("attention=");
  CHECK(contains(first.out, "reference"));
  CHECK((first.out + first.err).find('\x1b') == std::string::npos);
  const auto runs = written_runs(folder / "pool");
  CHECK(runs.size() == 6);

  // The tables agree with the logs of the runs.
  const auto each = csv(folder / "sweep/runs.csv"), table = csv(folder / "sweep/table.csv");
  REQUIRE(each.size() == 7);
  REQUIRE(table.size() == 3);
  std::map<std::string, std::vector<double>> losses;
  for (size_t i = 1; i < each.size(); ++i) losses[each[i][0]].push_back(validation_in(folder / ("pool/" + each[i][2])));
  const std::vector<double>&a = losses.at("attention=softmax"), &b = losses.at("attention=pointwise(relu, alpha=1)");
  const double d[] = {b[0] - a[0], b[1] - a[1], b[2] - a[2]}, mean = (d[0] + d[1] + d[2]) / 3;
  const double deviation =
      std::sqrt(((d[0] - mean) * (d[0] - mean) + (d[1] - mean) * (d[1] - mean) + (d[2] - mean) * (d[2] - mean)) / 2);
  CHECK(table[1][0] == "attention=softmax");
  CHECK(std::stod(table[1][2]) == doctest::Approx((a[0] + a[1] + a[2]) / 3).epsilon(1e-12));
  CHECK(std::stod(table[2][4]) == doctest::Approx(mean).epsilon(1e-9));
  CHECK(std::stod(table[2][5]) == doctest::Approx(mean - 4.302653 * deviation / std::sqrt(3)).epsilon(1e-6));
  CHECK(std::stod(table[2][6]) == doctest::Approx(mean + 4.302653 * deviation / std::sqrt(3)).epsilon(1e-6));

  // Another sweep trains only runs that are not shared; a key given several times is a list, too.
  const Outcome second = run_orrery(sweep_of(folder, {"--attention=softmax", "--attention=rela", "--seed={1..2}",
                                                      "--normalization=layer", "--out=" + (folder / "second")}));
  INFO(second.out, second.err);
  REQUIRE(second.code == 0);
  auto more = written_runs(folder / "pool");
  CHECK(more.size() == 8);
  for (const auto& [run, time] : runs) CHECK(more.at(run) == time);
  // --baseline by name, with the sign reversed.
  const Outcome against = run_orrery(words + Words{"--baseline=attention=pointwise(relu, alpha=1)"});
  CHECK(std::stod(csv(folder / "sweep/table.csv")[1][4]) == doctest::Approx(-mean).epsilon(1e-9));
  CHECK(written_runs(folder / "pool") == more);
}

// Renames all files of a pool to the id of a program with other sources.
void rename_hash(const std::string& pool, const std::string& end) {
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(pool)) all.push_back(entry.path());
  for (const fs::path& path : all) {
    const std::string name = path.filename();
    const size_t dot = std::min(name.find('.'), name.size());
    if (name.ends_with(".json")) {
      auto outcome = nlohmann::json::parse(read_file(path));
      outcome["version"] = "0.0.9 (sources 0123456789ab)";
      outcome.erase("sha256");  // older versions did not write it
      std::ofstream(path) << outcome.dump();
    }
    fs::rename(path, path.parent_path() / (name.substr(0, name.find('-')) + end + name.substr(dot)));
  }
}

TEST_CASE("sweep: runs of other sources are listed and used; only --retrain trains them again") {
  for (const char* end : {"-0123456789ab", ""}) {  // older versions wrote no hash
    CAPTURE(end);
    const Folder folder;
    const Words words = sweep_of(folder, {"--seed={1,2}"});
    const Outcome first = run_orrery(words);
    REQUIRE(first.code == 0);
    CHECK(!contains(first.err, "--retrain"));
    const auto own = written_runs(folder / "pool");
    REQUIRE(own.size() == 2);
    rename_hash(folder / "pool", end);
    const auto others = written_runs(folder / "pool");
    CHECK(others != own);

    const Outcome used = run_orrery(words);
    CHECK(used.code == 0);
    CHECK(written_runs(folder / "pool") == others);
    for (const auto& [run, time] : others)
      Message(used.err).names(run).value("0.0.9 (sources 0123456789ab)").offers("--retrain");

    const Outcome fresh = run_orrery(words + Words{"--retrain"});
    CHECK(fresh.code == 0);
    CHECK(!contains(fresh.err, "0.0.9"));
    CHECK(written_runs(folder / "pool").size() == 4);
    for (const auto& [run, time] : own) CHECK(written_runs(folder / "pool").at(run) > time);

    const auto both = written_runs(folder / "pool");
    const Outcome again = run_orrery(words);
    CHECK(again.code == 0);
    CHECK(!contains(again.err, "0.0.9"));
    CHECK(written_runs(folder / "pool") == both);
  }
}

TEST_CASE("sweep: locks and logs of a pool do not follow symbolic links") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--seed=1"});
  REQUIRE(run_orrery(words).code == 0);
  const std::string run = csv(folder / "sweep/runs.csv")[1][2], precious = folder.write("precious", "kept");
  for (const char* end : {".lock", ".log"}) {
    CAPTURE(end);
    fs::remove_all(folder / "pool");
    fs::create_directories(folder / "pool");
    const std::string link = folder / ("pool/" + run + end);
    fs::create_symlink(precious, link);
    expect_error(run_orrery(words)).names(link).value("symbolic link").offers("remove");
    CHECK(read_file(precious) == "kept");
  }
}

TEST_CASE("sweep: the runs are bit-identical to those of train") {
  const Folder folder;
  REQUIRE(run_orrery(sweep_of(folder, {"--seed={1,2}"})).code == 0);
  REQUIRE(is_complete(
      run_orrery(Words{"train", "--data=" + (folder / "text.txt"), "--out=" + (folder / "alone"), "--seed=2"} + tiny)));
  const std::string key = csv(folder / "sweep/runs.csv")[2][2];
  CHECK(read_file(folder / ("pool/" + key + "/step_000004/weights.safetensors")) ==
        read_file(folder / "alone/step_000004/weights.safetensors"));
}

TEST_CASE("sweep: a failed run has a row with its failure and is tried again") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--position={learned,relative(4)}", "--attention={softmax,gau}", "--heads=2"});
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = run_orrery(words);
    INFO(outcome.out, outcome.err);
    expect_error(outcome).names("sweep").value(2).value(4).names("failed").offers("again");
    CHECK(contains(outcome.out, "1 failed"));
    Message(outcome.err).names("gau: ").value("relative(S, keys)").offers("relative(S, bias)");  // the run's error
    CHECK(csv(folder / "sweep/runs.csv").size() == 5);
    CHECK(contains(read_file(folder / "sweep/table.csv"), "gau,0,"));
  }
}

TEST_CASE("sweep: an interrupted sweep resumes with the missing runs") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text());
  const std::string command =
      "$ORRERY sweep --data=" + text + " --out=" + (folder / "sweep") + " --runs=" + (folder / "pool") +
      " --layers=1 --heads=2 --width=16 --context=8 --batch_size=2 --steps=3000" + " '--seed={1..3}' --jobs=1";
  const Outcome stopped =
      run_shell(command + " & pid=$!; for i in $(seq 200); do sleep 0.05; [ $(ls " + (folder / "pool") +
                "/*.json 2>/dev/null | wc -l) -ge 1 ] && break; done; kill -TERM $pid; wait $pid");
  INFO(stopped.out, stopped.err);
  CHECK(stopped.code == 128 + 15);
  Message(stopped.err).names("stopped").value("3 runs").offers("same command");
  const auto before = written_runs(folder / "pool");
  const Outcome rest = run_shell(command);
  INFO(rest.out, rest.err);
  CHECK(rest.code == 0);
  Message(rest.err).value("3 of 3");
  const std::string done = csv(folder / "sweep/runs.csv")[1][2];
  CHECK(written_runs(folder / "pool").at(done) == before.at(done));
}

TEST_CASE("sweep: a run that diverges in its first steps is marked as diverged and counts with its loss") {
  const Folder folder;
  const Outcome outcome =
      run_orrery({"sweep", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + (folder / "sweep"),
                  "--runs=" + (folder / "pool"), "--layers=2", "--heads=2", "--width=32", "--context=8",
                  "--batch_size=2", "--steps=60", "--warmup_steps=0", "--learning_rate={0.01,1}",
                  "--normalization=none", "--seed=0", "--metrics_every=20", "--peak_tflops=0.5"});
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  const auto runs = csv(folder / "sweep/runs.csv");
  REQUIRE(runs.size() == 3);
  CHECK(runs[1][3] == "done");
  CHECK(runs[2][3] == "diverged");
  Message(runs[2][6]).names("diverged").value("step " + runs[2][4]);
  const auto table = csv(folder / "sweep/table.csv");
  REQUIRE(table[2].size() == 9);
  CHECK(table[2][1] == "1");
  const double losses[] = {validation_in(folder / ("pool/" + runs[1][2])),
                           validation_in(folder / ("pool/" + runs[2][2]))};
  CHECK(std::stod(table[2][2]) == doctest::Approx(losses[1]));
  CHECK(std::stod(table[2][4]) == doctest::Approx(losses[1] - losses[0]));
  CHECK(table[2][7] == "1");
  CHECK(table[2][8] == "0");
  // Steps with logged metrics, and the fraction of the stated peak (mfu).
  std::vector<double> steps;
  for (const auto& row : logged_rows(folder / ("pool/" + runs[1][2]))) {
    if (!row.contains("loss")) continue;
    const double multiply_adds = row.at("multiply_adds"), milliseconds = row.at("step_ms");
    const double expected_mfu = 2 * multiply_adds / (milliseconds * 1e-3) / 0.5e12;
    CHECK(row.at("mfu") == doctest::Approx(expected_mfu).epsilon(1e-6));
    if (row.contains("gradient_norm/token_embedding")) steps.push_back(row.at("step"));
  }
  CHECK(steps == std::vector<double>{1, 20, 40, 60});
}

TEST_CASE("sweep: the chosen metric is compared, and a metric that the runs lack is refused") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--attention={softmax,rela}", "--metric=bits_per_character"});
  const Outcome outcome = run_orrery(words);
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "bits per character"));
  const auto runs = csv(folder / "sweep/runs.csv"), table = csv(folder / "sweep/table.csv");
  const auto column = std::find(runs[0].begin(), runs[0].end(), "bits_per_character") - runs[0].begin();
  CHECK(table[1][2] == runs[1][static_cast<size_t>(column)]);
  const std::string before = read_file(folder / "sweep/table.csv");
  const auto refusal = [&](const std::string& metric) { return expect_error(run_orrery(words + Words{metric})); };
  refusal("--metric=bits_per_charcter").value("'bits_per_charcter'").names("--metric").offers("'bits_per_character'");
  const std::string available = "bits_per_character, training_loss, validation_loss";
  refusal("--metric=accuracy").value("'accuracy'").names("--metric").offers(available);
  CHECK(read_file(folder / "sweep/table.csv") == before);
}

TEST_CASE("sweep: a metric that the runs lack is reported after the first run, and no other run is trained") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--seed={1..4}", "--metric=acuracy", "--jobs=1"});
  for (const bool trained_before : {false, true}) {
    CAPTURE(trained_before);
    const Outcome outcome = run_orrery(words);
    expect_error(outcome).names("sweep").value("'acuracy'").names("--metric");
    Message(outcome.err).value("1 of 4");
    CHECK(!contains(outcome.err, "2 of 4"));
    CHECK(written_runs(folder / "pool").size() == 1);
    CHECK(!fs::exists(folder / "sweep/table.csv"));
  }
}

TEST_CASE("sweep: missing data fail only their row, and changed data give another run") {
  const Folder folder;
  folder.write("text.txt", tiny_text());
  const std::string nowhere = folder / "nowhere.txt", held_out = folder.write("held_out.txt", tiny_text());
  const Outcome outcome =
      run_orrery(sweep_of(folder, {"--data={" + (folder / "text.txt") + "," + nowhere + "}", "--seed=1"}));
  INFO(outcome.out, outcome.err);
  expect_error(outcome).names("sweep").value(1).value(2).names("failed").offers("again");
  const auto runs = csv(folder / "sweep/runs.csv");
  REQUIRE(runs.size() == 3);
  CHECK(runs[1][3] == "done");
  CHECK(runs[2][3] == "failed");
  Message(runs[2][6]).names(nowhere);
  expect_error(run_orrery({"sweep", "--data=" + nowhere, "--out=" + (folder / "none")})).names(nowhere);
  CHECK(!fs::exists(folder / "none"));
  // Another text at the same path gives another run.
  const auto run_of = [&](const std::string& out) {
    const Outcome each = run_orrery(sweep_of(folder, {"--validation_data=" + held_out, "--out=" + (folder / out)}));
    CHECK_MESSAGE(each.code == 0, each.err);
    return csv(folder / (out + "/runs.csv"))[1][2];
  };
  const std::string first = run_of("first");
  folder.write("held_out.txt", tiny_text() + tiny_text());
  CHECK(run_of("second") != first);
}

TEST_CASE("sweep: for a non-finite loss, the error message and the table give the same step") {
  const Folder folder;
  const Outcome outcome = run_orrery(
      sweep_of(folder, {"--learning_rate={0.001,1e30}", "--normalization=none", "--seed=1", "--grad_clip=0"}));
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  const auto runs = csv(folder / "sweep/runs.csv");
  REQUIRE(runs.size() == 3);
  CHECK(runs[2][3] == "diverged");
  Message(runs[2][6]).value("step " + runs[2][4]);
  const auto row = csv(folder / "sweep/table.csv")[2];  // the run was stopped, so that it has no loss
  REQUIRE(row.size() == 9);
  CHECK(row[1] == "0");
  CHECK(row[2].empty());
  CHECK(row[7] == "1");
}

TEST_CASE("sweep: on a terminal of 40 columns the table is redrawn in place") {
  const Folder folder;
  folder.write("text.txt", tiny_text());
  std::string command;
  for (const std::string& word :
       sweep_of(folder, {"--attention={softmax,pointwise(relu, alpha=1, length=keys_visible)}", "--seed={1,2}"}))
    command += " '" + word + "'";
  const std::optional<Outcome> shown = run_on_terminal("stty cols 40\nNO_COLOR=1 \"$ORRERY\"" + command);
  if (!shown) return;
  const Outcome& outcome = *shown;
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  // Four drawings; three of them move up by the lines of the last one. No line exceeds the screen.
  // The result, a table of any width, replaces the last drawing.
  size_t drawn = 0;
  const size_t begin = outcome.out.find("2 rows, 4 runs"), end = outcome.out.rfind("\x1b[4A\x1b[J");
  std::istringstream lines(outcome.out.substr(begin, end - begin));
  for (std::string line; std::getline(lines, line);) {
    const size_t up = line.find("\x1b[4A\x1b[J");
    drawn += up != std::string::npos;
    if (up != std::string::npos) line.erase(0, up + 7);
    line.erase(line.find_last_not_of('\r') + 1);
    CHECK_MESSAGE(line.size() <= 40, line);
  }
  CHECK(drawn == 3);
}

TEST_CASE("sweep: init_from is a list like any other setting, and its first run defines the settings") {
  const Folder folder;
  for (const std::string name : {"1", "2"})
    REQUIRE(is_complete(run_orrery(train_tiny(folder, "begun_" + name, {"--seed=" + name}))));
  const Words words = {"sweep", "--data=" + (folder / "text.txt"), "--out=" + (folder / "sweep"),
                       "--runs=" + (folder / "pool"), "--steps=1"};
  const std::string from = folder / "begun_";
  const Outcome braces = run_orrery(words + Words{"--init_from={" + from + "1," + from + "2}"});
  REQUIRE_MESSAGE(braces.code == 0, braces.err);
  const auto rows = csv(folder / "sweep/table.csv");
  REQUIRE(rows.size() == 3);
  CHECK(rows[1][0] == "init_from=" + from + "1");
  CHECK(rows[2][0] == "init_from=" + from + "2");
  CHECK(run_orrery(words + Words{"--init_from=" + from + "{1,2}"}).code == 0);
  CHECK(run_orrery(words + Words{"--init_from", from + "{1,2}"}).code == 0);
  CHECK(written_runs(folder / "pool").size() == 2);
}

TEST_CASE("sweep: all names of a setting give one list, and rows have its present name") {
  const Folder folder;
  const Words names = {"--batch_size=3", "--batch=4", "--lr=0.01", "--rate=0.02", "--initial_std={by_width,by_inputs}"};
  const Words baseline = {"--baseline=batch=3 lr=0.02 initial_std=by_width"};
  const Outcome outcome = run_orrery(sweep_of(folder, names + baseline));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  const auto table = csv(folder / "sweep/table.csv");
  REQUIRE(table.size() == 1 + 3 * 2 * 2);  // tiny gives a batch size, too
  CHECK(table[1][0] == "batch_size=2 learning_rate=0.01 initialization=by_width");
  CHECK(table[12][0] == "batch_size=4 learning_rate=0.02 initialization=by_inputs");
  REQUIRE(table[7][0] == "batch_size=3 learning_rate=0.02 initialization=by_width");
  for (size_t i = 1; i < table.size(); ++i) CHECK(table[i][4].empty() == (i == 7));  // the reference has no difference
  // An error names the setting as it was typed.
  expect_error(run_orrery(sweep_of(folder, {"--rate={0.1,x}"}))).names("rate").value("'x'");
}

TEST_CASE("sweep: invalid settings are refused before any training") {
  const Folder folder;
  const auto refusal = [&](const Words& more, int code = 0) {
    const Outcome outcome = run_orrery(sweep_of(folder, more));
    CHECK(!fs::exists(folder / "pool"));
    return expect_error(outcome, code);
  };
  refusal({"--seed={0..4"}).names("sweep").value("'{0..4'").names("brace");
  refusal({"--seed={0..1000}"}).names("sweep").value("1001 runs").value("1,000").offers("--yes");
  refusal({"--attntion={softmax,rela}"}).value("'attntion'").offers("'attention'");
  refusal({"--baseline=7", "--seed={1,2}"}).names("sweep").names("row").value("'7'").offers("all");
  refusal({"--resume={yes,no}"}).names("sweep").value("--resume={yes,no}").offers("same command");
  refusal({"--dropout={0,0.0}"}).names("dropout=0").value("dropout=0.0").offers("leave one");
  refusal({"--width={16,016,1.6e1}"}).names("width=16").value("width=016").offers("leave one");
  refusal({"--mask={causal and window(4),(causal) and window(w=4)}"})
      .names("mask=causal and window(4)")
      .value("mask=(causal) and window(w=4)")
      .offers("leave one");
  refusal({"--baseline={softmax,rela}"}).names("baseline").value("{softmax,rela}").offers("one value");
  refusal({"--threads=2"}).names("sweep").value("--threads=2").offers("--jobs");
  refusal({"--mask={causal,causal and window(w=3,w=4)}"}, 2).names("mask").value("'w'").offers("leave one");
  refusal({"--mask={causal,causal and windw(3)}"}, 2).names("mask").value("'windw'").offers("'window'");
  refusal({"--mask={causal,window(4)}"}, 2).names("gpt: mask").value("window(4)").offers("causal and (window(4))");
  refusal({"--model={gpt,stream}", "--mask=causal or prefix(2)"}, 2).names("stream: mask").offers("leave prefix out");
}

TEST_CASE("sweep: a warning and the report name rows whose losses are not comparable") {
  const Folder folder;
  const Words words = sweep_of(folder, {"--tokenizer={byte,character}", "--seed=1"});
  const Outcome outcome = run_orrery(words);
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  Message(outcome.err).names("warning: validation_loss").names("tokenizer").offers("bits_per_character");
  const std::string note = nlohmann::json::parse(read_file(folder / "sweep/sweep.json")).at("note");
  CHECK(contains(outcome.err, note));
  REQUIRE(run_orrery({"report", folder / "sweep", "--out=" + (folder / "page.html")}).code == 0);
  CHECK(contains(read_file(folder / "page.html"), note));
  const Outcome bits = run_orrery(words + Words{"--metric=bits_per_character"});
  CHECK(bits.code == 0);
  CHECK(!contains(bits.err, "warning"));
  CHECK(!contains(read_file(folder / "sweep/sweep.json"), "note"));
}
