// Signals end a training with a checkpoint and the exit code of the signal.
#include <doctest/doctest.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "tests/examples/process_io.h"
#include "tests/support/message.h"

using Words = std::vector<std::string>;
using orrery::testing::Message;

namespace {

// Weeks, but not ten years (which is refused), even on a busy machine.
const std::string endless_steps = "1000000";
const Words endless = {"--steps=" + endless_steps, "--evaluate_every=0", "--checkpoint_every=0"};

// Trains endlessly and runs `then` in a shell after the first printed step; $pid is the program.
Outcome after_first_step(const Folder& folder, const Words& words, const std::string& then) {
  std::signal(SIGHUP, SIG_DFL);  // under nohup, the program would ignore it, too
  return run_shell("mkfifo " + (folder / "pipe") + "; " + command_of(words) + " 2> " + (folder / "pipe") +
                   " & pid=$!; while read -r line; do echo \"$line\"; case $line in 'step '*' 1/" + endless_steps +
                   " '*) " + then + ";; esac; done < " + (folder / "pipe") + "; wait $pid");
}

}  // namespace

TEST_CASE("signals: a signal ends training with a checkpoint, without validation, and sets the exit code") {
  const std::pair<const char*, int> signals[] = {
      {"INT", 130}, {"TERM", 143}, {"HUP", 129},    {"XCPU", 152}, {"USR1", 138}, {"USR2", 140},
      {"PWR", 158}, {"ALRM", 142}, {"VTALRM", 154}, {"PROF", 155}, {"29", 157},   {"16", 144}};  // IO, STKFLT
  for (const auto& each : signals) {
    const auto& [name, code] = each;
    CAPTURE(each.first);
    const Folder folder;
    const Outcome outcome =
        after_first_step(folder, train_tiny(folder, endless), std::string("kill -") + name + " $pid");
    INFO(outcome.out, outcome.err);
    CHECK(outcome.code == code);
    Message(outcome.out).names("stopped").names("step").value(endless_steps);
    CHECK(last_line(outcome.out) == "orrery train --resume=" + (folder / "run"));
    CHECK(!contains(outcome.out, "validation loss"));
    CHECK(!contains(read_file(folder / "run/metrics.jsonl"), "validation_loss"));
    CHECK(checkpoints_in(folder / "run") == 1);
  }
}

TEST_CASE("signals: a signal during validation ends it, and the checkpoint is saved at once") {
  const Folder folder;
  const Words words = {"train",
                       "--data=" ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt",
                       "--out=" + (folder / "run"),
                       "--layers=4",
                       "--width=128",
                       "--context=128",
                       "--batch_size=1",
                       "--validation_fraction=0.9",
                       "--steps=" + endless_steps,
                       "--evaluate_every=1"};
  const Outcome outcome = after_first_step(folder, words, "kill -TERM $pid");
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 143);
  CHECK(checkpoints_in(folder / "run") == 1);
  CHECK(!contains(read_file(folder / "run/metrics.jsonl"), "validation_loss"));  // it takes many seconds
}

TEST_CASE("signals: training saves at its CPU time limit, although the system repeats the signal") {
  const Folder folder;
  const Outcome limited = run_shell("ulimit -S -t 2; " + command_of(train_tiny(folder, endless)));
  INFO(limited.out, limited.err);
  CHECK(limited.code == 152);
  Message(limited.err).names("stopped").names("step").value(endless_steps);
  CHECK(checkpoints_in(folder / "run") == 1);

  const Folder other;
  const Outcome repeated = after_first_step(other, train_tiny(other, endless), "kill -XCPU $pid; kill -XCPU $pid");
  INFO(repeated.out, repeated.err);
  CHECK(repeated.code == 152);
  CHECK(checkpoints_in(other / "run") == 1);
}

TEST_CASE("signals: a second signal ends the program at once, and a signal ignored by nohup has no effect") {
  const Folder folder;
  const Words slow = {"train",
                      "--data=" ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt",
                      "--out=" + (folder / "run"),
                      "--layers=4",
                      "--width=256",
                      "--heads=4",
                      "--context=256",
                      "--batch_size=64"};
  const Outcome twice =
      after_first_step(folder, slow + endless, "sleep 0.3; kill -INT $pid; sleep 0.1; kill -TERM $pid");
  INFO(twice.out, twice.err);
  CHECK(twice.code == 128 + 15);
  CHECK(checkpoints_in(folder / "run") == 0);

  const Folder other;
  const Outcome hung_up = run_shell(
      "trap '' HUP; mkfifo " + (other / "pipe") + "; " + command_of(train_tiny(other)) + " 2> " + (other / "pipe") +
      " & while read -r line; do case $line in step*) kill -HUP $!;; esac; done < " + (other / "pipe") + "; wait $!");
  INFO(hung_up.err);
  CHECK(hung_up.code == 0);
  CHECK(checkpoints_in(other / "run") == 1);
}
