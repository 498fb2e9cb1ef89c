// Paths with bytes that are not UTF-8, or that control a terminal, through the program.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/study.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

TEST_CASE("paths: a path that would be recorded but is not UTF-8 is refused at the start by every command") {
  const Folder folder;
  const std::string latin = folder / "lat\xe9", shown = folder / "lat\\xe9", out = "--out=" + (folder / "out");
  fs::create_directory(latin);
  const std::string text = folder.write("text.txt", tiny_text()), same = folder.write("lat\xe9/text.txt", tiny_text());
  const std::string claim = claim_text(folder, trained + "refuted_if = \"relu > softmax\"", two);
  const std::string good_claim = folder.write("claim.toml", claim);
  const std::string bad_claim = folder.write("lat\xe9/claim.toml", claim);
  const std::string data = "--data=" + text, pool = "--runs=" + (folder / "pool");
  struct Case {
    Words words;
    std::string setting;
  };
  const std::vector<Case> cases = {
      {Words{"train", "--data=" + same, out} + tiny, "--data"},
      {Words{"train", data, "--out=" + latin + "/run"} + tiny, "--out"},
      {Words{"train", data, "--validation_data=" + same, out} + tiny, "--validation_data"},
      {Words{"train", data, "--tokenizer=" + latin, out} + tiny, "--tokenizer"},
      {Words{"sweep", "--data=" + same, out, pool} + tiny, "--data"},
      {Words{"sweep", data, out, "--runs=" + latin + "/pool"} + tiny, "--runs"},
      {Words{"sweep", data, "--out=" + latin + "/sweep", pool} + tiny, "--out"},
      {{"study", good_claim, out, "--runs=" + latin + "/pool"}, "--runs"},
      {{"study", good_claim, "--out=" + latin + "/study", pool}, "--out"},
      {{"study", bad_claim, out, pool}, "study"},
      {{"prepare", "--input=" + same, out}, "--input"},
      {{"prepare", "--input=" + text, "--out=" + latin + "/tokens"}, "--out"},
      {{"import", ORRERY_SOURCE_DIR "/tests/cases/nowhere", "--out=" + latin + "/run"}, "--out"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.words);
    auto message = expect_error(run_orrery(each.words));
    message.names(each.words[0]);
    if (each.setting != each.words[0]) message.names(each.setting);
    message.value(shown).names("UTF-8").offers("rename");
    CHECK(!fs::exists(folder / "out"));
    CHECK(!fs::exists(folder / "pool"));
    CHECK(run_shell("ls '" + latin + "'").out == "claim.toml\ntext.txt\n");
  }
  // Seen from the pool, the path of the sweep contains a folder with such a name.
  std::string sweep = "cd '" + latin + "' && \"$ORRERY\" sweep --out=sweep " + pool + " --data=" + text;
  for (const std::string& word : tiny) sweep += " " + word;
  expect_error(run_shell(sweep)).names("pool").value("lat\\xe9").names("UTF-8").offers("rename");
}

TEST_CASE("paths: terminal escapes are printed as \\x1b, and printed commands are quoted for a shell") {
  const Folder folder;
  const std::string pool = folder / "po\x1b[31m ol", text = folder.write("text.txt", tiny_text());
  const std::string quoted = "orrery runs $'--runs=" + (folder / "po\\x1B[31m ol'");
  Words sweep = Words{"sweep", "--data=" + text, "--out=" + (folder / "sweep"), "--runs=" + pool} + tiny;
  const Outcome swept = run_orrery(sweep);
  REQUIRE_MESSAGE(swept.code == 0, swept.err);
  CHECK_MESSAGE(contains(swept.err, quoted), swept.err);
  for (const auto& entry : fs::directory_iterator(pool))
    if (entry.path().extension() == ".json") folder.write("po\x1b[31m ol/" + entry.path().filename().string(), "{");
  const Outcome again = run_orrery(sweep);
  const std::string all = swept.out + again.err + again.out + run_orrery({"runs", "--runs=" + pool}).out +
                          run_orrery({"runs", "--runs=" + pool, "--prune"}).out +
                          run_orrery({"try", folder / "e\x1b[31m.cpp", "--steps=0"}).err;
  Message(all).names("warning").names("po\\x1b[31m ol").names("line 1").offers("again").names("e\\x1b[31m.cpp");
  CHECK_MESSAGE(!contains(all, "\x1b"), all);
  expect_error(run_orrery({"runs", "--runs=" + pool, "0123"})).value("0123").offers(quoted);
}
