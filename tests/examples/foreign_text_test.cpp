// Names of files, classes and claims with terminal escapes are printed without their effect.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/program.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

namespace {

const std::string act = "\x1b[31m\nQQQ\x1b]0;x\x07";  // red letters, a new line, the window title

Outcome harmless(const Words& words, int code = 0) {
  Outcome outcome = run_orrery(words);
  CAPTURE(words[0]);
  INFO(outcome.out, outcome.err);
  if (code == 0)
    CHECK(outcome.code == 0);
  else
    orrery::testing::expect_error(outcome).value("\\x0aQQQ");
  for (const std::string& text : {outcome.out, outcome.err}) {
    CHECK(!contains(text, "\x1b"));
    CHECK(!contains(text, "\x07"));
    CHECK(!contains(text, "\nQQQ"));
  }
  return outcome;
}

}  // namespace

TEST_CASE("foreign text: terminal escapes in file and class names are printed escaped") {
  const Folder folder;
  const std::string shapes = ORRERY_SOURCE_DIR "/tests/models/images/shapes";
  for (const char* split : {"train", "val"}) {
    const std::string to = folder / ("set/" + std::string(split));
    fs::create_directories(to);
    for (const auto& entry : fs::directory_iterator(shapes + "/" + split))
      fs::copy(entry.path(), to + "/" + entry.path().filename().string() + act);
  }
  const std::string run = folder / ("run" + act), other = folder / ("other" + act);
  const Words train = {"train",     "--model=vit",        "--layers=1",     "--width=16",
                       "--heads=2", "--patch=4",          "--image_size=8", "--batch_size=4",
                       "--steps=2", "--evaluate_every=0", "--metrics=none", "--data=" + (folder / "set")};
  const Outcome trained = harmless(train + Words{"--out=" + run});
  CHECK(contains(trained.out, "\\x1b[31m\\x0aQQQ"));
  harmless(train + Words{"--out=" + other, "--seed=2"});
  const std::string image = folder / ("set/train/rings" + act + "/" + "1.png");
  std::string some;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "set/val"))
    if (entry.is_regular_file()) some = entry.path().string();
  CHECK(contains(harmless({"classify", "--checkpoint=" + run, some}).out, "\\x0aQQQ"));
  harmless({"evaluate", "--checkpoint=" + run});
  harmless({"inspect", run, "--analysis=all", "--out=" + (folder / ("seen" + act))});
  harmless({"compare", run, other});
  harmless({"metrics", run, "--out=" + (folder / ("m" + act + ".csv"))});
  harmless({"report", run, "--out=" + (folder / ("page" + act + ".html"))});
  harmless({"show", run});
  harmless({"verify_resume", run, "--steps=1"});
  harmless({"train", "--resume=" + run, "--steps=4"});
  harmless(train + Words{"--out=" + run}, 1);
  harmless({"evaluate", "--checkpoint=" + (folder / ("none" + act))}, 1);
  harmless({act}, 1);
  harmless({"train", "--" + act + "=1"}, 1);
}

TEST_CASE("foreign text: terminal escapes in claims are printed escaped") {
  const Folder folder;
  fs::create_directory(folder / "claims");
  const std::string text = folder.write("text.txt", tiny_text());
  folder.write(
      "claims/one" + act + ".toml",
      "source = \"\\u001B[31m\\nQQQ\"\nsentence = \"<b>\\u001B[31m\\nQQQ\"\nkind = \"trained\"\n"
      "metric = \"validation_loss\"\nrefuted_if = \"b > a + 1\"\nseeds = [1, 2]\n"
      "[base]\nlayers = 1\nheads = 2\nwidth = 16\ncontext = 8\nbatch_size = 2\nsteps = 2\nwarmup_steps = 1\ndata = \"" +
          text + "\"\n[variants.a]\n[variants.b]\nlearning_rate = 0.002\n");
  const Outcome tested = harmless({"study", "--all=" + (folder / "claims"), "--runs=" + (folder / "pool")});
  CHECK(contains(tested.out + tested.err, "<b>\\x1b[31m\\x0aQQQ"));
  const std::string page = read_file(folder / "claims/README.md");
  CHECK(!contains(page, "<b>"));
  CHECK(!contains(page, "\x1b"));
  CHECK(!contains(page, "\nQQQ"));
}
