// orrery train --nan_guard=yes and orrery replay, as a user meets them.
#include <doctest/doctest.h>

#include <filesystem>
#include <regex>

#include "tests/examples/program.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

namespace {

Words diverging(const Folder& folder, const Words& more = {}) {
  return Words{"train", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + (folder / "run")} + tiny +
         Words{"--steps=9",        "--learning_rate=1e30", "--schedule=constant",
               "--warmup_steps=0", "--checkpoint_every=1", "--nan_guard=yes"} +
         more;
}
std::string line_with(const std::string& text, const std::string& part) {
  const size_t at = text.find(part), begin = text.rfind('\n', at) + 1;
  return at == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("replay: a run that met a value that is not finite ends in one sentence, and its step is shown again") {
  const Folder folder;
  const Outcome run = run_orrery(diverging(folder));
  INFO(run.out, run.err);
  CHECK(run.code == 1);
  std::smatch found;
  REQUIRE(std::regex_search(run.err, found,
                            std::regex("orrery: train: (a value is not finite at step (\\d+): forward of (\\w+) in "
                                       "(blocks\\.0[.\\w]*): output[^;]*; [^;]*);")));
  CHECK(contains(run.err, "; orrery replay " + (folder / "run") + " shows it again; "));

  const Outcome again = run_orrery({"replay", folder / "run"});
  INFO(again.out, again.err);
  CHECK(again.code == 0);
  CHECK(contains(again.out, "step " + found[2].str() + " from its state in " + (folder / "run/replay") + "\n" +
                                found[1].str() + "\nit is what the run found, number for number\n"));
  CHECK(contains(line_with(again.out, "path of modules: "), "model > blocks.0"));
  CHECK(contains(line_with(again.out, "path of modules: "), found[4].str()));
  CHECK(std::regex_search(again.out, std::regex("\n +tensor +dtype +shape +smallest +largest +NaN +inf +-inf\n")));
  CHECK(std::regex_search(again.out, std::regex("\n  read  blocks\\.0\\.[.\\w]*weight +f32 +\\(\\d+, 16\\) ")));
  CHECK(std::regex_search(again.out, std::regex("\n  made  output")));
  CHECK(std::regex_search(again.out,
                          std::regex("\noperations before it\n.*\n(  .*\n)*  \\w+ +forward +token_embedding")));
  CHECK(run_orrery({"replay", folder / "run/replay"}).out == again.out);  // by either folder
  CHECK(run_orrery({"replay", folder / "run", "--threads=1"}).out == again.out);
  const Outcome short_one = run_orrery({"replay", folder / "run", "--calls=0"});
  CHECK(again.out.starts_with(short_one.out));
  CHECK(!contains(short_one.out, "operations before it"));
}

TEST_CASE("replay: with other settings it tells what would have become of the step") {
  const Folder folder;
  // Weights of 1e30 are what step 1 makes; the first step itself is well with a lower rate.
  const Outcome run = run_orrery(diverging(folder, {"--rate_factors=*=1e9"}));
  INFO(run.out, run.err);
  REQUIRE(contains(run.err, "a value is not finite at step 1: update of adamw in "));
  const Outcome again = run_orrery({"replay", folder / "run"});
  INFO(again.out, again.err);
  CHECK(again.code == 0);
  CHECK(contains(again.out, ", before  "));
  const Outcome lower = run_orrery({"replay", folder / "run", "--learning_rate=1e-3", "--rate_factors="});
  INFO(lower.out, lower.err);
  CHECK(lower.code == 1);
  CHECK(contains(lower.out,
                 "it does not come again: every value is finite\nthe run found that a value is not finite at "
                 "step 1: update of adamw"));
  CHECK(lower.err.empty());
}

TEST_CASE("replay: what there is no replay of, and settings that it does not know") {
  const Folder folder;
  const auto error = [&](const Words& more) {
    const Outcome outcome = run_orrery(Words{"replay"} + more);
    CHECK(outcome.code == 1);
    return outcome.err;
  };
  CHECK(contains(error({}), "replay: give the folder of a run that --nan_guard=yes has stopped"));
  CHECK(contains(error({folder / "none"}), "holds no found.json; a run with --nan_guard=yes leaves one"));
  REQUIRE(run_orrery(diverging(folder)).code == 1);
  const Outcome of_run = run_orrery({"replay", folder / "run", "--help"});
  CHECK(contains(line_with(of_run.out, "\n  --learning_rate "), "1e30"));
  CHECK(contains(error({folder / "run", "--learnin_rate=1"}), "did you mean 'learning_rate'?"));
  CHECK(contains(error({folder / "run", folder / "run"}), "replay: 2 folders are given; give one"));
  CHECK(contains(error({folder / "run", "--width=32"}), "has width=16, not 32"));
  folder.write("text.txt", tiny_text() + "more");
  CHECK(contains(error({folder / "run"}), "is not the text that the run"));
  fs::remove_all(folder / "run/replay/step_000001");
  CHECK(contains(error({folder / "run"}), "replay holds no state to begin with"));

  const Outcome help = run_orrery({"replay", "--help"});
  CHECK(help.code == 0);
  for (const char* word : {"the folder of a run that --nan_guard=yes has stopped", "\n  --calls ",
                           "their defaults are the run's, which orrery replay RUN --help shows:",
                           "\n  --learning_rate ", "The exit code is 0 if", "Example: orrery replay "})
    CHECK_MESSAGE(contains(help.out, word), std::string(word));
  CHECK(contains(run_orrery({"train", "--help"}).out, "\n  --nan_guard "));
}
