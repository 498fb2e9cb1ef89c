// Restricted environments: a full disk, a read-only folder, limits on descriptors, memory and file
// size, a closed or full stdout. A command exits with 0, or with 1 and a message; no run is lost.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/fault_injection/runs.h"
#include "tests/support/message.h"

namespace {

namespace fs = std::filesystem;
using namespace fault_injection;

struct Command {
  std::string name, words;
  std::string from;  // initial folder
  bool writes;       // false: only reads and prints
};

std::string line(const Words& words) {
  std::string all;
  for (const std::string& word : words) all += " '" + word + "'";
  return all;
}

const std::vector<Command>& commands() {
  const Templates& t = Templates::get();
  static const std::vector<Command> all = {
      {"train", line(train_words()), t.fresh, true},
      {"resume", line(train_words() + Words{"--resume=yes"}), t.begun, true},
      {"generate", " generate --checkpoint=run --tokens=12", t.done, false},
      {"try", " try formula.cpp --data=text.txt --steps=2 --out=plugins", t.done, true},
      {"list", " list", t.done, false},
  };
  return all;
}

// Returns whether the dynamic loader failed before any code of the program ran.
bool loader_gave_up(const RunResult& ran) {
  return ran.code == 127 && ran.err.find("error while loading shared libraries") != std::string::npos;
}

// Returns what is wrong, or "".
std::string wrong(const Command& command, const std::string& folder, const RunResult& ran) {
  if (loader_gave_up(ran)) return {};
  if (const std::string end = wrong_end(ran); !end.empty()) return end;
  if (command.name == "train" || command.name == "resume")
    return wrong_run(folder, ran, Templates::get().one, command.name == "resume");
  return files_of(folder + "/run") == files_of(Templates::get().done + "/run") ? "" : "changes the run";
}

// `before`: a shell line, such as ulimit -n 8. `after` follows the arguments, such as > /dev/full.
RunResult treat(const Command& command, const std::string& before, const std::string& after = "") {
  const ScratchFolder scratch;
  const std::string folder = scratch / "folder";
  copy_folder(command.from, folder);
  const RunResult ran = run_shell(folder, before + "\norrery" + command.words + " " + after, Templates::get().plugin);
  CAPTURE(command.name);
  CAPTURE(before);
  CAPTURE(after);
  CAPTURE(ran.code);
  CHECK(wrong(command, folder, ran) == "");
  return ran;
}

// Returns why the shell cannot mount in its own mount namespace, or "" if it can.
std::string why_no_mounts() {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "folder");
  const RunResult ran = run_shell(scratch / "folder", "unshare --mount mount -t tmpfs none .", "");
  return ran.code == 0 ? "" : ran.err.empty() ? "unshare ends with " + std::to_string(ran.code) : ran.err;
}

// Runs the command in a tmpfs with `kilobytes` KB besides its initial files (if `spare`), then
// copies the run back. `seal`: a shell line before the command; it may make the folder read-only.
RunResult treat_in_tmpfs(const Command& command, int kilobytes, const std::string& seal, bool spare) {
  const ScratchFolder scratch;
  const std::string folder = scratch / "folder", inner = scratch / "inner";
  copy_folder(command.from, folder);
  fs::create_directory(inner);
  const std::string all =
      "cat > .script <<'END'\nset -e\nmount -t tmpfs -o size=16m none '" + inner + "'\ncp -r . '" + inner + "'\ncd '" +
      inner + "'\nrm -f .script .out .err\n" +
      (spare ? "mount -o remount,size=$(($(du -sk . | cut -f1) + " + std::to_string(kilobytes) + "))k none .\n" : "") +
      seal + "\nset +e\norrery() { LD_PRELOAD='" FAULT_INJECTION_INTERPOSER "' FAILURES_PLUGIN='" +
      Templates::get().plugin + "' '" ORRERY_PROGRAM "' \"$@\"; }\norrery" + command.words + "\ncode=$?\nrm -rf '" +
      folder + "/run'\n[ ! -d run ] || cp -r run '" + folder + "/run'\nexit $code\nEND\nunshare --mount sh .script";
  const RunResult ran = run_shell(folder, all, "");
  CAPTURE(command.name);
  CAPTURE(kilobytes);
  CAPTURE(seal);
  CAPTURE(ran.code);
  CHECK(wrong(command, folder, ran) == "");
  return ran;
}

}  // namespace

TEST_CASE("treatments: the verified content of a plug-in is loaded, even if its file changes afterwards") {
  const ScratchFolder scratch;
  const std::string folder = scratch / "folder";
  copy_folder(Templates::get().done, folder);
  const std::string make = "orrery try formula.cpp --data=text.txt --steps=0 --out=plugins > log";
  REQUIRE(run_shell(folder, make, Templates::get().plugin).code == 0);
  const RunResult ran = run_shell(folder,
                                  "export FAILURES_SPOILED=plugins/formula.so\n"
                                  "orrery list activation --plugin=plugins/formula.so && test ! -s plugins/formula.so",
                                  Templates::get().plugin);
  INFO(ran.err);
  CHECK(ran.code == 0);
}

