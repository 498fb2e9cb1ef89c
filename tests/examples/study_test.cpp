// orrery study: training for a claim, its test and output.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/examples/study.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

nlohmann::json verdict_in(const std::string& folder) {
  return nlohmann::json::parse(read_file(folder + "/verdict.json"));
}

TEST_CASE("study: a trained claim writes its files and a report, and no run is trained twice") {
  const Folder folder;
  const std::string text = claim_text(folder, trained + "refuted_if = \"relu != softmax +- 50 %\"", two);
  const Outcome first = run_study(folder, text, {"--jobs=2"});
  INFO(first.out, first.err);
  REQUIRE(first.code == 0);
  Message(first.err).names("trained").value("2 variants").value("3 seeds").value("6 runs").value("6 of 6");
  Message(first.out).value("shown").names("validation loss").names("relu / softmax - 1").value("verdict: shown");
  const auto runs = written_runs(folder / "pool");
  CHECK(runs.size() == 6);
  const auto verdict = verdict_in(folder / "study");
  CHECK(verdict["verdict"] == "shown");
  CHECK(verdict["comparisons"][0]["samples"] == 3);
  CHECK(
      contains(read_file(folder / "study/samples.csv"), "metric,variant,swept,sample,value\nvalidation_loss,relu,,1,"));
  CHECK(contains(read_file(folder / "study/table.csv"), "validation_loss,softmax,,3,"));

  const Outcome again = run_study(folder, text);
  CHECK(again.code == 0);
  CHECK(written_runs(folder / "pool") == runs);
  CHECK(verdict_in(folder / "study")["comparisons"] == verdict["comparisons"]);
  // A claim with one more seed trains only that seed; an equal sweep shares the runs.
  const std::string more = claim_text(
      folder, "kind = \"trained\"\nseeds = [1, 2, 3, 4]\nmetric = \"validation_loss\"\nrefuted_if = \"relu > softmax\"",
      two);
  CHECK(run_study(folder, more).code == 0);
  CHECK(written_runs(folder / "pool").size() == 8);
  CHECK(run_orrery(Words{"sweep", "--data=" + (folder / "text.txt"), "--out=" + (folder / "sweep"),
                         "--runs=" + (folder / "pool"), "--seed={1..4}", "--attention={softmax,pointwise(relu)}"} +
                   tiny)
            .code == 0);
  CHECK(written_runs(folder / "pool").size() == 8);
  const Outcome fresh = run_study(folder, text, {"--retrain"});
  CHECK(fresh.code == 0);
  for (const auto& [run, time] : runs) CHECK(written_runs(folder / "pool").at(run) != time);

  const Outcome report = run_orrery({"report", folder / "study", "--out=" + (folder / "page.html")});
  INFO(report.err);
  CHECK(report.code == 0);
  const std::string page = read_file(folder / "page.html");
  for (const char* expected :
       {"Two variants differ.", "a test", "\"kind\":\"bars\"", "relu / softmax - 1", "claim.toml"})
    CHECK(contains(page, expected));
}

TEST_CASE("study: a smoke run validates on at most the held-out text, and on no more than the claim") {
  for (const std::string tokens : {"0", "60"}) {
    CAPTURE(tokens);
    const Folder folder;
    const std::string text = claim_text(folder, trained + "refuted_if = \"relu > softmax\"",
                                        "validation_tokens = " + tokens + "\n" + two);
    const Outcome smoke = run_study(folder, text, {"--smoke"});
    CHECK_MESSAGE(smoke.code == 0, smoke.err);
    Message(smoke.out).names("smoke: ").value("every run");
    const auto runs = written_runs(folder / "pool");
    CHECK(runs.size() == 2);
    for (const auto& [run, time] : runs) {
      const std::string settings = read_file(folder / ("pool/" + run + "/settings.toml"));
      CHECK(contains(settings, "validation_tokens = " + (tokens == "0" ? "100" : tokens) + "\n"));
    }
  }
}

