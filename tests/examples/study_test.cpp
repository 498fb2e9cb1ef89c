// orrery study: a claim is trained for, judged, shown, and refused where it says too little.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/examples/study.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;

TEST_CASE("study: a trained claim, its files, its report, and nothing trained twice") {
  const Folder folder;
  const std::string text = claim_text(folder, trained + "refuted_if = \"relu != softmax +- 50 %\"", two);
  const Outcome first = judge(folder, text, {"--jobs=2"});
  INFO(first.out, first.err);
  REQUIRE(first.code == 0);
  CHECK(contains(first.out, "trained: 2 variants, 3 seeds, 6 runs\n"));
  CHECK(contains(first.out, "6 of 6"));
  CHECK(contains(first.out, "shown: validation loss, relu / softmax - 1 is "));
  CHECK(contains(first.out, "verdict: shown, after "));
  const auto runs = written_runs(folder / "pool");
  CHECK(runs.size() == 6);
  const auto verdict = verdict_in(folder / "study");
  CHECK(verdict["verdict"] == "shown");
  CHECK(verdict["comparisons"][0]["samples"] == 3);
  CHECK(
      contains(read_file(folder / "study/samples.csv"), "metric,variant,swept,sample,value\nvalidation_loss,relu,,1,"));
  CHECK(contains(read_file(folder / "study/table.csv"), "validation_loss,softmax,,3,"));

  const Outcome again = judge(folder, text);
  CHECK(again.code == 0);
  CHECK(written_runs(folder / "pool") == runs);
  CHECK(verdict_in(folder / "study")["comparisons"] == verdict["comparisons"]);
  // A sweep of the same settings shares the runs, and another seed is all that a longer claim trains.
  const std::string more = claim_text(
      folder, "kind = \"trained\"\nseeds = [1, 2, 3, 4]\nmetric = \"validation_loss\"\nrefuted_if = \"relu > softmax\"",
      two);
  CHECK(judge(folder, more).code == 0);
  CHECK(written_runs(folder / "pool").size() == 8);
  CHECK(run_orrery(Words{"sweep", "--data=" + (folder / "text.txt"), "--out=" + (folder / "sweep"),
                         "--runs=" + (folder / "pool"), "--seed={1..4}", "--attention={softmax,pointwise(relu)}"} +
                   tiny)
            .code == 0);
  CHECK(written_runs(folder / "pool").size() == 8);
  const Outcome fresh = judge(folder, text, {"--fresh"});
  CHECK(fresh.code == 0);
  for (const auto& [run, time] : runs) CHECK(written_runs(folder / "pool").at(run) != time);

  const Outcome report = run_orrery({"report", folder / "study", "--out=" + (folder / "page.html")});
  INFO(report.err);
  CHECK(report.code == 0);
  const std::string page = read_file(folder / "page.html");
  for (const char* part : {"Two variants differ.", "a test", "\"kind\":\"bars\"", "relu / softmax - 1", "claim.toml"})
    CHECK(contains(page, part));
}

TEST_CASE("study: over a sweep, with a metric of its own for a comparison, at the best rate of each") {
  const Folder folder;
  const Outcome outcome = judge(folder, claim_text(folder,
                                                   "kind = \"trained\"\nseeds = [1, 2]\nlearning_rates = [1e-9, 1e-2]\n"
                                                   "metric = \"doubling(validation_loss)\"\n"
                                                   "refuted_if = [\"wide > narrow\", \"ratio(loss, swept): wide > 1\"]",
                                                   "[sweep]\nd_ff = [8, 16]\n[variants.wide]\n[variants.narrow]\n"
                                                   "feed_forward = \"dense(relu)\"\n"));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "2 values of d_ff, 2 seeds, 12 runs\n"));
  const auto verdict = verdict_in(folder / "study");
  REQUIRE(verdict["comparisons"].size() == 3);  // the slope, and the ratio at both values
  CHECK(verdict["comparisons"][0]["at"] == "");
  CHECK(verdict["comparisons"][1]["at"] == "d_ff=8");
  CHECK(verdict["comparisons"][2]["at"] == "d_ff=16");
  CHECK(verdict["comparisons"][2]["verdict"] == "shown");  // a loss of three nats over 16
  // At 1e-9 nothing is learned: every variant has taken the other rate.
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

