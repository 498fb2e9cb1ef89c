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

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
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
  copy_folder(fresh, begun);
  REQUIRE(run(begun, train_words() + Words{"--keep_checkpoints=0"}).code == 0);
  fs::remove_all(begun + "/run/step_000004");
  copy_folder(fresh, done);
  REQUIRE(run(done, train_words()).code == 0);
  last = files_of(done + "/run/step_000004");
  REQUIRE(last.size() >= 3);
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

std::string wrong_run(const std::string& folder, const RunResult& ran, bool had_checkpoint) {
  const std::string out = folder + "/run";
  if (ran.code != 0) {
    const bool has = holds_checkpoint(out);
    if (had_checkpoint && !has) return "the checkpoint is lost";
    const RunResult again = run(folder, has ? train_words() + Words{"--resume=yes"} : train_words());
    if (again.code != 0) return "cannot be gone on with: " + again.err + "after: " + ran.err;
  }
  if (files_of(out + "/step_000004") != Templates::get().last) return "ends with other bytes";
  for (const auto& [name, bytes] : files_of(out))
    if (name.find(".partial") != std::string::npos) return "leaves " + name;
  return {};
}

}  // namespace fault_injection