TEST_CASE("study: a run that diverges counts with its loss and as diverged, unless it was stopped") {
  const Folder folder;
  const auto tested = [&](const std::string& metric, const std::string& variant) {
    const Outcome outcome =
        run_study(folder, claim_text(folder,
                                     "kind = \"trained\"\nseeds = [1, 2, 3]\nmetric = \"" + metric +
                                         "\"\nrefuted_if = \"lost < kept + 0.5\"",
                                     "[variants.kept]\n[variants.lost]\nschedule = \"constant\"\n" + variant));
    INFO(outcome.out, outcome.err);
    CHECK(outcome.code == 0);
    CHECK(contains(read_file(folder / "study/runs.csv"), "lost,1,"));
    CHECK(contains(read_file(folder / "study/runs.csv"), ",diverged,"));
    return verdict_in(folder / "study");
  };
  const std::string finite = "learning_rate = 10\n";
  CHECK(tested("diverged", finite)["verdict"] == "shown");
  CHECK(contains(read_file(folder / "study/samples.csv"), "\ndiverged,lost,,1,1\n"));
  CHECK(contains(read_file(folder / "study/samples.csv"), "\ndiverged,kept,,1,0\n"));
  const auto by_loss = tested("log(validation_loss)", finite);
  CHECK(by_loss["verdict"] == "shown");
  CHECK(by_loss["comparisons"][0]["samples"] == 3);
  // It is stopped before step 4; the finite validation of an earlier step is not that of a complete run.
  const std::string stopped =
      "learning_rate = 1e4\noptimizer = \"sgd\"\nnormalization = \"none\"\ngrad_clip = 0\nevaluate_every = 1\n";
  const auto without = tested("log(validation_loss)", stopped);
  CHECK(without["verdict"] == "not shown");
  CHECK(without["comparisons"][0]["samples"] == 0);
  CHECK(tested("diverged", stopped)["verdict"] == "shown");
}

TEST_CASE("study: a claim over a sweep has metrics per comparison and the best learning rate of each variant") {
  const Folder folder;
  const Outcome outcome =
      run_study(folder, claim_text(folder,
                                   "kind = \"trained\"\nseeds = [1, 2]\nlearning_rates = [1e-9, 1e-2]\n"
                                   "metric = \"doubling(validation_loss)\"\n"
                                   "refuted_if = [\"wide > narrow\", \"ratio(loss, swept): wide > 1\"]",
                                   "[sweep]\nd_ff = [8, 16]\n[variants.wide]\n[variants.narrow]\n"
                                   "feed_forward = \"dense(relu)\"\n"));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  Message(outcome.err).value("2 values").names("d_ff").value("2 seeds").value("12 runs");
  const auto verdict = verdict_in(folder / "study");
  REQUIRE(verdict["comparisons"].size() == 3);  // the slope, and the ratio at both values
  CHECK(verdict["comparisons"][0]["at"] == "");
  CHECK(verdict["comparisons"][1]["at"] == "d_ff=8");
  CHECK(verdict["comparisons"][2]["at"] == "d_ff=16");
  CHECK(verdict["comparisons"][2]["verdict"] == "shown");  // a loss of three nats over 16
  // Training fails at a learning rate of 1e-9: every variant has taken the other one.
  const std::string toml = read_file(folder / ("pool/" + written_runs(folder / "pool").begin()->first + ".toml"));
  CHECK(contains(toml, "learning_rate"));
  CHECK(contains(outcome.out, "0.01"));
  const std::string runs = read_file(folder / "study/runs.csv");
  std::string first = runs.substr(runs.find('\n') + 1);
  first = first.substr(first.find(",1,") + 3);
  first = first.substr(0, first.find(','));
  CHECK(
      contains(read_file(folder / ("pool/" + first + ".toml")), "\nlearning_rate = 0.01\nmin_learning_rate = 0.001\n"));
}

