// orrery study --all: folders of claims, and the folder that comes with the program.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/study/verdict_table.h"
#include "tests/examples/study.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::Message;

TEST_CASE("study: the claims in examples/studies run, with two steps each") {
  const Folder folder;
  // Small data at the paths of the data sets that the claims name.
  const std::string sets = folder / "sets", scraps = ORRERY_SOURCE_DIR "/tests/models/images/";
  fs::create_directories(sets + "/images");
  fs::create_directories(sets + "/text/novels");
  fs::create_directory_symlink(scraps + "fashion", sets + "/images/fashion-mnist");
  fs::create_directory_symlink(scraps + "fashion", sets + "/images/mnist");
  for (const char* name : {"/images/cifar10", "/images/flowers"})
    fs::create_directory_symlink(scraps + "shapes", sets + name);
  const std::string text = folder.write("novel.txt", tiny_text() + tiny_text() + tiny_text());
  for (const char* split : {"train", "valid"})
    REQUIRE(run_shell("gzip -c " + text + " > " + sets + "/text/novels/" + split + ".txt.gz").code == 0);
  const Outcome outcome = run_shell(
      "cd '" ORRERY_SOURCE_DIR "' && \"$ORRERY\" study --all=examples/studies --smoke --out=" + (folder / "studies") +
      " --runs=" + (folder / "pool") + " --data=" + sets);
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  CHECK(!fs::exists(folder / "studies/README.md"));  // it would list verdicts
  size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(ORRERY_SOURCE_DIR "/examples/studies")) {
    if (entry.path().extension() != ".toml") continue;
    const std::string name = entry.path().parent_path().filename().string() + "/" + entry.path().stem().string();
    CAPTURE(name);
    const auto verdict = verdict_in(folder / ("studies/" + name));
    CHECK(verdict["smoke"] == true);
    CHECK(verdict["comparisons"].empty());
    CHECK(verdict["missing"].empty());
    if (++count % 10 == 1) CHECK(run_orrery({"report", folder / ("studies/" + name)}).code == 0);
  }
  CHECK(count >= 38);  // the number of claims in the papers
  Message(outcome.out).names("smoke: ").value("every run").value("two steps").value("one seed");
  CHECK(!contains(outcome.out, "failed"));
}

TEST_CASE("study: --all tests every claim of a folder and reports an invalid claim") {
  const Folder folder;
  fs::create_directory(folder / "claims");
  const std::string text = claim_text(folder, trained + "refuted_if = \"relu > softmax + 1\"", two);
  folder.write("claims/a.toml", text);
  folder.write("claims/b.toml", claim_text(folder, trained + "refuted_if = \"relu > softmx\"", two));
  folder.write("claims/notes.txt", "no claim");
  fs::create_directory(folder / "claims/group");
  folder.write("claims/group/c.toml", claim_text(folder,
                                                 "main = true\nreported = \"BLEU 34 | 33\"\nsmaller = \"one layer\"\n" +
                                                     trained + "refuted_if = \"relu > softmax + 1\"",
                                                 two));
  const Words words = {"study", "--all=" + (folder / "claims"), "--out=" + (folder / "out"),
                       "--runs=" + (folder / "pool")};
  const Outcome first = run_orrery(words);
  INFO(first.out, first.err);
  CHECK(first.code == 1);
  Message(first.err).names("b.toml").value("'softmx'").offers("'softmax'");
  CHECK(contains(read_file(folder / "out/verdicts.csv"), "a,shown,Two variants differ."));
  CHECK(contains(read_file(folder / "out/verdicts.csv"), "b,-,"));
  CHECK(contains(read_file(folder / "out/verdicts.csv"), "group/c,shown at this scale,Two variants differ."));
  const std::string page = read_file(folder / "out/README.md");
  CHECK(contains(page, "3 claims: 1 shown, 1 shown at this scale, 1 without a verdict.\n"));
  CHECK(!contains(page, "Reversed:"));
  CHECK(page.find("A claim is shown if") < page.find("| claim |"));
  CHECK(page.find("| [Two variants differ.](../claims/group/c.toml) | BLEU 34 &#124; 33 | "
                  "`validation_loss` relu - softmax: ") < page.find("Written by"));
  const size_t main = page.find("## Main claims"), rest = page.find("## Claims"), group = page.find("## group");
  REQUIRE(main < rest);
  REQUIRE(rest < group);
  REQUIRE(group < page.size());
  const std::string row =
      "| [Two variants differ.](../claims/group/c.toml)<br>Here: one layer. | BLEU 34 &#124; 33 | "
      "`validation_loss`<br>relu - softmax: ";
  CHECK(page.find(row) < rest);
  CHECK(page.find(row, group) != std::string::npos);
  CHECK(contains(page, "| 3 seeds | **shown at this scale** | "));
  CHECK(contains(page, "![Two variants differ.](group/c/samples.svg)"));
  CHECK(contains(read_file(folder / "out/group/c/samples.svg"), ">softmax</text>"));
  const auto runs = written_runs(folder / "pool");
  fs::remove(folder / "claims/b.toml");
  const Outcome second = run_orrery(words);
  CHECK(second.code == 0);
  Message(second.err).names("a.toml: ").value("tested before\n");
  CHECK(contains(second.out, "shown"));
  // Another claim in the file is tested again, unless claims are only listed.
  folder.write("claims/a.toml", claim_text(folder, trained + "refuted_if = \"relu < softmax + 1\"", two));
  Words listing = words;
  listing.push_back("--test=no");
  CHECK(run_orrery(listing).code == 0);
  CHECK(contains(read_file(folder / "out/README.md"), "2 claims: 1 shown at this scale, 1 without a verdict.\n"));
  CHECK(contains(read_file(folder / "out/verdicts.csv"), "a,-,Two variants differ.,not tested yet,"));
  CHECK(contains(read_file(folder / "out/README.md"), "| [Two variants differ.](../claims/a.toml) | "));
  const Outcome third = run_orrery(words);
  CHECK(!contains(third.err, "a.toml: "));  // no note that it was tested before
  Message(third.out).names("relu - softmax").value("below").value("margin 1");
  CHECK(written_runs(folder / "pool") == runs);
}

