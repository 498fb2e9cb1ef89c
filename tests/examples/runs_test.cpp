// Runs of orrery train: bit-identical, interrupted, resumed, in a folder that is in use or full.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/training.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::match_in;
using orrery::testing::Message;
using orrery::testing::rows_without_time;

TEST_CASE("train: the same seed gives the same bits for any number of threads") {
  const Folder folder;
  const auto train = [&](const std::string& out, const std::string& threads) {
    const Outcome outcome = run_orrery({"train", "--data=" + shakespeare, "--steps=50", "--evaluate_every=0",
                                        "--threads=" + threads, "--out=" + (folder / out)});
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    return weights(folder / out + "/step_000050");
  };
  const std::string one = train("one", "1"), two = train("two", "2");
  CHECK(one.size() > 805248 * 4);
  CHECK(one == two);
  CHECK(train("again", "2") == two);
  CHECK(rows_without_time(folder / "one") == rows_without_time(folder / "two"));
  CHECK(one.substr(0, 300).find("\"__metadata__\":{\"format\":") != std::string::npos);
}

TEST_CASE("train: a killed and resumed run equals an uninterrupted run") {
  const Folder folder;
  const Words more = {"--steps=60", "--checkpoint_every=20", "--evaluate_every=30"};
  REQUIRE(run_orrery(train_tiny(folder, "whole", more)).code == 0);
  // The reader kills the second run as soon as that prints its first checkpoint.
  std::string command = "\"$ORRERY\"";
  for (const std::string& word :
       train_tiny(folder, "killed", more + Words{"--steps=100000000", "--schedule=constant", "--keep_checkpoints=0"}))
    command += " '" + word + "'";
  const Outcome killed =
      run_shell("mkfifo " + (folder / "pipe") + "; " + command + " 2> " + (folder / "pipe") +
                " & while read -r line; do case $line in checkpoint:*) kill -9 $!; break;; esac; done < " +
                (folder / "pipe") + "; wait $!");
  REQUIRE(killed.code == 128 + 9);
  const Words constant = {"--schedule=constant"};
  REQUIRE(run_orrery(train_tiny(folder, "constant", more + constant)).code == 0);
  CHECK(!fs::exists(folder / "killed/step_100000000"));
  for (const auto& entry : fs::directory_iterator(folder / "killed"))  // the kill may come after step 20
    if (entry.path().filename() > "step_000020" && entry.is_directory()) fs::remove_all(entry.path());
  REQUIRE(fs::exists(folder / "killed/step_000020"));
  const Outcome resumed = run_orrery(train_tiny(folder, "killed", more + constant + Words{"--resume"}));
  INFO(resumed.out, resumed.err);
  CHECK(resumed.code == 0);
  Message(resumed.err).names("resumed").value("step 20");
  CHECK(weights(folder / "killed/step_000060") == weights(folder / "constant/step_000060"));
  CHECK(rows_without_time(folder / "killed") == rows_without_time(folder / "constant"));
  CHECK(weights(folder / "killed/step_000060") != weights(folder / "whole/step_000060"));
}

TEST_CASE("train: after an interrupt, the step is finished and saved, and the command to resume is printed") {
  const Folder folder;
  std::string command = "\"$ORRERY\"";
  for (const std::string& word :
       train_tiny(folder, "run", {"--steps=100000000", "--evaluate_every=0", "--checkpoint_every=0"}))
    command += " '" + word + "'";
  const Outcome outcome = run_shell(
      "mkfifo " + (folder / "pipe") + "; " + command + " 2> " + (folder / "pipe") +
      " & while read -r line; do echo \"$line\"; case $line in 'step '*' 1/100000000 '*) kill -INT $!;; esac; "
      "done < " +
      (folder / "pipe") + "; wait $!");
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 130);
  Message(outcome.out).names("stopped").names("step").value(100000000);
  CHECK(last_line(outcome.out) == "orrery train --resume=" + (folder / "run"));
  CHECK(!contains(outcome.out, "validation loss "));
  size_t checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(folder / "run"))
    checkpoints += fs::exists(entry.path() / "weights.safetensors");
  CHECK(checkpoints == 1);
}