TEST_CASE("study: if the best learning rates differ, the result at a common learning rate is reported") {
  const Folder folder;
  // The small learning rate is too small for gradient descent, the large one too large for Adam.
  const std::string head =
      "kind = \"trained\"\nseeds = [1, 2]\nlearning_rates = [0.02, 0.1]\nmetric = \"validation_loss\"\n"
      "refuted_if = \"sgd != adam +- 10\"";
  std::string text =
      claim_text(folder, head, "[variants.sgd]\noptimizer = \"sgd\"\nsteps = 30\n[variants.adam]\nsteps = 31\n");
  text.erase(text.find("data = "), text.find("text.txt") + 10 - text.find("data = "));
  text.insert(text.find("layers"), "data = \"only_in_sets.txt\"\n");
  fs::create_directory(folder / "sets");  // not next to the claim or in the working folder, where it is found
  fs::rename(folder / "text.txt", folder / "sets/only_in_sets.txt");
  const Outcome outcome = run_study(folder, text, {"--data=" + (folder / "sets")});
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  const auto verdict = verdict_in(folder / "study");
  std::map<std::string, double> chosen_rates;
  for (const auto& each : verdict["learning_rates"]) chosen_rates[each["variant"]] = each["learning_rate"];
  CHECK(chosen_rates == std::map<std::string, double>{{"sgd", 0.1}, {"adam", 0.02}});
  REQUIRE(verdict.contains("at_common_rate"));
  const double common = verdict["common_rate"];
  Message(outcome.out).value("learning rate " + std::string(common == 0.1 ? "0.1" : "0.02"));
  CHECK(verdict["at_common_rate"]["comparisons"][0]["mean"] != verdict["comparisons"][0]["mean"]);
  CHECK(contains(verdict["command"].get<std::string>(), "--data=FOLDER"));
  expect_error(run_study(folder, text)).names("only_in_sets.txt");
}

TEST_CASE("study: a derived claim uses the metrics of the first step, before its update") {
  const Folder folder;
  const std::string rest = "[variants.softmax]\n";
  const std::string head = "kind = \"derived\"\nseeds = [1, 2, 3]\nmetric = \"row_sum/blocks.0.*\"\n";
  const Outcome outcome = run_study(folder, claim_text(folder, head + "refuted_if = \"softmax != 1 +- 0.0001\"", rest));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  Message(outcome.out).value("verdict: shown");
  const Outcome wrong = run_study(folder, claim_text(folder, head + "refuted_if = \"softmax != 2 +- 5 %\"", rest));
  Message(wrong.out).value("verdict: reversed");
  // The loss of step 1 has initial weights: near log(15) for 15 characters. Validation is later.
  const Outcome loss = run_study(folder, claim_text(folder,
                                                    "kind = \"derived\"\nseeds = [1, 2, 3]\nmetric = \"loss\"\n"
                                                    "refuted_if = \"softmax != log(15) +- 5 %\"",
                                                    "learning_rate = 0.9\n" + rest));
  INFO(loss.out, loss.err);
  Message(loss.out).value("verdict: shown");
  const Outcome none = run_study(folder, claim_text(folder,
                                                    "kind = \"derived\"\nseeds = [1, 2]\nmetric = \"validation_loss\"\n"
                                                    "refuted_if = \"softmax != 3 +- 0.1\"",
                                                    rest));
  expect_error(none).names("metric").names("softmax").value("'validation_loss'");
}

