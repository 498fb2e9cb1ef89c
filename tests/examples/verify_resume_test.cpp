// orrery verify_resume: every task comes to the same bytes, a run that forgets something is found out, and what is
// compared tells what differs first.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "engine/tensor/safetensors.h"
#include "models/study/resume_check.h"
#include "tests/examples/program.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

namespace {

Words train_tiny(const Folder& folder, const std::string& name, const Words& more) {
  return Words{"train", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + (folder / name)} + tiny + more;
}
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[entry.path().string()] = read_file(entry.path().string());
  return all;
}
void check_same(const Words& train, const std::string& run, const Words& more = {}) {
  const Outcome trained = run_orrery(train);
  REQUIRE_MESSAGE(is_complete(trained), trained.err);
  const auto before = contents(run);
  const Outcome verified = run_orrery(Words{"verify_resume", run, "--steps=2"} + more);
  INFO(verified.out, verified.err);
  CHECK(verified.code == 0);
  CHECK(last_line(verified.out) == "every byte is the same");
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "state.json", "metrics.jsonl"})
    CHECK_MESSAGE(contains(verified.out, file), file);
  CHECK(contents(run) == before);  // the run is as it was
  CHECK(!fs::exists(run + ".verify_resume"));
}

}  // namespace

TEST_CASE("verify_resume: a run of text that has ended, and one that has steps left, on its own schedule") {
  const Folder folder;
  check_same(train_tiny(folder, "ended", {"--dropout=0.1", "--schedule=cosine"}), folder / "ended");
  // Stopped at step 4 of 300: it goes on with the rates of 300 steps, and a validation falls on the interruption.
  const Words longer = train_tiny(
      folder, "going",
      {"--steps=300", "--checkpoint_every=1", "--evaluate_every=3", "--keep_checkpoints=0", "--accumulate=2"});
  REQUIRE(run_orrery(longer).code == 0);
  for (const auto& entry : fs::directory_iterator(folder / "going"))
    if (entry.is_directory() && entry.path().filename() > "step_000004") fs::remove_all(entry.path());
  const Outcome verified = run_orrery({"verify_resume", folder / "going", "--steps=2", "--out=" + (folder / "work")});
  INFO(verified.out, verified.err);
  CHECK(verified.code == 0);
  CHECK(contains(verified.out, "from step 4 to step 8, interrupted after step 6"));
  CHECK(contains(verified.out, "5 rows"));  // four steps, and the validation of step 6
  CHECK(last_line(verified.out) == "every byte is the same");
  CHECK(!fs::exists(folder / "work"));
}

TEST_CASE("verify_resume: streams, problems, images and translations") {
  const Folder folder;
  const auto out = [&](const std::string& name) { return "--out=" + (folder / name); };
  check_same(train_tiny(folder, "stream", {"--model=stream-char-small"}), folder / "stream");
  check_same(Words{"train", "--task=algorithmic", "--problem=copy(length=3)", out("copy")} + tiny, folder / "copy");
  const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/";
  check_same({"train", "--model=resnet", "--width=8", "--data=" + scraps + "images/shapes", "--batch=4", "--steps=2",
              "--flip", "--optimizer=sgd(momentum=0.9)", out("shapes")},
             folder / "shapes");
  check_same({"train", "--model=translation-small", "--layers=1", "--width=16", "--heads=2", "--steps=2",
              "--data=" + scraps + "translation/bible.tsv", "--tokenizer=byte", "--batch_tokens=256", out("bible")},
             folder / "bible");
}

TEST_CASE("verify_resume: what no checkpoint knows is found out, and both runs stay") {
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
  CHECK(found.code == 1);
  const std::string kept = folder / "run.verify_resume";
  CHECK(contains(found.err,
                 "orrery: verify_resume: a resumed run is another run: optimizer.safetensors differs first, "));
  CHECK(contains(found.err, "; the uninterrupted one is " + kept + "/uninterrupted, the other " + kept + "/resumed\n"));
  CHECK(contains(found.out, "metrics.jsonl"));
  CHECK(contains(found.out, "row 3, step 7: "));  // the first step after the interruption
  CHECK(fs::exists(kept + "/uninterrupted/step_000008/weights.safetensors"));
  CHECK(fs::exists(kept + "/resumed/step_000008/weights.safetensors"));
  CHECK(contains(run_orrery(Words{"verify_resume", folder / "run"} + plugin).err,
                 kept + " is there already; remove it, or choose another --out"));
}

