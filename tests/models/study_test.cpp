// Foundations of studies: combinations of settings, Student's t, run ids, logs and outcomes.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "engine/system/hash.h"
#include "models/study/combinations.h"
#include "models/study/id_names.h"
#include "models/study/metric_names.h"
#include "models/study/run_log.h"
#include "models/study/runs.h"
#include "models/study/statistics.h"
#include "models/study/verdict_file.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

TEST_CASE("study: braces expand as in a shell") {
  using Values = std::vector<std::string>;
  CHECK(expand_braces("relu") == Values{"relu"});
  CHECK(expand_braces("{a,b}") == Values{"a", "b"});
  CHECK(expand_braces("{0..3}") == Values{"0", "1", "2", "3"});
  CHECK(expand_braces("{2..0}") == Values{"2", "1", "0"});
  CHECK(expand_braces("x{1,2}y{a,b}") == Values{"x1ya", "x1yb", "x2ya", "x2yb"});
  CHECK(expand_braces("relu{,6}") == Values{"relu", "relu6"});
  CHECK(expand_braces("{a{1,2},b}") == Values{"a1", "a2", "b"});
  CHECK(expand_braces("{softmax,pointwise(relu, alpha=1)}") == Values{"softmax", "pointwise(relu, alpha=1)"});
  CHECK(expand_braces("dyt(alpha={1,2})") == Values{"dyt(alpha=1)", "dyt(alpha=2)"});
  expect_error([] { expand_braces("{a,b"); }).names("sweep").value("{a,b").value("closed");
  expect_error([] { expand_braces("a,b}"); }).names("sweep").value("a,b}").value("opened");
  expect_error([] { expand_braces("x{}"); }).names("sweep").value("x{}").names("braces");
  expect_error([] { expand_braces("{0..99}", 50); }).names("sweep").value("{0..99}").offers(50);
  CHECK(expand_braces("{{{a,b},{c}}}") == Values{"a", "b", "c"});
  const std::string deep = std::string(30'000, '{') + "a" + std::string(30'000, '}');
  expect_error([&] { expand_braces(deep); }).names("sweep").names("braces").offers(32);
  std::string wide;
  for (int i = 0; i < 30'000; ++i) wide += "{a}";
  CHECK(expand_braces(wide) == Values{std::string(30'000, 'a')});
  expect_error([] { expand_braces("{0..9}{0..9}", 50); }).names("sweep").value("{0..9}{0..9}").offers(50);
}

TEST_CASE("study: every combination is returned, the first setting slowest; a setting may occur several times") {
  const Assignments given = {{"a", "{1,2}"}, {"b", "x"}, {"c", "p"}, {"c", "q"}, {"c", "p"}};
  const std::vector<Assignments> all = combinations(given);
  REQUIRE(all.size() == 4);
  CHECK(all[1] == Assignments{{"a", "1"}, {"b", "x"}, {"c", "q"}});
  CHECK(all[2] == Assignments{{"a", "2"}, {"b", "x"}, {"c", "p"}});
  CHECK(varied_keys(given) == std::vector<std::string>{"a", "c"});
  expect_error([&] { combinations(given, 3); }).names("sweep").offers(3).names("combinations");
}

TEST_CASE("study: quantiles of Student's t equal those of tables, and intervals follow from them") {
  // Abramowitz and Stegun, table 26.10, two-sided 0.95 and 0.99
  const std::vector<std::tuple<int, double, double>> table = {
      {1, 12.706, 63.657}, {2, 4.303, 9.925},  {3, 3.182, 5.841},  {4, 2.776, 4.604},  {5, 2.571, 4.032},
      {9, 2.262, 3.250},   {10, 2.228, 3.169}, {29, 2.045, 2.756}, {30, 2.042, 2.750}, {120, 1.980, 2.617}};
  for (const auto& each : table) {
    const auto& degrees = std::get<0>(each);
    const auto& at_95 = std::get<1>(each);
    const auto& at_99 = std::get<2>(each);
    CAPTURE(degrees);
    CHECK(std::abs(student_quantile(0.95, degrees) - at_95) <= 6e-4);
    CHECK(std::abs(student_quantile(0.99, degrees) - at_99) <= 6e-4);
  }
  const std::vector<double> x = {1, 2, 4};
  const Spread spread = spread_of(x);
  CHECK(spread.mean == doctest::Approx(7.0 / 3));
  CHECK(spread.deviation == doctest::Approx(std::sqrt(7.0 / 3)));
  const Interval interval = confidence_interval(x).value();
  CHECK(interval.high - interval.mean == doctest::Approx(4.302653 * std::sqrt(7.0 / 9)).epsilon(1e-6));
  CHECK(interval.mean - interval.low == doctest::Approx(interval.high - interval.mean));
  CHECK(!confidence_interval(std::vector<double>{3}));
  expect_error([] { spread_of({}); }).names("statistics").names("values");
  for (const double confidence : {-0.1, 1.0})
    expect_error([&] { student_quantile(confidence, 3); }).names("probability").value(confidence).offers("[0, 1)");
}

TEST_CASE("study: a run's id depends on what determines its results, not on its folder or its checkpoints") {
  const Run run;
  const auto key = [&](const Assignments& more) { return run_hash(run.settings(more)); };
  const std::string default_hash = key({});
  CHECK(default_hash.size() == 16);
  for (const Assignments& same : std::vector<Assignments>{{{"out", run.folder / "other"}},
                                                          {{"threads", "1"}},
                                                          {{"checkpoint_every", "1"}, {"keep_checkpoints", "0"}},
                                                          {{"attention", "softmax(soft_cap=0)"}},
                                                          {{"resume", "yes"}}})
    CHECK(key(same) == default_hash);
  for (const Assignments& other : std::vector<Assignments>{{{"seed", "2"}}, {{"steps", "7"}}, {{"attention", "rela"}}})
    CHECK(key(other) != default_hash);
  const std::string copy = run.folder / "copy.txt";
  write(copy, read_file(run.text));
  CHECK(key({{"data", copy}}) == default_hash);
  write(copy, read_file(run.text) + "one more line\n");
  CHECK(key({{"data", copy}}) != default_hash);
}

TEST_CASE("study: a run's id depends on all of its inputs") {
  const Run run;
  const std::string held_out = run.folder / "held_out.txt", pairs = run.folder / "pairs.tsv";
  write(held_out, read_file(run.text));
  const auto held_out_hash = [&] { return run_hash(run.settings({{"validation_data", held_out}})); };
  const std::string before = held_out_hash();
  CHECK(held_out_hash() == before);
  write(held_out, read_file(run.text) + read_file(run.text));
  CHECK(held_out_hash() != before);
  CHECK(input_fingerprints(run.settings()).size() == 1);  // only the text

  // Weights of init_from: another run at the same path changes the run id.
  const std::string first = run.folder / "first";
  const auto fine_tuned = [&] { return run_hash(run.settings({{"init_from", first}})); };
  run.train({{"out", first}});
  const std::string of_first = fine_tuned();
  CHECK(fine_tuned() == of_first);
  std::filesystem::remove_all(first);
  run.train({{"out", first}, {"seed", "7"}});
  CHECK(fine_tuned() != of_first);

  // Sentences of the validation split, which is at the end of the file.
  const auto translated = [&](const std::string& last) {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += "one sentence\tein Satz\n";
    write(pairs, lines + last);
    return run_hash(make_settings(
        {{"model", "translation-small"}, {"task", "translation"}, {"data", pairs}, {"tokenizer", "character"}}));
  };
  const std::string ein = translated("one sentence\tein Satz\n");
  CHECK(translated("one sentence\tein Satz\n") == ein);
  CHECK(translated("one sentence\tSatz ein\n") != ein);
}

// The ids are those of 2facf9c, before the settings got their present names: pools hold them.
TEST_CASE("study: a run's id does not depend on the names of its settings") {
  const Folder folder;
  const std::string text = folder / "text.txt", pairs = folder / "pairs.tsv";
  std::string numbers, sentences;
  for (int i = 1; i <= 3000; ++i) numbers += std::to_string(i) + "\n";
  for (int i = 1; i <= 60; ++i)
    sentences += "one sentence " + std::to_string(i) + "\tein Satz " + std::to_string(i) + "\n";
  write(text, numbers), write(pairs, sentences);
  const Assignments small = {{"data", text},    {"layers", "1"}, {"heads", "2"}, {"width", "16"},
                             {"context", "16"}, {"steps", "1"},  {"seed", "7"},  {"evaluate_every", "0"}};
  const auto key = [&](const Assignments& first, const Assignments& more) {
    Assignments all = small;
    for (const Assignments* const some : {&first, &more}) all.insert(all.end(), some->begin(), some->end());
    return run_hash(make_settings(all));
  };
  CHECK(key({{"model", "gpt"}}, {}) == "87caea8219ced7e7");
  CHECK(key({{"model", "sm-g"}}, {{"figures", "hidden_zeros"}}) == "7761814fa055fa9e");
  CHECK(key({{"model", "norm-free-gelu"}}, {{"metrics", "hidden_zero_fraction"}}) == "7761814fa055fa9e");
  const Assignments gpt = {{"model", "gpt"}, {"attention", "softmax(qk_norm=rms, temperature=learned)"}};
  const Assignments former = {{"batch", "2"},
                              {"key_heads", "1"},
                              {"initial_std", "equal(by_width)"},
                              {"optimizer", "adamw(learning_rates=by_group(gammas=2))"},
                              {"figures", "entropy,gradient_norm"},
                              {"figures_every", "5"},
                              {"rate_factors", "*.bias=2"},
                              {"decays", "head*=no"},
                              {"graph", "yes"},
                              {"probe", "yes"}},
                    present = {{"batch_size", "2"},
                               {"kv_heads", "1"},
                               {"initialization", "normal(inverse_sqrt_width)"},
                               {"optimizer", "adamw(lr_scales=groups(gammas=2))"},
                               {"metrics", "entropy,gradient_norm"},
                               {"metrics_every", "5"},
                               {"lr_scales", "*.bias=2"},
                               {"weight_decay_rules", "head*=no"},
                               {"cuda_graph", "yes"},
                               {"signal_propagation", "yes"}};
  for (const Assignments& some : {former, present}) CHECK(key(gpt, some) == "942580865d3dc789");
  const Assignments stream = {{"model", "stream"}, {"attention", "softmax(span=fixed(8))"}, {"batch_size", "2"}};
  CHECK(key(stream, {{"memory", "16"}, {"initial_std", "by_inputs"}}) == "d151d786ea63086f");
  CHECK(key(stream, {{"cache_length", "16"}, {"initialization", "fan_in"}}) == "d151d786ea63086f");
  for (const char* const length : {"longest", "max_length"})
    CHECK(run_hash(make_settings({{"model", "translation-small"},
                                  {"data", pairs},
                                  {"tokenizer", "character"},
                                  {length, "50"},
                                  {"layers", "1"},
                                  {"heads", "2"},
                                  {"width", "16"},
                                  {"steps", "1"},
                                  {"seed", "7"},
                                  {"evaluate_every", "0"}})) == "be6befd72d3feec0");
}

// The ids are those of 2facf9c, which lacked masks, products, biases per sublayer in streams and shortcut.
TEST_CASE("study: newer settings do not change a run's id if they have the former behavior") {
  const std::string models = ORRERY_SOURCE_DIR "/tests/models/";
  const Assignments small = {{"batch_size", "2"}, {"steps", "1"}, {"warmup_steps", "1"}, {"seed", "7"}};
  const auto key = [&](Assignments settings, const Assignments& more = {}) {
    settings.insert(settings.end(), small.begin(), small.end());
    settings.insert(settings.end(), more.begin(), more.end());
    settings.emplace_back("evaluate_every", "0");
    return run_hash(make_settings(settings));
  };
  const Assignments resnet = {{"model", "resnet"}, {"data", models + "images/shapes"}},
                    stream = {{"model", "stream"},    {"data", models + "old_names/text.txt"},
                              {"heads", "2"},         {"width", "16"},
                              {"layers", "1"},        {"context", "16"},
                              {"cache_length", "16"}, {"attention", "softmax(span=fixed(8))"}};
  CHECK(key(stream) == "395832c05b74e70d");
  CHECK(key(resnet) == "1ecac13998faabe9");
  CHECK(key(stream, {{"feed_forward_bias", "yes"}}) != key(stream));
  CHECK(key(stream, {{"mask", "causal"}}) == key(stream));
  CHECK(key(stream, {{"mask", "causal and dilated(2)"}}) != key(stream));
  CHECK(key(resnet, {{"shortcut", "option_b"}}) != key(resnet));
  CHECK(key(resnet, {{"products", "openblas"}}) != key(resnet));
}

TEST_CASE("study: a run's id has the former names of values, also of those in lists") {
  CHECK(key_in_id("batch_size") == "batch");
  CHECK(key_in_id("width") == "width");
  CHECK(value_in_id("metrics", "entropy, hidden_zero_fraction,max_score") == "entropy, hidden_zeros,largest_score");
  CHECK(value_in_id("metrics", "default") == "usual");
  CHECK(value_in_id("model", "norm-free-gelu") == "sm-g");
  CHECK(value_in_id("optimizer", "lion(beta1=0.9, lr_scales=none)") == "lion(beta1=0.9, learning_rates=equal)");
  CHECK(value_in_id("optimizer", "lion(lr_scales=groups(spans=2))") == "lion(learning_rates=by_group(spans=2))");
  CHECK(value_in_id("tokenizer", "token_ids") == "numbers");
  CHECK(value_in_id("tokenizer", "my/token_ids") == "my/token_ids");
  CHECK(value_in_id("tokenizer", "sentence_piece(vocabulary=60, max_bytes=1e6)") ==
        "sentence_piece(vocabulary=60, most_bytes=1e6)");
  CHECK(value_in_id("attention", "normal(default)") == "normal(default)");
  CHECK(value_in_id("metrics", "").empty());
}

TEST_CASE("study: a config has the same meaning under former and current names of settings") {
  const Folder folder;
  const std::string former = folder / "former.toml", present = folder / "present.toml";
  write(former,
        "batch = 2\nfigures = \"usual\"\nlayers = 1\ninitial_std = \"equal(0.02)\"\n[optimizer]\nbeta1 = 0.5\n");
  write(present,
        "# now\ninitialization = \"normal(0.02)\"\nlayers = 1\nbatch_size = 2\nmetrics = \"default\"\n"
        "[optimizer]\nbeta1 = 0.5\n");
  CHECK(config_in_id(former) == config_in_id(present));
  write(present, "batch_size = 3\n");
  CHECK(config_in_id(former) != config_in_id(present));
}

// The committed verdicts name the hashes of the configs with the former names.
TEST_CASE("study: the configs of the committed claims match their verdicts") {
  std::set<std::string> known, now;
  for (const std::string& group : files_in(ORRERY_SOURCE_DIR "/examples/studies")) {
    if (!folder_exists(group)) continue;
    for (const std::string& claim : files_in(group)) {
      if (!folder_exists(claim) || !file_exists(claim + "/verdict.json")) continue;
      const StudyVerdict verdict = read_verdict(claim + "/verdict.json");
      if (const auto found = verdict.input_hashes.find("config"); found != verdict.input_hashes.end())
        known.insert(found->second.begin(), found->second.end());
    }
  }
  for (const char* name : {"quickstart", "vit-fashion", "novels-adaptive", "resnet-cifar"}) {
    const std::string config = config_in_id(ORRERY_SOURCE_DIR "/examples/configs/" + std::string(name) + ".toml");
    now.insert(sha256(std::as_bytes(std::span(config))));
  }
  CHECK(known == now);
}

TEST_CASE("study: the meaning of a run's losses depends on its inputs") {
  const Run run;
  const std::string copy = run.folder / "copy.txt", longer = run.folder / "longer.txt", first = run.folder / "first",
                    second = run.folder / "second";
  write(copy, read_file(run.text)), write(longer, "www: " + read_file(run.text));  // a further character
  const auto differing = [&](const Assignments& one, const Assignments& other) {
    const std::vector<LossMeaning> runs = {identify_run(run.settings(one)).meaning,
                                           identify_run(run.settings(other)).meaning};
    return differing_loss_settings("validation_loss", runs);
  };
  CHECK(differing({}, {{"data", copy}}).empty());
  CHECK(differing({}, {{"data", longer}}) == std::vector<std::string>{"data", "tokenizer"});
  // Vocabularies that come from other runs.
  run.train({{"out", first}}), run.train({{"out", second}, {"data", longer}});
  CHECK(differing({{"init_from", first}}, {{"init_from", second}}) == std::vector<std::string>{"tokenizer"});
  CHECK(differing({{"init_from", first}}, {}).empty());
  CHECK(identify_run(run.settings()).hash == run_hash(run.settings()));
}

TEST_CASE("study: the result of a run, computed from its metrics, is restored from its file") {
  const Folder folder;
  const std::string metrics = folder / "metrics.jsonl", file = folder / "outcome.json";
  const auto rows = [&](int count, int lost_at, double last) {
    std::string all;
    for (int step = 1; step <= count; ++step) {
      const bool lost = lost_at > 0 && step >= lost_at;
      all += "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(lost ? last : 4 - 0.01 * step) +
             ",\"gradient_norm\":" + (step == lost_at ? "1e10" : "0.5") +
             ",\"step_ms\":" + (step % 4 == 0 ? "10" : "25") + "}\n";  // a busy machine
    }
    return all;
  };
  const std::string validation = "{\"step\":100,\"validation_loss\":2.5,\"accuracy\":0.25}\n";
  write(metrics, rows(100, 0, 0) + validation);
  const auto done = outcome_of(RunLog::of_run(folder.path));
  CHECK(name(done.kind) == "done");
  CHECK(done.step == 100);
  CHECK(done.seconds == doctest::Approx(1));
  CHECK(done.metrics == std::map<std::string, double>{{"validation_loss", 2.5}, {"accuracy", 0.25}});
  write(metrics, rows(100, 60, 5) + validation);
  const auto lost = outcome_of(RunLog::of_run(folder.path));
  CHECK(name(lost.kind) == "diverged");
  CHECK(lost.step == 60);
  Message(lost.why).names("diverged").names("step 60").names("norm").value(print_number(1e10));
  write(metrics, rows(100, 60, 1) + validation);  // the loss recovered
  CHECK(name(outcome_of(RunLog::of_run(folder.path)).kind) == "done");
  // Diverged at the start, regardless of the medians: the loss stays far above the untrained one.
  const auto from_the_start = [&](double loss, double norm, double end, double validated) {
    std::string all = "{\"step\":1,\"loss\":4.08,\"gradient_norm\":0.02,\"step_ms\":10}\n";
    for (int step = 2; step <= 60; ++step)
      all += "{\"step\":" + std::to_string(step) + ",\"loss\":" + print_number(step > 50 ? end : loss) +
             ",\"gradient_norm\":" + print_number(norm) + ",\"step_ms\":10}\n";
    write(metrics, all + "{\"step\":60,\"validation_loss\":" + print_number(validated) + "}\n");
    return outcome_of(RunLog::of_run(folder.path));
  };
  const auto huge = from_the_start(1e13, 1e19, 4e10, 4e10);
  CHECK(name(huge.kind) == "diverged");
  CHECK(huge.step == 2);
  Message(huge.why).names("diverged").names("step 2").names("norm").value(print_number(1e19));
  const auto worse = from_the_start(900, 30, 73.8, 73.5);
  CHECK(name(worse.kind) == "diverged");
  Message(worse.why).names("diverged").names("step 2").names("loss").value(900).value("73.8").value("4.08");
  const auto guessing = from_the_start(3.3, 1e10, 3.3, 3.3);  // AdamW bounds the loss; the gradients reveal it
  CHECK(name(guessing.kind) == "diverged");
  CHECK(name(from_the_start(900, 30, 2, 2).kind) == "done");   // the loss recovered
  CHECK(name(from_the_start(3, 0.5, 0.1, 6).kind) == "done");  // overfitted the training data
  CHECK(name(from_the_start(4.2, 0.5, 4.3, 4.3).kind) == "done");
  write(metrics, rows(10, 0, 0));
  Message(outcome_of(RunLog::of_run(folder.path)).why).names("step 10").names("validation");
  for (const auto& each : {done, lost}) {
    write_outcome(file, each);
    const auto again = read_outcome(file).value();
    CHECK(again.kind == each.kind);
    CHECK(again.metrics == each.metrics);
    CHECK(again.why == each.why);
    CHECK(again.version == each.version);
  }
  CHECK(!read_outcome(folder / "none.json"));
  // A changed digit is detected; outcomes of older versions have no seal and call the metrics figures.
  write_outcome(file, done);
  const std::string sealed = read_file(file);
  write(file, std::string(sealed).replace(sealed.find("2.5"), 3, "2.4"));
  expect_error([&] { read_outcome(file); }).names(file).value("SHA-256");
  const size_t seal = sealed.find(",\n \"sha256\"");
  REQUIRE(seal != std::string::npos);
  write(file, sealed.substr(0, seal) + "\n}\n");
  CHECK(read_outcome(file).value().metrics == done.metrics);
  const std::string key = "\"metrics\"";
  REQUIRE(sealed.find(key) < seal);
  write(file, sealed.substr(0, seal).replace(sealed.find(key), key.size(), "\"figures\"") + "\n}\n");
  CHECK(read_outcome(file).value().metrics == done.metrics);
  write(file, "{\"outcome\": \"lucky\", \"step\": 1, \"seconds\": 1}");
  expect_error([&] { read_outcome(file); }).names("outcome").value("lucky").offers("done, diverged or failed");
}

TEST_CASE("study: a run's log is read with any metrics, without an incomplete last row") {
  const Folder folder;
  const std::string log = folder / "metrics.jsonl";
  write(log,
        "{\"step\":1,\"loss\":2.5,\"entropy/blocks.0.attention.1\":3,\"tokens_per_second\":7}\n"
        "{\"step\":1,\"validation_loss\":null,\"note\":\"text\"}\n"
        "{\"step\":2,\"loss\":2");
  const std::vector<LogRow> rows = RunLog::of_run(folder.path).rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].step == 1);
  CHECK(rows[0].metrics ==
        std::map<std::string, double>{{"loss", 2.5}, {"entropy/blocks.0.attention.1", 3}, {"tokens_per_second", 7}});
  REQUIRE(rows[1].metrics.size() == 1);
  CHECK(std::isnan(rows[1].metrics.at("validation_loss")));
  write(log, "{\"step\":1,\"loss\":2}\n{\"loss\":2}\n");
  expect_error([&] { RunLog::of_run(folder.path).rows(); }).names(log).names("line 2").names("step").value("missing");

  const std::vector<std::string> names = metric_names(rows);
  CHECK(names ==
        std::vector<std::string>{"entropy/blocks.0.attention.1", "loss", "tokens_per_second", "validation_loss"});
  const auto fitting = [&](const std::string& patterns) { return matching_metrics("metrics", names, patterns); };
  CHECK(fitting("") == names);
  CHECK(fitting("*loss, entropy/*") ==
        std::vector<std::string>{"entropy/blocks.0.attention.1", "loss", "validation_loss"});
  expect_error([&] { fitting("loss,los"); }).names("metrics").value("los").offers("loss");
  expect_error([&] { fitting("q*"); })
      .names("metrics")
      .value("q*")
      .offers("entropy/blocks.0.attention.1, loss, tokens_per_second, validation_loss");
  write(log, R"({"step":1,"a/blocks.10.x":1,"a/blocks.9.x":2,"a/blocks.1.x":3,"a/blocks.2.x":4})"
             "\n");
  CHECK(metric_names(RunLog::of_run(folder.path)) ==
        std::vector<std::string>{"a/blocks.1.x", "a/blocks.2.x", "a/blocks.9.x", "a/blocks.10.x"});
  CHECK(is_timing("tokens_per_second"));
  CHECK(is_timing("step_ms"));
  CHECK(!is_timing("loss"));
}