TEST_CASE("study: a timed claim measures its variants in turn, one at a time") {
  const Folder folder;
  const std::string text =
      claim_text(folder, "kind = \"timed\"\nrounds = 3\nround_steps = 2\nrefuted_if = \"wide < narrow - 99 %\"",
                 "[variants.wide]\nwidth = 128\n[variants.narrow]\n");
  REQUIRE(
      run_orrery(std::vector<std::string>{"train", "--data=" + (folder / "text.txt"), "--out=" + (folder / "other")} +
                 tiny)
          .code == 0);
  const Outcome outcome = run_study(folder, text);
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  // The verdict depends on the load of the machine.
  Message(outcome.err).value("round 3 of 3").names("wide");
  Message(outcome.out).names("verdict: ");
  const auto verdict = verdict_in(folder / "study");
  CHECK(verdict["comparisons"][0]["mean"] > 0);
  CHECK(verdict["comparisons"][0]["name"] == "wide / narrow - 1");
  CHECK(verdict["samples"] == "3 rounds");
  CHECK(!fs::exists(folder / "study/timing"));
  // A user's run in that folder stays, regardless of its name.
  fs::create_directories(folder / "study/timing");
  fs::copy(folder / "other", folder / "study/timing/0", fs::copy_options::recursive);
  expect_error(run_study(folder, text)).names("study").value(folder / "study/timing/0").offers("--out");
  CHECK(fs::exists(folder / "study/timing/0/settings.toml"));
  fs::remove_all(folder / "study/timing/0");
  // Remains of a killed measurement are removed.
  folder.write("study/timing/removed_by_study", "");
  fs::copy(folder / "other", folder / "study/timing/0", fs::copy_options::recursive);
  CHECK(run_study(folder, text).code == 0);
  CHECK(!fs::exists(folder / "study/timing"));
  // Refuses to time next to a run: another program holds the run's lock.
  folder.write("pool_busy", "");
  const Outcome busy =
      run_shell("mkdir -p " + (folder / "pool") + "; flock " + (folder / "pool/0123.lock") + " \"$ORRERY\" study " +
                (folder / "claim.toml") + " --out=" + (folder / "study") + " --runs=" + (folder / "pool"));
  expect_error(busy).names("study").value(folder / "pool/0123").names("time").offers("wait");
}

TEST_CASE("study: an interrupted study resumes with the missing runs") {
  const Folder folder;
  folder.write("claim.toml", claim_text(folder, trained + "refuted_if = \"relu > softmax\"", "steps = 3000\n" + two));
  std::string text = read_file(folder / "claim.toml");
  text.erase(text.find("steps = 4\n"), 10);
  folder.write("claim.toml", text);
  const std::string command = "\"$ORRERY\" study " + (folder / "claim.toml") + " --out=" + (folder / "study") +
                              " --runs=" + (folder / "pool") + " --jobs=1";
  const Outcome stopped =
      run_shell(command + " & pid=$!; for i in $(seq 400); do sleep 0.05; [ $(ls " + (folder / "pool") +
                "/*.json 2>/dev/null | wc -l) -ge 1 ] && break; done; kill -TERM $pid; wait $pid");
  INFO(stopped.out, stopped.err);
  CHECK(stopped.code == 128 + 15);
  Message(stopped.err).names("stopped").offers("same command");
  CHECK(!fs::exists(folder / "study/verdict.json"));
  std::map<std::string, fs::file_time_type> done;
  for (const auto& [run, time] : written_runs(folder / "pool"))
    if (fs::exists(folder / ("pool/" + run + ".json"))) done[run] = time;
  REQUIRE(!done.empty());
  const Outcome rest = run_shell(command);
  INFO(rest.out, rest.err);
  CHECK(rest.code == 0);
  Message(rest.err).value("6 of 6");
  for (const auto& [run, time] : done) CHECK(written_runs(folder / "pool").at(run) == time);
}