TEST_CASE("study: where families take other learning rates, it is told what one rate for all finds") {
  const Folder folder;
  // The small rate is none for plain gradient descent, the large one is too much for Adam.
  const std::string head =
      "kind = \"trained\"\nseeds = [1, 2]\nlearning_rates = [0.02, 0.1]\nmetric = \"validation_loss\"\n"
      "refuted_if = \"sgd != adam +- 10\"";
  std::string text =
      claim_text(folder, head, "[variants.sgd]\noptimizer = \"sgd\"\nsteps = 30\n[variants.adam]\nsteps = 31\n");
  text.erase(text.find("data = "), text.find("text.txt") + 10 - text.find("data = "));
  text.insert(text.find("layers"), "data = \"only_in_sets.txt\"\n");
  fs::create_directory(folder / "sets");  // where it lies; near the claim, or where the test runs, it would be found
  fs::rename(folder / "text.txt", folder / "sets/only_in_sets.txt");
  const Outcome outcome = judge(folder, text, {"--data=" + (folder / "sets")});
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  const auto verdict = verdict_in(folder / "study");
  std::map<std::string, double> rates;
  for (const auto& each : verdict["learning_rates"]) rates[each["variant"]] = each["learning_rate"];
  CHECK(rates == std::map<std::string, double>{{"sgd", 0.1}, {"adam", 0.02}});
  REQUIRE(verdict.contains("at_common_rate"));
  const double common = verdict["common_rate"];
  CHECK(contains(outcome.out, "all at the learning rate " + std::string(common == 0.1 ? "0.1" : "0.02")));
  CHECK(verdict["at_common_rate"]["comparisons"][0]["mean"] != verdict["comparisons"][0]["mean"]);
  CHECK(contains(verdict["command"].get<std::string>(), "--data=FOLDER"));
  const Outcome none = judge(folder, text);
  CHECK(none.code == 1);
  CHECK(contains(none.err, "only_in_sets.txt"));
}

TEST_CASE("study: a derived claim looks at the first step, before its update") {
  const Folder folder;
  const std::string rest = "[variants.softmax]\n";
  const std::string head = "kind = \"derived\"\nseeds = [1, 2, 3]\nmetric = \"row_sum/blocks.0.*\"\n";
  const Outcome outcome = judge(folder, claim_text(folder, head + "refuted_if = \"softmax != 1 +- 0.0001\"", rest));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "verdict: shown"));
  const Outcome wrong = judge(folder, claim_text(folder, head + "refuted_if = \"softmax != 2 +- 5 %\"", rest));
  CHECK(contains(wrong.out, "verdict: reversed"));
  // The loss of step 1 is that of fresh weights, near the log of its 15 characters; a validation comes later.
  const Outcome loss = judge(folder, claim_text(folder,
                                                "kind = \"derived\"\nseeds = [1, 2, 3]\nmetric = \"loss\"\n"
                                                "refuted_if = \"softmax != log(15) +- 5 %\"",
                                                "learning_rate = 0.9\n" + rest));
  INFO(loss.out, loss.err);
  CHECK(contains(loss.out, "verdict: shown"));
  const Outcome none = judge(folder, claim_text(folder,
                                                "kind = \"derived\"\nseeds = [1, 2]\nmetric = \"validation_loss\"\n"
                                                "refuted_if = \"softmax != 3 +- 0.1\"",
                                                rest));
  CHECK(none.code == 1);
  CHECK(contains(none.err, "no figure fits 'validation_loss'"));
}

