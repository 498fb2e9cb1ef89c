#include "tests/fault_injection/runs.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/support/tiny_text.h"

namespace fault_injection {
namespace {

namespace fs = std::filesystem;

// Any step counts: a run that can no longer print saves its current step.
bool holds_checkpoint(const std::string& out) {
  if (!fs::exists(out)) return false;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_") && name.find('.') == std::string::npos) return true;
  }
  return false;
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string pattern = (fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string()) +
                        std::string("/orrery_failures_XXXXXX");
  REQUIRE(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}
ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void copy_folder(const std::string& from, const std::string& to) {
  fs::create_directories(to);
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

const Words& train_words() {
  static const Words words = {"train",
                              "--layers=1",
                              "--heads=2",
                              "--width=8",
                              "--context=8",
                              "--batch_size=2",
                              "--steps=4",
                              "--threads=1",
                              "--warmup_steps=1",
                              "--data=text.txt",
                              "--out=run",
                              "--checkpoint_every=2",
                              "--keep_checkpoints=1"};
  return words;
}

Templates::Templates() {
  fs::create_directory(fresh);
  std::ofstream(fresh + "/text.txt") << orrery::testing::tiny_text();
  fs::copy_file(ORRERY_SOURCE_DIR "/examples/03_new_activation.cpp", fresh + "/formula.cpp");
  const auto undisturbed = [&](const std::string& name, const Words& words) {
    Undisturbed made{words, scratch / (name + "_begun"), scratch / name, {}};
    copy_folder(fresh, made.begun), copy_folder(fresh, made.done);
    REQUIRE(run(made.begun, words + Words{"--keep_checkpoints=0"}).code == 0);
    fs::remove_all(made.begun + "/run/step_000004");
    REQUIRE(run(made.done, words).code == 0);
    made.last = files_of(made.done + "/run/step_000004");
    REQUIRE(made.last.size() >= 3);
    return made;
  };
  one = undisturbed("one", train_words()), begun = one.begun, done = one.done;
  ranks = undisturbed("ranks", train_words() + Words{"--gradient_accumulation_steps=2", "--gradient_parts=2"});
  const std::string compiled = scratch / "compiled";  // once, for all commands that try a formula
  copy_folder(fresh, compiled);
  const RunResult ran = run(compiled, {"try", "formula.cpp", "--data=text.txt", "--steps=0", "--out=plugins"});
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  fs::copy_file(compiled + "/plugins/formula.so", plugin);
}

const Templates& Templates::get() {
  static const Templates one;
  return one;
}

std::string wrong_run(const std::string& folder, const RunResult& ran, const Undisturbed& its, bool had_checkpoint) {
  const std::string out = folder + "/run";
  if (ran.code != 0) {
    const bool has = holds_checkpoint(out);
    if (had_checkpoint && !has) return "the checkpoint is lost";
    const RunResult again = run(folder, has ? its.words + Words{"--resume=yes"} : its.words);
    if (again.code != 0) return "cannot be gone on with: " + again.err + "after: " + ran.err;
  }
  if (files_of(out + "/step_000004") != its.last) return "ends with other bytes";
  for (const auto& [name, bytes] : files_of(out))
    if (name.find(".partial") != std::string::npos) return "leaves " + name;
  return {};
}

}  // namespace fault_injection
