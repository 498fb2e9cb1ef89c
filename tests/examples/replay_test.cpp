// orrery train --nan_guard=yes and orrery replay, as users run them.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/program.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::match_in;
using orrery::testing::Message;

namespace {

Words diverging(const Folder& folder, const Words& more = {}) {
  return Words{"train", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + (folder / "run")} + tiny +
         Words{"--steps=9",        "--learning_rate=1e30", "--schedule=constant",
               "--warmup_steps=0", "--checkpoint_every=1", "--nan_guard=yes"} +
         more;
}
std::string line_with(const std::string& text, const std::string& expected) {
  const size_t at = text.find(expected), begin = text.rfind('\n', at) + 1;
  return at == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("replay: a run with a non-finite value ends with one error message, and replay repeats its step") {
  const Folder folder;
  const Outcome run = run_orrery(diverging(folder));
  INFO(run.out, run.err);
  const auto found = match_in(run.err,
                              "orrery: train: ([^;]*\\bstep (\\d+)\\b[^;]*\\bforward\\b[^;]*?"
                              "\\b(blocks\\.0[.\\w]*)[^;]*\\boutput\\b[^;]*; [^;]*);");
  REQUIRE(found.size() == 4);  // all, message, step, module
  expect_error(run).names("step").value(found[2]).names(found[3]).offers("orrery replay " + (folder / "run"));

  const Outcome again = run_orrery({"replay", folder / "run"});
  INFO(again.out, again.err);
  CHECK(again.code == 0);
  Message(again.out).names("step " + found[2]).names(folder / "run/replay").value(found[1]).value("number for number");
  CHECK(contains(line_with(again.out, "model > blocks.0"), found[3]));
  CHECK(finds(again.out, "\n +tensor +dtype +shape +smallest +largest +NaN +inf +-inf\n"));
  CHECK(finds(again.out, "\n  input   blocks\\.0\\.[.\\w]*weight +f32 +\\(\\d+, 16\\) "));
  CHECK(finds(again.out, "\n  output  output"));
  CHECK(finds(again.out, "\noperations\\b.*\n.*\n(  .*\n)*  \\w+ +forward +token_embedding"));
  CHECK(run_orrery({"replay", folder / "run/replay"}).out == again.out);  // accepts either folder
  CHECK(run_orrery({"replay", folder / "run", "--threads=1"}).out == again.out);
  const Outcome short_one = run_orrery({"replay", folder / "run", "--calls=0"});
  CHECK(again.out.starts_with(short_one.out));
  CHECK(!contains(short_one.out, "\noperations"));
}

TEST_CASE("replay: the saved step can be repeated with other settings") {
  const Folder folder;
  // Step 1 makes weights of 1e30; with a lower learning rate the step is finite.
  const Outcome run = run_orrery(diverging(folder, {"--lr_scales=*=1e9"}));
  INFO(run.out, run.err);
  expect_error(run).names("step 1").names("update").names("adamw");
  const Outcome again = run_orrery({"replay", folder / "run"});
  INFO(again.out, again.err);
  CHECK(again.code == 0);
  CHECK(contains(again.out, ", before  "));
  const Outcome lower = run_orrery({"replay", folder / "run", "--learning_rate=1e-3", "--lr_scales="});
  INFO(lower.out, lower.err);
  CHECK(lower.code == 1);
  Message(lower.out).names("step 1").value("every value").names("step 1").names("update").names("adamw");
  CHECK(lower.err.empty());
}

TEST_CASE("replay: a folder without a saved step, changed data and unknown settings are refused") {
  const Folder folder;
  const auto error = [&](const Words& more) { return expect_error(run_orrery(Words{"replay"} + more)); };
  error({}).names("replay").names("folder").offers("--nan_guard=yes").offers("orrery replay");
  error({folder / "none"}).names(folder / "none").value("found.json").offers("--nan_guard=yes");
  REQUIRE(run_orrery(diverging(folder)).code == 1);
  const Outcome of_run = run_orrery({"replay", folder / "run", "--help=all"});
  CHECK(contains(of_run.out, "\n  --learning_rate=1e30 "));
  error({folder / "run", "--learnin_rate=1"}).value("learnin_rate").offers("learning_rate");
  error({folder / "run", folder / "run"}).names("replay").value("2 folders").offers("one");
  const Message width = error({folder / "run", "--width=32"}).names("width=16").value(32).offers("leave width out");
  CHECK(!contains(width.message(), "orrery train"));  // a replay's folder is not for training
  folder.write("text.txt", tiny_text() + "more");
  error({folder / "run"}).names("text.txt").value("1004 bytes").names("text.txt").value("1000 bytes");
  fs::remove_all(folder / "run/replay/step_000001");
  error({folder / "run"}).names(folder / "run/replay").value("no saved state");

  const Outcome help = run_orrery({"replay", "--help=all"});
  CHECK(help.code == 0);
  Message help_text(help.out);
  for (const char* word :
       {"--nan_guard=yes", "\n  --calls", "\n  --learning_rate", "--help=all", "exit", "0", "1", "orrery replay"})
    help_text.names(word);
  CHECK(contains(run_orrery({"train", "--help=all"}).out, "\n  --nan_guard=no "));
}
