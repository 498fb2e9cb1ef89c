// Disks that cannot lock files: every command that locks ends with a message; none waits forever.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/fault_injection/runs.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using namespace fault_injection;

namespace {

void write_claim(const std::string& path, const std::string& kind) {
  std::ofstream(path) << "source = \"a test\"\nsentence = \"s\"\n" << kind
                      << "refuted_if = \"a > b\"\n[base]\ndata = \"text.txt\"\nlayers = 1\nheads = 2\nwidth = 16\n"
                         "context = 8\nbatch_size = 2\nsteps = 4\n[variants.a]\nattention = \"pointwise(relu)\"\n"
                         "[variants.b]\n";
}

}  // namespace

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
      {{"inspect", "run", "--text=abe", "--analysis=heads", "--out=inspected"}, 1, "--out"},
      {{"study", "--all=claims"}, 1, "--out"},
      {{"study", "timed.toml", "--out=study", "--runs=pool"}, 1, "--out"},
      {{"study", "timed.toml", "--out=study", "--runs=pool"}, 2, "disk"},  // another pool would not help
      {{"runs", "--runs=used", "--prune"}, 1, "--runs"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.words[0]);
    CAPTURE(each.at);
    const ScratchFolder scratch;
    const std::string folder = scratch / "folder";
    copy_folder(each.words[0] == "train" ? t.fresh : t.done, folder);
    write_claim(folder + "/claim.toml", "kind = \"trained\"\nseeds = [1, 2]\nmetric = \"validation_loss\"\n");
    write_claim(folder + "/timed.toml", "kind = \"timed\"\nrounds = 2\nround_steps = 2\nmetric = \"step_ms\"\n");
    fs::create_directory(folder + "/claims"), fs::create_directory(folder + "/used");
    fs::copy(folder + "/claim.toml", folder + "/claims/claim.toml");
    if (fs::exists(folder + "/run/settings.toml"))  // a run that no sweep or study uses
      fs::copy(folder + "/run/settings.toml", folder + "/used/0123456789abcdef-0123456789ab.toml");
    const RunResult ran = run(folder, each.words, {"lock", each.at, true});
    CHECK(wrong_end(ran) == "");
    orrery::testing::expect_error(ran)
        .names(each.words[0])
        .names(".lock")
        .value("No locks available")
        .offers(each.setting);
  }
}
