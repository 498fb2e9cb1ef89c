// Runs of another version of the program: commands that read them print a warning.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace {

// Makes the files of an older program, which wrote no hashes.
void make_older(const Folder& folder, const std::string& run) {
  const std::string name = run + "/step_000004/state.json";
  auto state = nlohmann::json::parse(read_file(folder / name));
  for (const char* later : {"format", "files", "text", "sha256"}) state.erase(later);
  state["version"] = "0.0.9";
  folder.write(name, state.dump());
}

}  // namespace

TEST_CASE("version: inspect, compare, report and verify_resume warn about a run of another version") {
  const Folder folder;
  for (const char* name : {"old", "new"}) REQUIRE(run_orrery(train_tiny(folder, name)).code == 0);
  make_older(folder, "old");
  const std::string old = folder / "old", now = folder / "new", page = folder / "page.html";
  const auto warned = [&](const std::vector<std::string>& words) {
    const Outcome outcome = run_orrery(words);
    INFO(outcome.out, outcome.err);
    CHECK(outcome.code == 0);
    const bool warned_about = contains(outcome.err, "0.0.9");
    if (warned_about) orrery::testing::Message(outcome.err).names(old).value("orrery 0.0.9");
    return warned_about;
  };
  CHECK(warned({"inspect", old, "--text=abe", "--analysis=attention"}));
  CHECK(!warned({"inspect", now, "--text=abe", "--analysis=attention"}));
  CHECK(warned({"compare", old, now}));
  CHECK(warned({"compare", now, old}));
  CHECK(!warned({"compare", now, now}));
  CHECK(warned({"verify_resume", old, "--steps=1"}));
  CHECK(!warned({"verify_resume", now, "--steps=1"}));
  CHECK(warned({"report", old, "--out=" + page}));
  CHECK(contains(read_file(page), "Trained with another version of orrery"));
  CHECK(contains(read_file(page), "orrery 0.0.9"));
  CHECK(!warned({"report", now, "--out=" + page}));
  CHECK(!contains(read_file(page), "Trained with another version of orrery"));
}
