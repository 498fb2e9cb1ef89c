// Disks that cannot lock files: every command that locks ends with a message; none waits forever.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/fault_injection/runs.h"
#include "tests/support/message.h"

using namespace fault_injection;

TEST_CASE("failures: if files cannot be locked, every command that locks has an error with file and way out") {
  const Templates& t = Templates::get();
  const Words tiny = {"--layers=1",     "--heads=2", "--width=16",     "--context=8",
                      "--batch_size=2", "--steps=4", "--data=text.txt"};
  struct Case {
    Words words;
    long at;  // number of the first call that fails; all later ones fail too
    std::string setting;
  };
  const Words sweep = Words{"sweep", "--out=sweep", "--runs=pool"} + tiny,
              study = {"study", "claim.toml", "--out=study"};
  const std::vector<Case> cases = {
      {train_words(), 1, "--out"},
      {sweep, 1, "--out"},
      {sweep, 2, "--runs"},
      {study, 1, "--out"},
      {study, 2, "--runs"},
      {{"prepare", "--input=text.txt", "--out=tokens"}, 1, "--out"},
      {{"import", ORRERY_SOURCE_DIR "/tests/golden/hugging_face/gpt2", "--out=imported"}, 1, "--out"},
      {{"export", "run", "--out=exported"}, 1, "--out"},
      {{"verify_resume", "run"}, 1, "--out"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.words[0]);
    CAPTURE(each.at);
    const ScratchFolder scratch;
    const std::string folder = scratch / "folder";
    copy_folder(each.words[0] == "train" ? t.fresh : t.done, folder);
    std::ofstream(folder + "/claim.toml")
        << "source = \"a test\"\nsentence = \"s\"\nkind = \"trained\"\nseeds = [1, 2]\nmetric = \"validation_loss\"\n"
           "refuted_if = \"a > b\"\n[base]\ndata = \"text.txt\"\nlayers = 1\nheads = 2\nwidth = 16\ncontext = 8\n"
           "batch_size = 2\nsteps = 4\n[variants.a]\nattention = \"pointwise(relu)\"\n[variants.b]\n";
    const RunResult ran = run(folder, each.words, {"lock", each.at, true});
    CHECK(wrong_end(ran) == "");
    orrery::testing::expect_error(ran)
        .names(each.words[0])
        .names(".lock")
        .value("No locks available")
        .offers(each.setting);
  }
}