TEST_CASE("study: a claim is tested again after a change of its config or its data") {
  const Folder folder;
  fs::create_directory(folder / "claims");
  folder.write("text.txt", tiny_text());
  const std::string config = "layers = 1\nheads = 2\nwidth = 16\ncontext = 8\nbatch_size = 2\nsteps = 4\n";
  folder.write("base.toml", config);
  folder.write("claims/a.toml", "source = \"a test\"\nsentence = \"Two variants differ.\"\n" + trained +
                                    "refuted_if = \"relu > softmax + 1\"\nconfig = \"base.toml\"\n[base]\ndata = \"" +
                                    (folder / "text.txt") + "\"\n" + two);
  const auto test_all = [&] {
    const Outcome outcome = run_orrery({"study", "--all=" + (folder / "claims"), "--runs=" + (folder / "pool")});
    INFO(outcome.out, outcome.err);
    CHECK(outcome.code == 0);
    return Message(outcome.err + outcome.out);
  };
  test_all().value("verdict: shown");
  const auto read = verdict_in(folder / "claims/a")["read"];
  CHECK(read["config"].size() == 1);
  CHECK(read["data"].size() == 1);
  test_all().names("a.toml: ").value("tested before\n");
  std::string verdict = read_file(folder / "claims/a/verdict.json");  // another program's is kept, too
  const std::string version = verdict_in(folder / "claims/a")["version"];
  folder.write("claims/a/verdict.json", verdict.replace(verdict.find(version), version.size(), "0.0.9"));
  test_all().names("a.toml: ").value("tested before by orrery 0.0.9\n");
  folder.write("base.toml", "# What is learned.\n" + config);  // sets the same
  test_all().names("a.toml: ").value("tested before by orrery 0.0.9\n");
  folder.write("base.toml", config + "seed = 1\nwarmup_steps = 2\n");
  test_all().names("a.toml: ").names("config").value("changed").value("verdict: shown");
  test_all().names("a.toml: ").value("tested before\n");
  folder.write("text.txt", tiny_text() + tiny_text());
  test_all().names("a.toml: ").names("data").value("changed");
  fs::remove(folder / "text.txt");  // a missing file does not count as changed
  test_all().names("a.toml: ").value("tested before\n");
}

