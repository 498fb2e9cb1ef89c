// orrery verify_resume: every task resumes to identical bytes, a run that loses state is detected,
// and the report names the first difference.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "engine/tensor/safetensors.h"
#include "models/study/checkpoint_diff.h"
#include "tests/examples/training.h"
#include "tests/support/contents.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::contents_of_folder;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

void check_same(const Words& train, const std::string& run, const Words& more = {}) {
  const Outcome trained = run_orrery(train);
  REQUIRE_MESSAGE(is_complete(trained), trained.err);
  const auto before = contents_of_folder(run);
  const Outcome verified = run_orrery(Words{"verify_resume", run, "--steps=2"} + more);
  INFO(verified.out, verified.err);
  CHECK(verified.code == 0);
  CHECK(last_line(verified.out) == "all bytes are identical");
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "state.json", "metrics.jsonl"})
    CHECK_MESSAGE(contains(verified.out, file), file);
  CHECK(contents_of_folder(run) == before);  // the run is unchanged
  CHECK(!fs::exists(run + ".verify_resume"));
}

}  // namespace

TEST_CASE("verify_resume: finished and unfinished text runs keep their schedules and resume identically") {
  const Folder folder;
  check_same(train_tiny(folder, "ended", {"--dropout=0.1", "--schedule=cosine"}), folder / "ended");
  // Stopped at step 4 of 300, it keeps the learning rates of 300; the interruption validates.
  const Words longer = train_tiny(
      folder, "going",
      {"--steps=300", "--checkpoint_every=1", "--evaluate_every=3", "--keep_checkpoints=0", "--accumulate=2"});
  REQUIRE(run_orrery(longer).code == 0);
  for (const auto& entry : fs::directory_iterator(folder / "going"))
    if (entry.is_directory() && entry.path().filename() > "step_000004") fs::remove_all(entry.path());
  const Outcome verified = run_orrery({"verify_resume", folder / "going", "--steps=2", "--out=" + (folder / "work")});
  INFO(verified.out, verified.err);
  CHECK(verified.code == 0);
  Message(verified.err).names("step 4").names("step 8").names("step 6");
  CHECK(contains(verified.out, "5 rows"));  // four steps, and the validation of step 6
  CHECK(last_line(verified.out) == "all bytes are identical");
  CHECK(!fs::exists(folder / "work"));
}

TEST_CASE("verify_resume: text streams, problems, images and translations resume identically") {
  const Folder folder;
  const auto out = [&](const std::string& name) { return "--out=" + (folder / name); };
  check_same(train_tiny(folder, "stream", {"--model=stream-char-small"}), folder / "stream");
  check_same(Words{"train", "--task=algorithmic", "--problem=copy(length=3)", out("copy")} + tiny, folder / "copy");
  const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/";
  check_same({"train", "--model=resnet", "--width=8", "--data=" + scraps + "images/shapes", "--batch_size=4",
              "--steps=2", "--flip", "--optimizer=sgd(momentum=0.9)", out("shapes")},
             folder / "shapes");
  check_same({"train", "--model=translation-small", "--layers=1", "--width=16", "--heads=2", "--steps=2",
              "--data=" + scraps + "translation/bible.tsv", "--tokenizer=byte", "--batch_tokens=256", out("bible")},
             folder / "bible");
}

TEST_CASE("verify_resume: state outside the checkpoint is detected, and both runs are kept") {
  const Folder folder;
  const Outcome tried = run_orrery(
      {"try", ORRERY_SOURCE_DIR "/tests/examples/plugins/forgetful.cpp", "--out=" + (folder / "plugins"), "--steps=0"});
  INFO(tried.out, tried.err);
  REQUIRE(tried.code == 0);
  const Words plugin = {"--plugin=" + (folder / "plugins/forgetful.so")};
  REQUIRE(run_orrery(train_tiny(folder, "run", plugin + Words{"--attention=forgetful_softmax"})).code == 0);
  const Outcome found = run_orrery(Words{"verify_resume", folder / "run", "--steps=2"} + plugin);
  CAPTURE(found.out);
  CAPTURE(found.err);
  const std::string kept = folder / "run.verify_resume";
  expect_error(found)
      .names("verify_resume")
      .names("optimizer.safetensors")
      .offers(kept + "/uninterrupted")
      .offers(kept + "/resumed");
  CHECK(contains(found.out, "metrics.jsonl"));
  CHECK(contains(found.out, "row 3, step 7: "));  // the first step after the interruption
  CHECK(fs::exists(kept + "/uninterrupted/step_000008/weights.safetensors"));
  CHECK(fs::exists(kept + "/resumed/step_000008/weights.safetensors"));
  expect_error(run_orrery(Words{"verify_resume", folder / "run"} + plugin)).names(kept).offers("another --out");
}