TEST_CASE("train: a folder that contains a run is not overwritten") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run")).code == 0);
  const std::string before = weights(folder / "run/step_000004");
  expect_error(run_orrery(train_tiny(folder, "run")))
      .names(folder / "run")
      .offers("another --out")
      .offers("orrery train --resume=" + (folder / "run"));
  CHECK(weights(folder / "run/step_000004") == before);
  const Outcome nothing_left = run_orrery(train_tiny(folder, "run", {"--resume"}));
  INFO(nothing_left.out, nothing_left.err);
  CHECK(nothing_left.code == 0);
  CHECK(last_line(nothing_left.out).starts_with("validation loss "));
}

TEST_CASE("train: a second run in a folder is refused while the first one runs, but not after a kill") {
  const Folder folder;
  const auto command = [&](const Words& more) {
    std::string all = "\"$ORRERY\"";
    for (const std::string& word : train_tiny(folder, "run", more)) all += " '" + word + "'";
    return all;
  };
  const Outcome outcome = run_shell(
      "mkfifo " + (folder / "pipe") + "; " +
      command({"--steps=100000000", "--schedule=constant", "--checkpoint_every=0"}) + " 2> " + (folder / "pipe") +
      " & exec 3< " + (folder / "pipe") + "; while read -r line <&3; do case $line in 'step '*) break;; esac; done; " +
      command({}) + "; echo \"code $?, process $!\"; kill -9 $!; wait $!; " + command({}));
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  const auto process = match_in(outcome.out, "code 1, process (\\d+)\n");
  REQUIRE(process.size() == 2);
  expect_error(Outcome{1, "", outcome.err.substr(0, outcome.err.find('\n') + 1)})
      .names(folder / "run")
      .value(process[1])
      .offers("another --out");
  CHECK(fs::exists(folder / "run/step_000004"));
}

TEST_CASE("train: a non-finite loss stops the run, and the error names the step and the last good checkpoint") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run")).code == 0);
  const Outcome outcome =
      run_orrery(train_tiny(folder, "run",
                            {"--steps=400", "--learning_rate=1e30", "--schedule=constant", "--warmup_steps=0",
                             "--grad_clip=0", "--checkpoint_every=1", "--keep_checkpoints=1", "--resume"}));
  INFO(outcome.out, outcome.err);
  expect_error(outcome).names("loss").names("step").names("good").value(folder / "run/step_000004");
  CHECK(run_orrery({"generate", "--checkpoint=" + (folder / "run"), "--prompt=ae", "--tokens=5"}).code == 0);
}

TEST_CASE("train: a full disk leaves the previous checkpoint intact") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run")).code == 0);
  const std::string before = weights(folder / "run/step_000004");
  std::string command = "\"$ORRERY\"";
  for (const std::string& word : train_tiny(folder, "run", {"--steps=8", "--resume"})) command += " '" + word + "'";
  // No file may exceed 8 blocks; the signal is ignored, so the write fails as on a full disk.
  const Outcome full = run_shell("( trap '' XFSZ; ulimit -f 8; exec " + command + " )");
  INFO(full.out, full.err);
  expect_error(full)
      .names("checkpoint")
      .names(folder / "run/step_000008")
      .value("File too large")
      .offers(folder / "run/step_000004");
  CHECK(weights(folder / "run/step_000004") == before);
  CHECK(!fs::exists(folder / "run/step_000008"));
  for (const auto& entry : fs::directory_iterator(folder / "run")) CHECK(entry.path().extension() != ".partial");
  CHECK(run_orrery(train_tiny(folder, "run", {"--steps=8", "--resume"})).code == 0);
}