TEST_CASE("study: a verdict stays valid after settings are renamed; an older one needs the unchanged claim") {
  const Folder folder;
  fs::create_directory(folder / "claims");
  const std::string metric = "kind = \"derived\"\nseeds = [1, 2]\nmetric = \"mean(read_variance/*)\"\n";
  const std::string text =
      claim_text(folder, metric + "figure = \"BLEU 34\"\nrefuted_if = \"relu > softmax + 100\"", two);
  const auto test_all = [&](std::string claim, const std::vector<std::pair<std::string, std::string>>& changes) {
    for (const auto& [from, to] : changes) claim.replace(claim.find(from), from.size(), to);
    folder.write("claims/a.toml", claim);
    const Outcome outcome = run_orrery({"study", "--all=" + (folder / "claims"), "--runs=" + (folder / "pool")});
    INFO(outcome.out, outcome.err);
    CHECK(outcome.code == 0);
    return Message(outcome.out + outcome.err);
  };
  test_all(text, {}).value("verdict: shown");
  const auto runs = written_runs(folder / "pool");
  const auto first = verdict_in(folder / "claims/a");
  CHECK(first["metric"] == "mean(head_output_variance/*)");
  CHECK(first["reported"] == "BLEU 34");
  const std::vector<std::pair<std::string, std::string>> renamed = {
      {"read_variance", "head_output_variance"}, {"figure", "# The paper's.\nreported"}, {"batch", "batch_size"}};
  test_all(text, renamed).names("a.toml: ").value("tested before\n");
  // The runs of a renamed claim are those of the pool: only the verdict is computed again.
  fs::remove(folder / "claims/a/verdict.json");
  test_all(text, renamed).value("verdict: shown");
  CHECK(written_runs(folder / "pool") == runs);
  CHECK(verdict_in(folder / "claims/a")["comparisons"] == first["comparisons"]);
  CHECK(verdict_in(folder / "claims/a")["meaning"] == first["meaning"]);
  // An older program wrote no meaning: its verdict is of this text only.
  test_all(text, {}).names("a.toml: ").value("tested before\n");
  std::string older = read_file(folder / "claims/a/verdict.json");
  const std::string hash = verdict_in(folder / "claims/a")["claim"], hash_of_text = first["claim"];
  older.replace(older.find(hash), hash.size(), hash_of_text);
  const size_t meaning = older.find(" \"meaning\"");
  folder.write("claims/a/verdict.json", older.erase(meaning, older.find('\n', meaning) + 1 - meaning));
  test_all(text, {}).names("a.toml: ").value("tested before\n");
  test_all(text, {{"batch", "batch_size"}}).value("verdict: shown");
}

TEST_CASE("study: the page of each committed group begins with a table of its claims") {
  for (const auto& group : fs::directory_iterator(ORRERY_SOURCE_DIR "/examples/studies")) {
    if (!group.is_directory()) continue;
    const std::string path = group.path().string();
    CAPTURE(path);
    std::vector<orrery::models::ListedVerdict> all;
    for (const auto& entry : fs::directory_iterator(group.path())) {
      const std::string name = entry.path().stem().string();
      if (entry.path().extension() != ".toml") continue;
      const std::string verdict = path + "/" + name + "/verdict.json";
      all.push_back({"", name, {}, {}, ""});  // a new claim has no verdict yet
      if (fs::exists(verdict)) all.back().verdict = orrery::models::read_verdict(verdict);
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    const std::string page = read_file(path + "/README.md"), table = orrery::models::short_verdicts(all, ".");
    CHECK_MESSAGE(page.find("\n\n" + table + "\n") == page.find('\n'), "the page needs this table:\n", table);
  }
}

TEST_CASE("study: the committed table of verdicts matches the committed claims") {
  const Folder folder;
  const std::string kept = ORRERY_SOURCE_DIR "/examples/studies", copy = folder / "studies";
  fs::copy(kept, copy, fs::copy_options::recursive);
  fs::create_directory(folder / "examples");
  fs::copy(ORRERY_SOURCE_DIR "/examples/configs", folder / "examples/configs");  // at the path that the claims name
  fs::remove(copy + "/README.md");
  const Outcome outcome = run_orrery({"study", "--all=" + copy, "--test=no"});
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  CHECK(read_file(copy + "/README.md") == read_file(kept + "/README.md"));
  CHECK(read_file(copy + "/verdicts.csv") == read_file(kept + "/verdicts.csv"));
  CHECK(contains(outcome.err, ": tested before by orrery 0.1.0\n"));  // the verdicts name their programs
}