TEST_CASE("treatments: without /proc, each error message names what is missing") {
  if (const std::string why = why_no_mounts(); !why.empty()) {
    MESSAGE("skipped, since nothing can be mounted here: ", why);
    return;
  }
  const ScratchFolder scratch;
  const std::string folder = scratch / "folder";
  copy_folder(Templates::get().done, folder);
  const std::string make = "orrery try formula.cpp --data=text.txt --steps=0 --out=plugins > log";
  REQUIRE(run_shell(folder, make, Templates::get().plugin).code == 0);
  const auto without_proc = [&](const std::string& words) {
    return run_shell(folder,
                     "unshare --mount sh -c 'mount -t tmpfs none /proc && exec " ORRERY_PROGRAM " " + words + "'", "");
  };
  CHECK(without_proc("generate --checkpoint=run --tokens=3").code == 0);
  orrery::testing::expect_error(without_proc("list --plugin=plugins/formula.so"))
      .names("plugins/formula.so")
      .value("/proc")
      .offers("mount");
  orrery::testing::expect_error(
      without_proc("sweep --data=text.txt --steps=1 --layers=1 --width=8 --heads=1 --out=sweep --runs=pool"))
      .value("/proc")
      .offers("mount");
}

TEST_CASE("treatments: the disk becomes full at any moment") {
  if (const std::string why = why_no_mounts(); !why.empty()) {
    MESSAGE("skipped, since nothing can be mounted here: ", why);
    return;
  }
  int failed = 0;
  for (const Command& command : commands())
    if (command.writes)
      for (const int kilobytes : {0, 4, 8, 16, 24, 32, 40, 48, 64, 96})
        failed += treat_in_tmpfs(command, kilobytes, "", true).code != 0;
  CHECK(failed >= 10);
}

TEST_CASE("treatments: the folder is read-only") {
  if (const std::string why = why_no_mounts(); !why.empty()) {
    MESSAGE("skipped, since nothing can be mounted here: ", why);
    return;
  }
  for (const Command& command : commands()) {
    const RunResult ran = treat_in_tmpfs(command, 0, "mount -o remount,ro none .", false);
    CHECK(ran.code == (command.writes ? 1 : 0));
  }
}

TEST_CASE("treatments: few file descriptors are available") {
  for (const Command& command : commands())
    for (const int limit : {3, 4, 5, 6, 7, 8, 9, 10, 12, 16}) treat(command, "ulimit -n " + std::to_string(limit));
}

// In KB. With less, libraries do not load, or constructors of other libraries lack memory.
int min_address_space() {
  const auto loads = [](int kilobytes) {
    const ScratchFolder scratch;
    fs::create_directory(scratch / "folder");
    return run_shell(scratch / "folder", "ulimit -v " + std::to_string(kilobytes) + "\norrery list", "").code != 127;
  };
  int low = 1 << 10, high = 1 << 22;
  REQUIRE(loads(high));
  while (high - low > 50) (loads((low + high) / 2) ? high : low) = (low + high) / 2;
  constexpr int foreign = 200;
  return high + foreign;
}

TEST_CASE("treatments: little address space is available") {
  const int smallest = min_address_space();
  int failed = 0;
  for (const Command& command : commands())
    for (int more = 0; more <= 3600; more += command.name == "resume" ? 100 : 400)
      failed += treat(command, "ulimit -v " + std::to_string(smallest + more)).code != 0;
  CHECK(failed >= 10);
}

TEST_CASE("treatments: the size of files is limited") {
  int failed = 0;
  for (const Command& command : commands())
    if (command.writes)
      for (const int blocks : {0, 1, 2, 3, 4, 6, 8, 12, 16, 24})  // blocks of 512 bytes
        failed += treat(command, "ulimit -f " + std::to_string(blocks)).code != 0;
  CHECK(failed >= 10);
}

TEST_CASE("treatments: stdout is full") {
  for (const Command& command : commands()) {
    CAPTURE(command.name);
    CHECK(treat(command, "", "> /dev/full").code == 1);
  }
}

TEST_CASE("treatments: standard streams are closed, and new files reuse their descriptors") {
  for (const Command& command : commands())
    for (const char* after : {">&-", "2>&-", "<&-", ">&- 2>&- <&-"}) {
      const ScratchFolder scratch;
      const std::string folder = scratch / "folder";
      copy_folder(command.from, folder);
      RunResult ran = run_shell(folder, "orrery" + command.words + " " + after, Templates::get().plugin);
      CAPTURE(command.name);
      CAPTURE(after);
      CAPTURE(ran.err);
      const std::string which = after;
      // The message is lost if stderr is closed.
      if (which.find("2>&-") != std::string::npos) ran.err = "orrery: what was written to a closed stream";
      if (which == "2>&-" || which == "<&-") CHECK(ran.code == 0);  // no output is lost
      CHECK(wrong(command, folder, ran) == "");
    }
}