TEST_CASE("verify_resume: what cannot be resumed is refused, and nothing is left behind") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "small", {"--save_optimizer=no"})).code == 0);
  const auto refusal = [&](const Words& words) {
    const Outcome outcome = run_orrery(Words{"verify_resume"} + words);
    CHECK(outcome.code == 1);
    return outcome.err;
  };
  CHECK(contains(refusal({folder / "small"}), "verify_resume: " + (folder / "small/step_000004") +
                                                  " was saved without the optimizer, so no run goes on from it"));
  CHECK(!fs::exists(folder / "small.verify_resume"));
  CHECK(contains(refusal({}), "verify_resume: 0 runs are given; give one"));
  CHECK(contains(refusal({folder / "none"}), "verify_resume: there is no folder " + (folder / "none")));
  CHECK(contains(refusal({folder.path()}), "verify_resume: " + folder.path() + " is no run: "));
  CHECK(contains(refusal({folder / "small", "--steps=0"}), "steps: 0 must be at least 1"));
  CHECK(contains(refusal({folder / "small", "--stepz=1"}), "did you mean 'steps'?"));
  fs::remove_all(folder / "small/step_000004");
  CHECK(contains(refusal({folder / "small"}), "holds no checkpoint; there is nothing to go on from yet"));
  // What stops a part of the training is told by it.
  REQUIRE(run_orrery(train_tiny(folder, "run", {})).code == 0);
  fs::remove(folder / "text.txt");
  CHECK(contains(refusal({folder / "run"}), "verify_resume: uninterrupted: "));
  CHECK(contains(refusal({folder / "run"}), "text.txt"));
  CHECK(!fs::exists(folder / "run.verify_resume"));
}

TEST_CASE("verify_resume: interrupted itself, it leaves nothing") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run", {})).code == 0);
  const std::string run = folder / "run";
  const Outcome stopped = run_shell(
      "$ORRERY verify_resume " + run + " --steps=100000 & pid=$!; for i in $(seq 200); do " + "sleep 0.05; [ -s " +
      run + ".verify_resume/run/metrics.jsonl ] && break; done; " + "kill -TERM $pid; wait $pid");
  INFO(stopped.out, stopped.err);
  CHECK(stopped.code == 128 + 15);
  CHECK(last_line(stopped.out) == "stopped");
  CHECK(!fs::exists(run + ".verify_resume"));
}

TEST_CASE("verify_resume: what differs first is named, in tensors, states, other files and rows") {
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
  CHECK(differences() == Map{{"extra", "it is in the first alone"},
                             {"notes", "byte 6"},
                             {"state.json", "files.x.sha256 is \"12\" and \"13\""},
                             {"weights.safetensors", "b: number 1 is 6 and 6.5; 1 of 2 tensors differs"}});
  folder.write("two/weights.safetensors", "damaged");
  CHECK(contains(differences().at("weights.safetensors"), "two/weights.safetensors"));

  using Rows = std::vector<orrery::models::LogRow>;
  using orrery::models::log_difference;
  const Rows rows = {{1, {{"loss", 2}, {"milliseconds", 3}}}, {2, {{"loss", NAN}}}};
  CHECK(log_difference(rows, Rows{{1, {{"loss", 2}, {"milliseconds", 4}}}, {2, {{"loss", NAN}}}}).empty());
  CHECK(log_difference(rows, Rows{rows[0], {2, {{"loss", 1}}}}) == "row 2, step 2: loss is nan and 1");
  CHECK(log_difference(rows, Rows{rows[0], {3, {{"loss", NAN}}}}) == "row 2, step 2: its step is 2 and 3");
  CHECK(log_difference(rows, Rows{rows[0], {2, {}}}) == "row 2, step 2: loss is in the first alone");
  CHECK(log_difference(Rows{rows[0], {2, {}}}, rows) == "row 2, step 2: loss is in the second alone");
  CHECK(log_difference(rows, Rows{rows[0]}) == "there are 2 rows and 1");
}
