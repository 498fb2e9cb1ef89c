// Resuming a run: its folder is enough, and an interruption prints the command to paste.
#include <doctest/doctest.h>
#include <signal.h>

#include <array>
#include <filesystem>

#include "tests/examples/program.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

Words learning(const Folder& folder, const std::string& out, const Words& more = {}) {
  return Words{"train", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + out} + tiny +
         Words{"--evaluate_every=0", "--learning_rate=0.003"} + more;
}
Outcome good(const Words& words) {
  Outcome outcome = run_orrery(words);
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  return outcome;
}
std::string weights_at(const std::string& run, const std::string& step) {
  return read_file(run + "/step_" + step + "/weights.safetensors");
}

}  // namespace

TEST_CASE("resume: the folder of a run suffices, and further settings change those of the run") {
  const Folder folder;
  const std::string whole = folder / "whole";
  good(learning(folder, whole, {"--steps=8"}));
  const std::string own = folder.write("own.toml", "out = \"" + (folder / "run6") + "\"\nresume = true\n"),
                    foreign = folder.write("foreign.toml", "out_dir = \"" + (folder / "run7") + "\"\n");
  const std::vector<Words> forms = {
      {"--resume=RUN", "--steps=8"},
      {"--steps=8", "--resume=RUN/"},
      {"--out=RUN", "--resume=yes", "--steps=8"},
      {"--out_dir=RUN", "--resume", "--max_iters=8"},
      {"--config=RUN/settings.toml", "--resume=yes", "--steps=8"},
      {"--out=RUN", "--resume=RUN", "--steps=8"},
      {"--config=" + own, "--steps=8"},
      {"--config=" + foreign, "--resume", "--steps=8"},
  };
  for (size_t i = 0; i < forms.size(); ++i) {
    const std::string run = folder / ("run" + std::to_string(i));
    good(learning(folder, run, {"--steps=4", "--schedule=constant"}));
    Words words = {"train"};
    for (std::string word : forms[i]) {
      if (const size_t at = word.find("RUN"); at != std::string::npos) word.replace(at, 3, run);
      words.push_back(word);
    }
    CAPTURE(words);
    const Outcome outcome = good(words);
    Message(outcome.err).names("learning_rate=0.003").names("resumed").value("step 4");
    CHECK(fs::exists(run + "/step_000008"));
  }
  // Bit-identical to resuming with all settings given.
  const std::string short_form = folder / "short", long_form = folder / "long";
  for (const std::string& run : {short_form, long_form}) good(learning(folder, run, {"--schedule=constant"}));
  good({"train", "--resume=" + short_form, "--steps=8"});
  good(learning(folder, long_form, {"--schedule=constant", "--resume=yes", "--steps=8"}));
  CHECK(weights_at(short_form, "000008") == weights_at(long_form, "000008"));
}

TEST_CASE("resume: a path that is not a run, another folder and another model are refused") {
  const Folder folder;
  const std::string run = folder / "run";
  good(learning(folder, run));
  fs::create_directory(folder / "empty");
  expect_error(run_orrery({"train", "--resume=" + (folder / "none")}))
      .names("resume")
      .value(folder / "none")
      .offers("yes");
  expect_error(run_orrery({"train", "--resume=" + (folder / "empty")})).names(folder / "empty");
  expect_error(run_orrery({"train", "--resume=ye"})).names("resume").value("ye");
  expect_error(run_orrery({"train", "--resume=" + run, "--out=" + (folder / "other")}))
      .names(run)
      .value(folder / "other")
      .offers("--init_from");
  CHECK(!fs::exists(folder / "other"));
  expect_error(run_orrery({"train", "--resume=" + run, "--width=32"})).names("width").value(16);
  for (const auto& each : {std::array<std::string, 3>{"model", "gpt", "vit"},
                           {"model", "gpt", "translation-small"},
                           {"task", "language_modeling", "translation"}}) {
    const auto& key = each[0];
    const auto& its = each[1];
    const auto& other = each[2];
    CAPTURE(other);
    expect_error(run_orrery({"train", "--resume=" + run, "--" + key + "=" + other}))
        .names(run)
        .names(key)
        .value(its)
        .offers("orrery train --resume=" + run);
  }
  expect_error(run_orrery(learning(folder, run))).names(run).offers("orrery train --resume=" + run);
}

TEST_CASE("resume: an interrupted run prints the command that resumes it, quoted for a shell") {
  const Folder folder;
  const std::string run = folder / "my run, the $1st; 'it'";
  const std::string text = folder.write("text.txt", tiny_text());
  const std::string quoted = [&] {
    std::string all = "'";
    for (const char c : run) all += c == '\'' ? "'\\''" : std::string(1, c);
    return all + "'";
  }();
  const std::string begin = "\"$ORRERY\" train --data=" + text + " --out=" + quoted +
                            " --layers=1 --heads=2 --width=16 --context=8 --batch_size=2 --evaluate_every=0 "
                            "--checkpoint_every=0 --metrics=none --schedule=constant --steps=100000000";
  const Outcome stopped = run_shell("( " + begin + " & pid=$!; while [ ! -s " + quoted +
                                    "/metrics.jsonl ]; do sleep 0.05; done; kill -INT $pid; wait $pid )");
  CHECK(stopped.code == 130);
  const std::string command = last_line(stopped.err);
  REQUIRE(command.starts_with("orrery train '--resume="));
  size_t reached = 0;
  for (const auto& entry : fs::directory_iterator(run)) reached += entry.is_directory();
  CHECK(reached == 1);
  const Outcome pasted = run_shell(
      "orrery() { exec \"$ORRERY\" \"$@\"; }; ( " + command + " --device=none ) ; echo; rows=$(wc -l < " + quoted +
      "/metrics.jsonl); ( " + command + " & pid=$!; while [ $(wc -l < " + quoted +
      "/metrics.jsonl) -le $rows ] && kill -0 $pid 2> /dev/null; do sleep 0.05; done; kill -INT $pid; wait $pid )");
  expect_error(Outcome{1, "", pasted.err}).names("device").value("none").offers("cpu");
  Message(pasted.err).names("resumed").names("step");
  CHECK(last_line(pasted.err) == command);
}
