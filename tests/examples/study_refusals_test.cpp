// orrery study: errors of claims that are incomplete, wrong or not comparable.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/study.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

TEST_CASE("study: incomplete or contradictory claims are refused with an error message") {
  const Folder folder;
  const std::string refuted = "refuted_if = \"relu > softmax\"", good = trained + refuted;
  const auto refusal = [&](const std::string& head, const std::string& rest = two) {
    const Outcome outcome = run_study(folder, claim_text(folder, head, rest));
    CHECK(!fs::exists(folder / "study"));
    CHECK(written_runs(fs::exists(folder / "pool") ? folder / "pool" : folder.path()).empty());
    return expect_error(outcome);
  };
  const auto kind = [](const std::string& word) { return "kind = \"" + word + "\"\n"; };
  const std::string two_seeds = "seeds = [1, 2]\n", of_loss = "metric = \"loss\"\n" + refuted;
  refusal(kind("guessed")).names("kind").value("'guessed'").offers("trained, derived or timed");
  refusal(two_seeds).names("claim.toml: ").names("kind").offers("trained, derived or timed");
  refusal(kind("trained") + "seeds = [1]\n" + of_loss).names("trained").value("one seed").offers("seeds = [1, 2, 3]");
  refusal(kind("trained") + of_loss).names("seeds").offers("seeds = [1, 2, 3]");
  refusal(kind("trained") + "seeds = [1, 1]\n" + of_loss).names("claim.toml:4").value("seed 1");
  refusal(kind("trained") + two_seeds + refuted).names("metric").offers("metric = \"validation_loss\"");
  refusal(good + "\nmetrik = \"loss\"").value("'metrik'").offers("'metric'");
  refusal(good + "\nmain = \"yes\"").names("main").offers("true").offers("false");
  refusal(good + "\nrounds = 4").names("rounds").offers("timed").value("trained");
  refusal(good + "\nlearning_rates = [0.1, 1e-1]").names("learning rate").value("0.1").offers("leave one");
  std::string rates = "1";
  for (int i = 2; i <= 65; ++i) rates += "," + std::to_string(i);
  refusal(good + "\nlearning_rates = []").names("learning_rates").offers("1 to 64").value(0);
  refusal(good + "\nlearning_rates = [" + rates + "]").names("learning_rates").offers("1 to 64").value(65);
  refusal(kind("derived") + two_seeds + "learning_rates = [0.1]\n" + of_loss).names("learning_rates").value("derived");
  refusal(kind("timed") + two_seeds + refuted).names("timed").value("seeds").offers("rounds");
  refusal(kind("timed") + of_loss).names("timed").offers("step_ms").value("loss");

  const auto refuted_if = [](const std::string& rule) { return "refuted_if = \"" + rule + "\""; };
  refusal(kind("timed") + refuted_if("relu > softmax + 3")).names("margin").names("timed").offers("softmax + 5 %");
  refusal(kind("timed") + refuted_if("relu > 3")).names("claim.toml:4").value("'relu'").offers("another variant");
  refusal(trained + "refuted_if = [1]").names("claim.toml:6").names("refuted_if").offers("text in quotes");
  refusal(kind("trained") + two_seeds + "metric = \"slope(loss)\"\n" + refuted).names("slope").offers("[sweep]");
  refusal(trained).names("claim.toml: ").names("refuted_if").offers(refuted);
  const auto rule = [&](const std::string& text) { return refusal(trained + refuted_if(text)); };
  rule("relu > softmx").names("'relu > softmx'").value("'softmx'").offers("'softmax'");
  rule("relu > relu").names("claim.toml:6").value("'relu > relu'");
  rule("relu != softmax").value("'relu != softmax'").names("margin").offers("'relu != softmax +- 0.02'");
  rule("relu > softmax +- 0.1").value("'relu > softmax +- 0.1'").names("margin").offers("!=");
  rule("relu is worse").value("'relu is worse'").offers("'relu > softmax'");

  const std::string same = "[variants.relu]\nwidth = 16\n[variants.softmax]\nattention = \"softmax\"\n";
  refusal(good, same).names("variants").value("'relu'").value("'softmax'").offers("change a setting");
  for (const char* none : {"", "[variants]\n"}) refusal(good, none).names("variants").offers("[variants.relu]");
  for (const std::string name : {"swept", "2x", "a-b"})
    refusal(good, "[variants." + name + "]\nwidth = 16\n").names("variant").value("'" + name + "'").offers("letters");
  refusal(good, "[variants.relu]\nattntion = \"relu\"\n").value("'attntion'").offers("'attention'");
  refusal(good, "[variants.relu]\nseed = 3\n").names("'seed'").offers("seeds = [1, 2, 3]");
  const auto swept = [&](const std::string& lists, const std::string& more = "") {
    return refusal(good + more, "[sweep]\n" + lists + "\n" + two);
  };
  swept("d_ff = [8, 16]\nheads = [2]").names("heads").value(1).names("d_ff").value(2).names("[sweep]");
  swept("d_ff = [8]").names("d_ff").offers("two or more");
  swept("d_ff = 8").names("claim.toml:17").names("d_ff").offers("at most 64").offers("[32, 256]");
  swept("d_ff = [8, \"x\"]").names("relu d_ff=x").names("d_ff").value("'x'").offers("whole number");
  const std::string chosen_rates = "\nlearning_rates = [0.1, 0.2]";
  const std::string with_rate = "[variants.relu]\nlearning_rate = 0.1\n[variants.softmax]\n";
  refusal(good + chosen_rates, with_rate).names("claim.toml: ").value("'relu'").names("learning_rates").offers("leave");
  swept("learning_rate = [0.1, 0.2]", chosen_rates).names("learning_rate").names("learning_rates").offers("leave one");

  // Other names of a setting are refused as its own.
  const std::string min_lr = "[variants.relu]\nmin_lr = 0.1\n[variants.softmax]\n";
  refusal(good + chosen_rates, min_lr).names("claim.toml: ").value("'relu'").names("learning_rates").offers("leave");
  swept("lr = [0.1, 0.2]", chosen_rates).names("learning_rate").names("learning_rates").offers("leave one");
  refusal(good, "[variants.relu]\nout_dir = \"x\"\n").names("'out'").offers("leave it out");
  swept("seed = [3, 4]").names("'seed'").offers("seeds = [1, 2, 3]");
  swept("batch = [2, 3]\nbatch_size = [3, 4]").names("batch_size").names("batch").offers("leave one");
  refusal(good, "[sweep]\nlr = [0.1, 0.2]\n" + with_rate).names("'relu'").names("learning_rate").value("lr");
  const std::string two_steps = "[sweep]\nsteps = [2, 3]\n" + two;
  refusal(kind("derived") + two_seeds + of_loss, two_steps).value("steps=2").value("steps=3").offers("leave one");

  std::string seeds = "kind = \"trained\"\nmetric = \"loss\"\nrefuted_if = \"relu > softmax\"\nseeds = [0";
  for (int i = 1; i < 600; ++i) seeds += "," + std::to_string(i);
  refusal(seeds + "]").names("study").value(1200).value("1,000").offers("--yes");
  const std::string many = seeds.replace(seeds.find("loss"), 4, "los") + "]";  // the first of 1,200 runs fails
  const Outcome yes = run_study(folder, claim_text(folder, many, two), {"--yes", "--jobs=1"});
  expect_error(yes).names("metric").value("'los'").offers("'loss'");
  fs::remove_all(folder / "pool");

  // An error that only a run can show ends the study after the first run, with a way out.
  const auto message_for = [&](const std::string& metric) {
    const std::string head = kind("trained") + "seeds = [1, 2, 3]\nmetric = \"" + metric + "\"\n";
    return expect_error(run_study(folder, claim_text(folder, head + refuted, two), {"--jobs=1"}));
  };
  message_for("validation_los")
      .names("claim.toml:5")
      .names("relu")
      .value("'validation_los'")
      .offers("'validation_loss'");
  // Two metrics that never share a row.
  message_for("rank_correlation(loss, validation_loss)").names("claim.toml:5").names("metric").names("relu");
  message_for("entropy/*")
      .names("claim.toml:5")
      .names("relu")
      .value("entropy/*")
      .offers("metrics = \"entropy\" to [base]");
  CHECK(written_runs(folder / "pool").size() == 1);  // of six; each call finds it

  const auto fails = [&](const Words& words) { return expect_error(run_orrery(Words{"study"} + words)); };
  const std::string example = "orrery study examples/studies/all_attention/feed_forward_can_be_dropped.toml";
  fails({}).names("study").names("a claim").offers(example).offers("--all=FOLDER");
  fails({"a.toml", "b.toml"}).names("study").names("one claim").offers(example).offers("--all=FOLDER");
  fails({"a.toml", "--test=no"}).names("study").value("--test=no").offers("--all=FOLDER");
  fails({"--all=" + folder.path(), "a.toml"}).names("--all").names(folder.path()).value("'a.toml'");
  fails({"--all=" + (folder / "nowhere")}).names("study").value(folder / "nowhere").offers("--all=examples/studies");
  fails({folder / "nowhere.toml"}).names(folder / "nowhere.toml").value("No such file");
  fails({"--smok"}).names("study").value("'smok'").offers("'smoke'");
}