TEST_CASE("study: a timed claim takes turns, alone") {
  const Folder folder;
  const std::string text =
      claim_text(folder, "kind = \"timed\"\nrounds = 3\nround_steps = 2\nrefuted_if = \"wide < narrow - 99 %\"",
                 "[variants.wide]\nwidth = 128\n[variants.narrow]\n");
  REQUIRE(
      run_orrery(std::vector<std::string>{"train", "--data=" + (folder / "text.txt"), "--out=" + (folder / "other")} +
                 tiny)
          .code == 0);
  const Outcome outcome = judge(folder, text);
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "round 3 of 3: wide "));
  CHECK(contains(outcome.out, "verdict: "));  // which one depends on what else the machine does
  const auto verdict = verdict_in(folder / "study");
  CHECK(verdict["comparisons"][0]["mean"] > 0);
  CHECK(verdict["comparisons"][0]["name"] == "wide / narrow - 1");
  CHECK(verdict["samples"] == "3 rounds");
  CHECK(!fs::exists(folder / "study/timing"));
  // A run of the user's in that folder stays, whatever its name.
  fs::create_directories(folder / "study/timing");
  fs::copy(folder / "other", folder / "study/timing/0", fs::copy_options::recursive);
  expect_error(judge(folder, text)).names("study").value(folder / "study/timing/0").offers("--out");
  CHECK(fs::exists(folder / "study/timing/0/settings.toml"));
  fs::remove_all(folder / "study/timing/0");
  // What a measurement left that was killed goes.
  folder.write("study/timing/removed_by_study", "");
  fs::copy(folder / "other", folder / "study/timing/0", fs::copy_options::recursive);
  CHECK(judge(folder, text).code == 0);
  CHECK(!fs::exists(folder / "study/timing"));
  // Not beside a run: its lock is held by another program.
  folder.write("pool_busy", "");
  const Outcome busy =
      run_shell("mkdir -p " + (folder / "pool") + "; flock " + (folder / "pool/0123.lock") + " \"$ORRERY\" study " +
                (folder / "claim.toml") + " --out=" + (folder / "study") + " --runs=" + (folder / "pool"));
  CHECK(busy.code == 1);
  CHECK(contains(busy.err, "study: a program trains " + (folder / "pool/0123") +
                               " at the moment; time is not measured beside it, wait for its end"));
}

TEST_CASE("study: interrupted, it goes on with what is missing") {
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
  CHECK(contains(stopped.out, "the same command goes on"));
  CHECK(!fs::exists(folder / "study/verdict.json"));
  std::map<std::string, fs::file_time_type> done;
  for (const auto& [run, time] : written_runs(folder / "pool"))
    if (fs::exists(folder / ("pool/" + run + ".json"))) done[run] = time;
  REQUIRE(!done.empty());
  const Outcome rest = run_shell(command);
  INFO(rest.out, rest.err);
  CHECK(rest.code == 0);
  CHECK(contains(rest.out, "6 of 6"));
  for (const auto& [run, time] : done) CHECK(written_runs(folder / "pool").at(run) == time);
}

TEST_CASE("study: figures of looks inside, of the trained models and an example") {
  const Folder folder;
  const std::string head = "kind = \"trained\"\nseeds = [1, 2]\nmetric = \"max(heads/row_sum/*)\"\n";
  const std::string rest = two + "[example]\ntext = \"abeabeab\"\n";
  const Outcome outcome = judge(
      folder, claim_text(folder, head + "refuted_if = [\"softmax != 1 +- 0.001\", \"causes/loss: relu > 99\"]", rest));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "verdict: shown"));
  // The same that inspect says of that run.
  const std::string samples = read_file(folder / "study/samples.csv"), runs = read_file(folder / "study/runs.csv");
  const size_t line = runs.find("relu,1,") + 7;
  const std::string figures = folder / "figures.csv";
  const Outcome inspected = run_orrery({"inspect", folder / ("pool/" + runs.substr(line, runs.find(',', line) - line)),
                                        "--text=abeabeab", "--look=all", "--out=" + figures});
  INFO(inspected.out, inspected.err);
  REQUIRE(inspected.code == 0);
  const std::string csv = read_file(figures), name = "causes/loss,";
  const size_t at = csv.find(name) + name.size();
  CHECK(contains(samples, "causes/loss,relu,,1," + csv.substr(at, csv.find('\n', at) - at)));
  for (const char* each : {"figure,value\n", "\nheads/induction/blocks.0.attention.1,", "\ndepth/lens_loss/embedding,",
                           "\nmemories/carriers/blocks.0.feed_forward,", "\ncurves/like_tanh/norm,",
                           "\ncauses/without/blocks.0.attention.head.0,"})
    CHECK_MESSAGE(contains(csv, each), csv);

  const auto refused = [&](const std::string& whole, const std::string& sentence) {
    const Outcome wrong = judge(folder, whole);
    CHECK(wrong.code == 1);
    CHECK_MESSAGE(contains(wrong.err, sentence), wrong.err);
  };
  const std::string equal = "refuted_if = \"softmax != 1 +- 0.001\"";
  refused(claim_text(folder, head + equal, two),
          "the metric names a figure of the look 'heads'; say what the models read");
  refused(claim_text(folder, head + equal, two + "[example]\ntxt = \"a\"\n"),
          "unknown key 'txt'; did you mean 'text'?");
  refused(claim_text(folder, head + equal, two + "[example]\nlabel = 1\n"), "[example] gives no text, image or source");
  refused(claim_text(folder, trained + "refuted_if = \"relu > softmax\"", rest), "so [example] would not be read");
  refused(claim_text(folder, "kind = \"derived\"\nseeds = [1, 2]\nmetric = \"heads/row_sum/*\"\n" + equal, rest),
          "are those of a trained model, and this claim is derived");
  refused(claim_text(folder, head + equal, two + "[example]\ntext = \"abeabeabeabe\"\n"),
          "claim.toml:19: [example]: inspect: the text has 12 tokens, and this model reads 8 at once");
}