TEST_CASE("verify_resume: a run that cannot be resumed is refused, and no files are left") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "small", {"--save_optimizer=no"})).code == 0);
  const auto refusal = [&](const Words& words) {
    return expect_error(run_orrery(Words{"verify_resume"} + words)).names("verify_resume");
  };
  refusal({folder / "small"}).names(folder / "small/step_000004").value("optimizer").offers("--save_optimizer=yes");
  CHECK(!fs::exists(folder / "small.verify_resume"));
  refusal({}).value(0).offers("orrery verify_resume runs/mine");
  refusal({folder / "none"}).value(folder / "none").offers("orrery train --out");
  refusal({folder.path()}).value(folder.path()).offers("settings.toml");
  refusal({folder / "small", "--steps=0"}).names("steps").value(0).offers(1);
  refusal({folder / "small", "--stepz=1"}).value("stepz").offers("steps");
  fs::remove_all(folder / "small/step_000004");
  refusal({folder / "small"}).names(folder / "small").value("no checkpoint");
  // An error in one of the trainings names that training.
  REQUIRE(run_orrery(train_tiny(folder, "run", {})).code == 0);
  fs::remove(folder / "text.txt");
  refusal({folder / "run"}).names("until the interruption").names("text.txt").value("No such file");
  refusal({folder / "run", "--launcher=no_such_program -n 3"}).value("no_such_program").value("No such file");
  refusal({folder / "run", "--launcher=false"}).names("until the interruption").value("exit code 1");
  refusal({folder / "run", "--launcher=true"}).names("until the interruption").names("step 4").value(14);
  CHECK(!fs::exists(folder / "run.verify_resume"));
}

TEST_CASE("verify_resume: an interrupted check leaves no files") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run", {})).code == 0);
  const std::string run = folder / "run";
  const Outcome stopped = run_shell(
      "$ORRERY verify_resume " + run + " --steps=100000 & pid=$!; for i in $(seq 200); do " + "sleep 0.05; [ -s " +
      run + ".verify_resume/run/metrics.jsonl ] && break; done; " + "kill -TERM $pid; wait $pid");
  INFO(stopped.out, stopped.err);
  CHECK(stopped.code == 128 + 15);
  CHECK(last_line(stopped.err) == "stopped");
  CHECK(!fs::exists(run + ".verify_resume"));
}

TEST_CASE("verify_resume: the first difference of tensors, states, other files and rows is named") {
  const Folder folder;
  const auto write = [&](const std::string& name, double changed) {
    fs::create_directory(folder / name);
    const orrery::Tensor a = orrery::Tensor::from(orrery::Shape{3}, {1, 2, 3}),
                         b = orrery::Tensor::from(orrery::Shape{2}, {5, changed});
    orrery::write_safetensors(folder / (name + "/weights.safetensors"),
                              std::vector<orrery::NamedTensor>{{"a", a}, {"b", b}});
    folder.write(name + "/state.json", R"({"step": 4, "files": {"x": {"sha256": "12"}}})");
    folder.write(name + "/notes", "some bytes");
  };
  write("one", 6), write("two", 6);
  const auto differences = [&] {
    std::map<std::string, std::string> all;
    for (const auto& file : orrery::models::compare_checkpoints(folder / "one", folder / "two"))
      all[file.name] = file.difference;
    return all;
  };
  using Map = std::map<std::string, std::string>;
  CHECK(differences() == Map{{"notes", ""}, {"state.json", ""}, {"weights.safetensors", ""}});
  write("two", 6.5);
  folder.write("two/state.json", R"({"step": 4, "files": {"x": {"sha256": "13"}}})");
  folder.write("two/notes", "some bites");
  folder.write("one/extra", "1");
  const Map found = differences();
  CHECK(found.size() == 4);
  Message(found.at("extra")).names("first");
  Message(found.at("notes")).names("byte").value(6);
  Message(found.at("state.json")).names("files.x.sha256").value("\"12\"").value("\"13\"");
  Message(found.at("weights.safetensors")).names("b").names("number 1").value(6).value(6.5).value("1 of 2");
  folder.write("two/weights.safetensors", "damaged");
  CHECK(contains(differences().at("weights.safetensors"), "two/weights.safetensors"));

  using Rows = std::vector<orrery::models::LogRow>;
  using orrery::models::log_difference;
  const Rows rows = {{1, {{"loss", 2}, {"step_ms", 3}}}, {2, {{"loss", NAN}}}};
  CHECK(log_difference(rows, Rows{{1, {{"loss", 2}, {"step_ms", 4}}}, {2, {{"loss", NAN}}}}).empty());
  const auto differ = [](const Rows& a, const Rows& b) { return Message(log_difference(a, b)); };
  differ(rows, {rows[0], {2, {{"loss", 1}}}}).names("row 2").names("step 2").names("loss").value("nan").value(1);
  differ(rows, {rows[0], {3, {{"loss", NAN}}}}).names("row 2").names("step 2").names("step").value(2).value(3);
  differ(rows, {rows[0], {2, {}}}).names("row 2").names("step 2").names("loss").value("first");
  differ({rows[0], {2, {}}}, rows).names("row 2").names("step 2").names("loss").value("second");
  differ(rows, {rows[0]}).value(2).value(1).names("rows");
}