TEST_CASE("study: a claim can use metrics of analyses of the trained models and an example") {
  const Folder folder;
  const std::string head = "kind = \"trained\"\nseeds = [1, 2]\nmetric = \"max(heads/row_sum/*)\"\n";
  const std::string rest = two + "[example]\ntext = \"abeabeab\"\n";
  const Outcome outcome = run_study(
      folder,
      claim_text(folder, head + "refuted_if = [\"softmax != 1 +- 0.001\", \"ablation/loss: relu > 99\"]", rest));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  Message(outcome.out).value("verdict: shown");
  // The value equals that of inspect for this run.
  const std::string samples = read_file(folder / "study/samples.csv"), runs = read_file(folder / "study/runs.csv");
  const size_t line = runs.find("relu,1,") + 7;
  const std::string metrics = folder / "metrics.csv";
  const Outcome inspected = run_orrery({"inspect", folder / ("pool/" + runs.substr(line, runs.find(',', line) - line)),
                                        "--text=abeabeab", "--analysis=all", "--out=" + metrics});
  INFO(inspected.out, inspected.err);
  REQUIRE(inspected.code == 0);
  const std::string csv = read_file(metrics), name = "ablation/loss,";
  const size_t at = csv.find(name) + name.size();
  CHECK(contains(samples, "ablation/loss,relu,,1," + csv.substr(at, csv.find('\n', at) - at)));
  for (const char* each : {"metric,value\n", "\nheads/induction/blocks.0.attention.1,",
                           "\nlogit_lens/lens_loss/embedding,", "\nneurons/carriers/blocks.0.feed_forward,",
                           "\nnormalization_curves/like_tanh/norm,", "\nablation/without/blocks.0.attention.head.0,"})
    CHECK_MESSAGE(contains(csv, each), csv);

  const auto refusal = [&](const std::string& top, const std::string& tables) {
    const std::string equal = "refuted_if = \"softmax != 1 +- 0.001\"";
    return expect_error(run_study(folder, claim_text(folder, top + equal, tables)));
  };
  const std::string derived = "kind = \"derived\"\nseeds = [1, 2]\nmetric = \"heads/row_sum/*\"\n";
  const std::string longer = two + "[example]\ntext = \"abeabeabeabe\"\n";
  refusal(head, two).names("metric").value("'heads'").offers("[example]");
  refusal(head, two + "[example]\ntxt = \"a\"\n").value("'txt'").offers("'text'");
  refusal(head, two + "[example]\nlabel = 1\n").names("[example]").offers("text, image or source");
  refusal(derived, rest).names("'heads'").offers("trained").value("derived");
  refusal(head, longer).names("claim.toml:19: [example]").value("12 tokens").value(8).offers("shorter");
  const std::string no_analysis = claim_text(folder, trained + "refuted_if = \"relu > softmax\"", rest);
  expect_error(run_study(folder, no_analysis)).names("[example]").names("metric").offers("leave it out");
}

TEST_CASE("study: a claim can use a formula of a plug-in") {
  const Folder folder;
  const Outcome tried = run_orrery({"try", ORRERY_SOURCE_DIR "/tests/examples/plugins/scale_norm.cpp",
                                    "--out=" + (folder / "plugins"), "--steps=0"});
  INFO(tried.out, tried.err);
  REQUIRE(tried.code == 0);
  const std::string text = claim_text(folder, trained + "refuted_if = \"own > layer + 1\"",
                                      "[variants.own]\nnormalization = \"scale_norm\"\n[variants.layer]\n");
  const Outcome without = run_study(folder, text);
  expect_error(without).names("no verdict").value(3).offers("again");
  Message(without.err).names("own seed=1: ");
  const Outcome outcome = run_study(folder, text, {"--plugin=" + (folder / "plugins/scale_norm.so")});
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  Message(outcome.out).value("verdict: shown");
  // The variant's runs need this plug-in; a changed plug-in gives new ones. Other runs are shared.
  const auto runs = written_runs(folder / "pool");
  CHECK(runs.size() == 6);
  expect_error(run_study(folder, text)).names("no verdict").value(3);
  std::string source = read_file(ORRERY_SOURCE_DIR "/tests/examples/plugins/scale_norm.cpp");
  folder.write("scale_norm.cpp", source + "[[gnu::used]] static const int another = 1;\n");
  const Outcome changed =
      run_shell("\"$ORRERY\" try " + (folder / "scale_norm.cpp") + " --steps=0 --out=" + (folder / "changed") +
                " && ! cmp -s " + (folder / "changed/scale_norm.so") + " " + (folder / "plugins/scale_norm.so"));
  REQUIRE_MESSAGE(changed.code == 0, changed.err);
  const Outcome again = run_study(folder, text, {"--plugin=" + (folder / "changed/scale_norm.so")});
  CHECK(again.code == 0);
  const auto more = written_runs(folder / "pool");
  CHECK(more.size() == 9);
  for (const auto& [run, time] : runs) CHECK(more.at(run) == time);
  // Other commands accept the plug-in, too; without it, their errors name it.
  using Words = std::vector<std::string>;
  const Words plugin = {"--plugin=" + (folder / "plugins/scale_norm.so")};
  const Outcome swept = run_orrery(Words{"sweep", "--data=" + (folder / "text.txt"), "--out=" + (folder / "sweep"),
                                         "--runs=" + (folder / "swept"), "--normalization={layer,scale_norm}"} +
                                   tiny + plugin);
  CHECK_MESSAGE(contains(swept.out, "2  normalization=scale_norm "), swept.out, swept.err);
  int missing = 0;
  for (const auto& [run, time] : written_runs(folder / "swept")) {
    const std::string path = (folder / "swept/") + run, page = folder / "page.html";
    const Words inspect = {"inspect", path, "--text=abe", "--analysis=normalization_curves"};
    CHECK(run_orrery(inspect + plugin).code == 0);
    CHECK(last_line(run_orrery(Words{"report", path, "--out=" + page} + plugin).out) == page);
    if (!contains(read_file(path + "/settings.toml"), "scale_norm")) continue;
    ++missing;
    for (const Words& words : {inspect, Words{"evaluate", "--checkpoint=" + path},
                               Words{"generate", "--checkpoint=" + path + "/step_000004/"}, Words{"report", path}}) {
      CAPTURE(words[0]);
      expect_error(run_orrery(words)).names("normalization").value("'scale_norm'").offers("batch").offers(plugin[0]);
    }
    const Outcome resumed = run_orrery({"train", "--config=" + path + "/settings.toml", "--resume"});
    expect_error(resumed).names("plug-in").offers(plugin[0]);
    expect_error(run_orrery({"verify_resume", path})).names("verify_resume").value(path).offers(plugin[0]);
    for (const Words& words : {Words{"compare", path, path}, Words{"metrics", path}})  // they make no model
      CHECK(run_orrery(words).code == 0);
    // With the plug-in, other errors do not mention it.
    const Outcome wrong = run_orrery(inspect + Words{"--layer=7"} + plugin);
    expect_error(wrong).names("layer").value(7);
    CHECK(!contains(wrong.err, "plug"));
  }
  CHECK(missing == 1);
}