TEST_CASE("study: a formula of one's own") {
  const Folder folder;
  const Outcome tried = run_orrery({"try", ORRERY_SOURCE_DIR "/tests/examples/plugins/scale_norm.cpp",
                                    "--out=" + (folder / "plugins"), "--steps=0"});
  INFO(tried.out, tried.err);
  REQUIRE(tried.code == 0);
  const std::string text = claim_text(folder, trained + "refuted_if = \"own > layer + 1\"",
                                      "[variants.own]\nnormalization = \"scale_norm\"\n[variants.layer]\n");
  const Outcome without = judge(folder, text);
  orrery::testing::expect_error(without).names("not judged").value(3).offers("again");
  CHECK(contains(without.out, "own seed=1: "));
  const Outcome outcome = judge(folder, text, {"--plugin=" + (folder / "plugins/scale_norm.so")});
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "verdict: shown"));
  // Its runs are those of this plug-in: without it there are none, of another they are others; the rest are shared.
  const auto runs = written_runs(folder / "pool");
  CHECK(runs.size() == 6);
  orrery::testing::expect_error(judge(folder, text)).names("not judged").value(3);
  std::string source = read_file(ORRERY_SOURCE_DIR "/tests/examples/plugins/scale_norm.cpp");
  folder.write("scale_norm.cpp", source + "[[gnu::used]] static const int another = 1;\n");
  const Outcome changed = run_shell("\"$ORRERY\" try " + (folder / "scale_norm.cpp") + " --steps=0 --out=" +
                                    (folder / "changed") + " && ! cmp -s " + (folder / "changed/scale_norm.so") + " " +
                                    (folder / "plugins/scale_norm.so"));
  REQUIRE_MESSAGE(changed.code == 0, changed.err);
  const Outcome again = judge(folder, text, {"--plugin=" + (folder / "changed/scale_norm.so")});
  CHECK(again.code == 0);
  const auto more = written_runs(folder / "pool");
  CHECK(more.size() == 9);
  for (const auto& [run, time] : runs) CHECK(more.at(run) == time);
  // The commands beside it take the plug-in too, and without it name what they lack.
  using Words = std::vector<std::string>;
  const Words plugin = {"--plugin=" + (folder / "plugins/scale_norm.so")};
  const Outcome swept = run_orrery(Words{"sweep", "--data=" + (folder / "text.txt"), "--out=" + (folder / "sweep"),
                                         "--runs=" + (folder / "swept"), "--normalization={layer,scale_norm}"} +
                                   tiny + plugin);
  CHECK_MESSAGE(contains(swept.out, "2  normalization=scale_norm "), swept.out, swept.err);
  int lacking = 0;
  for (const auto& [run, time] : written_runs(folder / "swept")) {
    const std::string path = (folder / "swept/") + run, page = folder / "page.html";
    const Words inspect = {"inspect", path, "--text=abe", "--look=curves"};
    CHECK(run_orrery(inspect + plugin).code == 0);
    CHECK(last_line(run_orrery(Words{"report", path, "--out=" + page} + plugin).out) == page);
    if (!contains(read_file(path + "/settings.toml"), "scale_norm")) continue;
    ++lacking;
    const std::string way_out = "; the run was trained with a plug-in: give " + plugin[0];
    for (const Words& words : {inspect, Words{"evaluate", "--checkpoint=" + path},
                               Words{"generate", "--checkpoint=" + path + "/step_000004/"}, Words{"report", path}}) {
      CAPTURE(words[0]);
      const std::string said = run_orrery(words).err;
      CHECK_MESSAGE(contains(said, "normalization: no 'scale_norm'; there are batch, "), said);
      CHECK_MESSAGE(contains(said, way_out), said);
    }
    const std::string resumed = run_orrery({"train", "--config=" + path + "/settings.toml", "--resume"}).err;
    CHECK_MESSAGE(contains(resumed, way_out), resumed);
    CHECK(contains(run_orrery({"verify_resume", path}).err, "verify_resume: " + path + ": " + way_out.substr(2)));
    for (const Words& words : {Words{"compare", path, path}, Words{"metrics", path}})  // they make no model
      CHECK(run_orrery(words).code == 0);
    // With it nothing is lacking, whatever else is wrong.
    const std::string wrong = run_orrery(inspect + Words{"--layer=7"} + plugin).err;
    CHECK(!wrong.empty());
    CHECK(!contains(wrong, "plug-in"));
  }
  CHECK(lacking == 1);
}

