// Output files: a file that is not this program's output of that kind stays.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/training.h"
#include "tests/support/contents.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::contents_of_folder;
using orrery::testing::expect_error;

namespace {

struct Output {
  std::string kind;  // kind of the written file
  Words words;       // arguments without the path
  std::string key;   // setting that takes the path
};

Outcome with_path(const Output& output, const std::string& path) {
  return run_orrery(output.words + Words{"--" + output.key + "=" + path});
}

}  // namespace

TEST_CASE("output: metrics, inspect, report and show replace only their own kind of file") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--signal_propagation=yes"});
  const std::vector<Output> outputs = {
      {"csv", {"metrics", run}, "out"},
      {"csv", {"inspect", run, "--text=abe", "--analysis=heads"}, "out"},
      {"safetensors", {"inspect", run, "--text=abe", "--analysis=heads"}, "out"},
      {"html", {"inspect", run, "--text=abe", "--analysis=heads"}, "html"},
      {"html", {"report", run, "--analysis=none", "--samples=0"}, "out"},
      {"npy", {"show", run, "--tensor=norm.weight"}, "out"},
  };
  std::vector<std::string> made;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string path = folder / ("own" + std::to_string(i) + "." + outputs[i].kind);
    for (int times = 0; times < 2; ++times) {
      const Outcome outcome = with_path(outputs[i], path);
      CHECK_MESSAGE(outcome.code == 0, outcome.err);
    }
    made.push_back(path);
  }
  fs::create_directory(folder / "a.csv");
  expect_error(run_orrery({"metrics", run, "--out=" + (folder / "a.csv")}))
      .names("metrics: ")
      .value((folder / "a.csv") + " is a folder")
      .offers("choose a file");
  std::vector<std::string> others = {folder / "text.txt", folder.write("empty", ""),
                                     folder.write("page.html", "<!doctype html>\n<html lang=\"en\">\n<head>\n"),
                                     folder.write("table.csv", "step,loss\n1,2\n"), folder.write("x.npy", "\x93NUMPY")};
  for (const auto& [path, content] : contents_of_folder(run)) others.push_back(path);
  fs::create_symlink(run + "/settings.toml", folder / "link");
  others.push_back(folder / "link");
  fs::create_symlink(folder / "nowhere", folder / "dangling");
  others.push_back(folder / "dangling");
  const auto before = contents_of_folder(folder.path());
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<std::string> targets = others;
    for (size_t other = 0; other < made.size(); ++other)
      if (outputs[other].kind != outputs[i].kind || (outputs[i].kind == "csv" && other != i))
        targets.push_back(made[other]);
    for (const std::string& target : targets) {
      if (outputs[i].words[0] == "inspect" && outputs[i].key == "out" && !target.ends_with("." + outputs[i].kind))
        continue;
      CAPTURE(outputs[i].words);
      CAPTURE(target);
      expect_error(with_path(outputs[i], target)).names(target).offers("--" + outputs[i].key);
    }
  }
  CHECK(contents_of_folder(folder.path()) == before);
  CHECK(fs::is_symlink(folder / "dangling"));
}

TEST_CASE("output: metrics replaces its own table if the columns differ, but no other table") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--signal_propagation=yes"}), table = folder / "table.csv";
  const auto write = [&](const Words& more = {}) { return run_orrery(Words{"metrics", run, "--out=" + table} + more); };
  const Words few = {"--metrics=loss,validation_loss"};
  for (const Words& metrics : {few, Words(), few, Words{"--metrics=loss"}, Words()}) {
    const Outcome written = write(metrics);
    CHECK_MESSAGE(written.code == 0, written.err);
  }
  // The log has new rows and a new metric; once, its rows are from another training.
  const std::string before = read_file(table), log = read_file(run + "/metrics.jsonl");
  for (const std::string& others : {log, std::string(log).insert(log.find("\"loss\":") + 7, "1")}) {
    folder.write("table.csv", before);
    folder.write("run/metrics.jsonl", others + "{\"step\":5,\"loss\":2,\"new\":1}\n");
    const Outcome grown = write();
    CHECK_MESSAGE(grown.code == 0, grown.err);
    CHECK(read_file(table) != before);
  }
  folder.write("run/metrics.jsonl", log);
  const std::string row =
      log.substr(log.find("\"loss\":") + 7, log.find_first_of(",}", log.find("\"loss\":")) - log.find("\"loss\":") - 7);
  for (const std::string& foreign :
       {"step,loss\n1," + row + "0001\n", "step,loss\n1," + row + "\n2,x", std::string("step,loss\n"),
        std::string("step\n1\n"), std::string("step,reward\n1,2\n"), std::string("\"step,loss\n1,2\n")}) {
    CAPTURE(foreign);
    folder.write("table.csv", foreign);
    expect_error(write()).names(table).offers("--out");
    CHECK(read_file(table) == foreign);
  }
}