TEST_CASE("study: a config and data near the claim are found from any working folder") {
  const Folder folder;
  std::filesystem::create_directories(folder / "claims/group");
  std::filesystem::create_directories(folder / "elsewhere");
  folder.write("text.txt", tiny_text());
  folder.write("base.toml",
               "data = \"text.txt\"\nlayers = 1\nheads = 2\nwidth = 16\ncontext = 8\nbatch_size = 2\nsteps = 4\n");
  const std::string claim = "source = \"a test\"\nsentence = \"Two variants differ.\"\n" + trained +
                            "refuted_if = \"relu > softmax + 1\"\nconfig = \"base.toml\"\n" + two;
  folder.write("claims/group/claim.toml", claim);
  folder.write("claims/group/lost.toml", std::string(claim).replace(claim.find("base.toml"), 9, "nope.toml"));
  const auto there = [&](const std::string& file) {
    return run_shell("cd " + (folder / "elsewhere") + " && \"$ORRERY\" study ../claims/group/" + file +
                     " --out=out --runs=pool");
  };
  const Outcome outcome = there("claim.toml");
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  Message(outcome.out).value("verdict: shown");
  expect_error(there("lost.toml")).names("lost.toml:7").value("nope.toml").offers("the claim's folder");
}

TEST_CASE("report: it replaces no file of a sweep or study, and no foreign page") {
  const Folder folder;
  const std::string pool = "--runs=" + (folder / "pool"), swept = folder / "swept", study = folder / "study";
  REQUIRE(run_orrery(Words{"sweep", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + swept, pool,
                           "--seed={1,2}"} +
                     tiny)
              .code == 0);
  REQUIRE(run_study(folder, claim_text(folder, trained + "refuted_if = \"relu > softmax\"", two)).code == 0);
  for (const std::string& of : {swept, study}) {
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(of)) {
      const std::string path = entry.path().string(), before = read_file(path);
      expect_error(run_orrery({"report", of, "--out=" + path})).names(path).offers("--out");
      CHECK(read_file(path) == before);
      ++files;
    }
    CHECK(files >= 3);
  }
  for (const std::string name : {"swept", "study"}) {
    const std::string mine = folder.write(name + "/report.html", "mine\n");
    expect_error(run_orrery({"report", folder / name})).names(mine).offers("--out");
    CHECK(read_file(mine) == "mine\n");
  }
}