TEST_CASE("study: a config and data near the claim are found from anywhere") {
  const Folder folder;
  std::filesystem::create_directories(folder / "claims/group");
  std::filesystem::create_directories(folder / "elsewhere");
  folder.write("text.txt", tiny_text());
  folder.write("base.toml",
               "data = \"text.txt\"\nlayers = 1\nheads = 2\nwidth = 16\ncontext = 8\nbatch = 2\nsteps = 4\n");
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
  CHECK(contains(outcome.out, "verdict: shown"));
  const Outcome lost = there("lost.toml");
  CHECK(lost.code == 1);
  CHECK_MESSAGE(contains(lost.err,
                         "lost.toml:7: there is no file nope.toml, neither here nor beside the claim or above it"),
                lost.err);
}

TEST_CASE("study: what says too little, or contradicts itself, is refused with a sentence") {
  const Folder folder;
  const std::string good = trained + "refuted_if = \"relu > softmax\"";
  const auto refusal = [&](const std::string& head, const std::string& rest = two) {
    const Outcome outcome = judge(folder, claim_text(folder, head, rest));
    CHECK(outcome.code == 1);
    CHECK(!fs::exists(folder / "study"));
    CHECK(written_runs(fs::exists(folder / "pool") ? folder / "pool" : folder.path()).empty());
    return outcome.err;
  };
  const auto says = [&](const std::string& sentence, const std::string& head, const std::string& rest = two) {
    const std::string error = refusal(head, rest);
    CHECK_MESSAGE(contains(error, sentence), error);
  };
  says("claim.toml: the claim has no refuted_if, so nothing could refute it; say what would", trained);
  says("a trained claim with one seed has no interval and cannot be judged; name two or more, as in seeds = [1, 2, 3]",
       "kind = \"trained\"\nseeds = [1]\nmetric = \"loss\"\nrefuted_if = \"relu > softmax\"");
  says("the claim has no seeds", "kind = \"trained\"\nmetric = \"loss\"\nrefuted_if = \"relu > softmax\"");
  says("the seed 1 is there twice",
       "kind = \"trained\"\nseeds = [1, 1]\nmetric = \"loss\"\nrefuted_if = \"relu > softmax\"");
  says("the claim has no metric", "kind = \"trained\"\nseeds = [1, 2]\nrefuted_if = \"relu > softmax\"");
  says("kind is trained, derived or timed, not 'guessed'", "kind = \"guessed\"");
  says("the claim has no kind: trained, derived or timed", "seeds = [1, 2]");
  says("unknown key 'metrik'; did you mean 'metric'?", good + "\nmetrik = \"loss\"");
  says("unknown key 'attntion'; did you mean 'attention'?", good, "[variants.relu]\nattntion = \"relu\"\n");
  says("'seed' is no setting of a claim; its seeds stand at the top", good, "[variants.relu]\nseed = 3\n");
  says("the claim has no variants", good, "");
  says("names 'softmx', which is no variant; did you mean 'softmax'?", trained + "refuted_if = \"relu > softmx\"");
  says("holds a variant against itself", trained + "refuted_if = \"relu > relu\"");
  says("says that two are equal, which needs a margin on both sides, as in 'relu != softmax +- 0.02'",
       trained + "refuted_if = \"relu != softmax\"");
  says("has a margin on both sides; only != takes one", trained + "refuted_if = \"relu > softmax +- 0.1\"");
  says("is not of the form", trained + "refuted_if = \"relu is worse\"");
  says("slope(...) is over a swept key; give its values in [sweep]",
       "kind = \"trained\"\nseeds = [1, 2]\nmetric = \"slope(loss)\"\nrefuted_if = \"relu > softmax\"");
  says("heads has 1 values and d_ff has 2; the lists of [sweep] are changed together", good,
       "[sweep]\nd_ff = [8, 16]\nheads = [2]\n" + two);
  says("d_ff needs two or more different values", good, "[sweep]\nd_ff = [8]\n" + two);
  says("learning_rate is swept, beside learning_rates; leave one of them out", good + "\nlearning_rates = [0.1, 0.2]",
       "[sweep]\nlearning_rate = [0.1, 0.2]\n" + two);
  says("main is true or false", good + "\nmain = \"yes\"");
  says("only a timed claim has rounds", good + "\nrounds = 4");
  says("a timed claim has rounds, not seeds", "kind = \"timed\"\nseeds = [1, 2]\nrefuted_if = \"relu > softmax\"");
  says("a timed claim measures milliseconds, not loss",
       "kind = \"timed\"\nmetric = \"loss\"\nrefuted_if = \"relu > softmax\"");
  says("a margin of a timed claim is a share, as in 'relu > softmax + 5 %'",
       "kind = \"timed\"\nrefuted_if = \"relu > softmax + 3\"");
  says(
      "a derived claim learns nothing; leave learning_rates out",
      "kind = \"derived\"\nseeds = [1, 2]\nlearning_rates = [0.1]\nmetric = \"loss\"\nrefuted_if = \"relu > softmax\"");
  says("the learning rate 0.1 is there twice; leave one out", good + "\nlearning_rates = [0.1, 1e-1]");
  says("the variants 'relu' and 'softmax' have the same settings", good,
       "[variants.relu]\nwidth = 16\n[variants.softmax]\nattention = \"softmax\"\n");
  says("relu d_ff=x: train: d_ff: 'x' is not a whole number", good, "[sweep]\nd_ff = [8, \"x\"]\n" + two);

  std::string seeds = "kind = \"trained\"\nmetric = \"loss\"\nrefuted_if = \"relu > softmax\"\nseeds = [0";
  for (int i = 1; i < 600; ++i) seeds += "," + std::to_string(i);
  says("has 1200 runs, more than 1,000; train them with --yes", seeds + "]");
  const std::string many = seeds.replace(seeds.find("loss"), 4, "los") + "]";  // which the first of the 1,200 tells
  const Outcome yes = judge(folder, claim_text(folder, many, two), {"--yes", "--jobs=1"});
  CHECK_MESSAGE(contains(yes.err, "no figure fits 'los'; did you mean 'loss'?"), yes.err);
  fs::remove_all(folder / "pool");

  // What only a run can tell ends it after the first, with what would help.
  const auto told = [&](const std::string& metric) {
    return judge(folder,
                 claim_text(folder,
                            "kind = \"trained\"\nseeds = [1, 2, 3]\nmetric = \"" + metric +
                                "\"\nrefuted_if = \"relu > softmax\"",
                            two),
                 {"--jobs=1"})
        .err;
  };
  CHECK(contains(told("validation_los"),
                 "claim.toml:5: the metric of relu: no figure fits 'validation_los'; did you mean "
                 "'validation_loss'?"));
  // Two figures that are never in one row.
  CHECK(contains(told("rank_correlation(loss, validation_loss)"), "claim.toml:5: the metric of relu: "));
  CHECK(contains(told("entropy/*"),
                 "claim.toml:5: the runs of relu do not log 'entropy/*'; add figures = \"entropy\" to [base]"));
  CHECK(written_runs(folder / "pool").size() == 1);  // of six, which each call finds

  const auto fails = [&](const Words& words) {
    const Outcome outcome = run_orrery(Words{"study"} + words);
    CHECK(outcome.code == 1);
    return outcome.err;
  };
  CHECK(contains(
      fails({}),
      "study: give a claim, as in orrery study examples/studies/all_attention/feed_forward_can_be_dropped.toml"));
  CHECK(contains(fails({"a.toml", "b.toml"}), "study: give one claim"));
  CHECK(contains(fails({"a.toml", "--judge=no"}), "study: --judge=no only lists what has been judged, with --all="));
  CHECK(contains(fails({"--all=" + folder.path(), "a.toml"}), "leave 'a.toml' out"));
  CHECK(contains(fails({"--all=" + (folder / "nowhere")}), "study: there is no folder"));
  CHECK(contains(fails({folder / "nowhere.toml"}), "nowhere.toml: No such file"));
  CHECK(contains(fails({"--smok"}), "study: unknown key 'smok'; did you mean 'smoke'?"));
}