TEST_CASE("output: inspect, metrics, sweep and study do not replace foreign files in their folders") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--signal_propagation=yes"});
  fs::create_directory(folder / "seen");
  folder.write("seen/metrics.csv", "metric,value\nmine,3\n");
  const Words inspect = {"inspect", run, "--text=abe", "--analysis=heads,logit_lens", "--out=" + (folder / "seen")};
  expect_error(run_orrery(inspect)).names(folder / "seen/metrics.csv").offers("--out");
  CHECK(contents_of_folder(folder / "seen").size() == 1);
  fs::remove(folder / "seen/metrics.csv");
  for (int times = 0; times < 2; ++times) CHECK(run_orrery(inspect).code == 0);
  CHECK(contents_of_folder(folder / "seen").size() > 1);

  fs::create_directory(folder / "board");
  folder.write("board/events.out.tfevents.0.orrery", "mine");
  expect_error(run_orrery({"metrics", run, "--format=tensorboard", "--out=" + (folder / "board")}))
      .names(folder / "board/events.out.tfevents.0.orrery")
      .offers("--out");

  const Words sweep =
      Words{"sweep", "--data=" + (folder / "text.txt"), "--out=" + (folder / "swept"), "--runs=" + (folder / "pool")} +
      tiny;
  fs::create_directory(folder / "swept");
  for (const char* name : {"runs.csv", "table.csv", "sweep.json"}) {
    const std::string mine = folder.write(std::string("swept/") + name, "mine\n");
    expect_error(run_orrery(sweep)).names(mine).offers("--out");
    CHECK(!fs::exists(folder / "pool"));  // refused before training
    fs::remove(mine);
  }

  const std::string claim = folder.write("claim.toml", "");
  fs::create_directories(folder / "study/timing");
  for (const char* name : {"table.csv", "samples.csv", "runs.csv", "samples.svg"}) {
    const std::string mine = folder.write(std::string("study/") + name, "mine\n");
    expect_error(run_orrery({"study", claim, "--out=" + (folder / "study")})).names(mine).offers("--out");
    fs::remove(mine);
  }
  for (const char* name : {"README.md", "verdicts.csv"}) {
    fs::create_directory(folder / "claims");
    folder.write("claims/one.toml", "");
    const std::string mine = folder.write(std::string("claims/") + name, "mine\n");
    expect_error(run_orrery({"study", "--all=" + (folder / "claims")})).names(mine).offers("--out");
    CHECK(read_file(mine) == "mine\n");
    fs::remove(mine);
  }
}

TEST_CASE("output: try replaces only plug-ins that it has made") {
  const Folder folder;
  const std::string source = folder.write("mine.cpp", "");
  fs::create_directory(folder / "out");
  for (const char* name : {"mine.so", "mine.so.sha256"}) {
    const std::string mine = folder.write(std::string("out/") + name, "# mine\n");
    expect_error(run_orrery({"try", source, "--out=" + (folder / "out")})).names(mine).offers("--out");
    CHECK(read_file(mine) == "# mine\n");
    fs::remove(mine);
  }
}

TEST_CASE("output: import replaces neither a run nor a foreign settings file") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--signal_propagation=yes"}),
                    model = ORRERY_SOURCE_DIR "/tests/cases/llama_bos",
                    mine = folder.write("other/settings.toml", "mine\n");
  const auto before = contents_of_folder(folder.path());
  expect_error(run_orrery({"import", model, "--out=" + run})).names(run).offers("--out");
  expect_error(run_orrery({"import", model, "--out=" + (folder / "other")})).names(mine).offers("--out");
  CHECK(contents_of_folder(folder.path()) == before);
}