TEST_CASE("study: variants with different targets are not compared by a loss") {
  const Folder folder;
  const std::string variants = "[variants.relu]\ntokenizer = \"byte\"\n[variants.softmax]\n",
                    head = "kind = \"trained\"\nseeds = [1, 2]\nrefuted_if = \"relu > softmax\"\nmetric = ";
  const auto tested = [&](const std::string& metric, const std::string& of = "") {
    return run_study(folder, claim_text(folder, head + "\"" + metric + "\"", of.empty() ? variants : of));
  };
  for (const char* const metric :
       {"validation_loss", "lowest(validation_loss)", "lowest(validation_los?)", "mean([vt]*_loss)", "validation_l*",
        "root(validation_loss)", "log(validation_loss)", "product(validation_loss, 0.5)", "ratio(validation_loss, 1)",
        "difference(validation_loss, product(-1, diverged))"})
    expect_error(tested(metric)).names("claim.toml:6").names("'relu'").names("tokenizer").offers("bits_per_character");
  CHECK(!fs::exists(folder / "pool"));
  const std::string fraction = "[variants.relu]\nvalidation_fraction = 0.3\n[variants.softmax]\n";
  expect_error(tested("validation_loss", fraction))
      .names("claim.toml:6")
      .names("validation_fraction")
      .offers("--validation_data");
  const Outcome gap = tested("difference(log(validation_loss), log(training_los?))");
  CHECK_MESSAGE(gap.code == 0, gap.err);
  Message(gap.err).names("warning").names("tokenizer");
  const Outcome bits = tested("bits_per_character");
  CHECK_MESSAGE(bits.code == 0, bits.err);
  CHECK(!contains(bits.err, "warning"));
}
