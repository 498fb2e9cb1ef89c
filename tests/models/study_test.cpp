// Foundations of studies: combinations of settings, Student's t, run ids, logs and outcomes.
#include <doctest/doctest.h>

#include <cmath>

#include "models/study/combinations.h"
#include "models/study/figure_names.h"
#include "models/study/run_log.h"
#include "models/study/runs.h"
#include "models/study/statistics.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

TEST_CASE("study: braces are what a shell makes of them") {
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

TEST_CASE("study: every combination, the first key slowest; a key may come several times") {
  const models::Assignments given = {{"a", "{1,2}"}, {"b", "x"}, {"c", "p"}, {"c", "q"}, {"c", "p"}};
  const std::vector<models::Assignments> all = combinations(given);
  REQUIRE(all.size() == 4);
  CHECK(all[1] == models::Assignments{{"a", "1"}, {"b", "x"}, {"c", "q"}});
  CHECK(all[2] == models::Assignments{{"a", "2"}, {"b", "x"}, {"c", "p"}});
  CHECK(varied_keys(given) == std::vector<std::string>{"a", "c"});
  expect_error([&] { combinations(given, 3); }).names("sweep").offers(3).names("combinations");
}

TEST_CASE("study: Student's t has the tables' quantiles, and an interval is what they make of it") {
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
}

TEST_CASE("study: a run is known by its numbers' causes, not by where it is and how often it is saved") {
  const Run run;
  const auto key = [&](const Assignments& more) { return run_key(run.settings(more)); };
  const std::string usual = key({});
  CHECK(usual.size() == 16);
  for (const Assignments& same : std::vector<Assignments>{{{"out", run.folder / "other"}},
                                                          {{"threads", "1"}},
                                                          {{"checkpoint_every", "1"}, {"keep_checkpoints", "0"}},
                                                          {{"attention", "softmax(soft_cap=0)"}},
                                                          {{"resume", "yes"}}})
    CHECK(key(same) == usual);
  for (const Assignments& other : std::vector<Assignments>{{{"seed", "2"}}, {{"steps", "7"}}, {{"attention", "rela"}}})
    CHECK(key(other) != usual);
  const std::string copy = run.folder / "copy.txt";
  write(copy, read_file(run.text));
  CHECK(key({{"data", copy}}) == usual);
  write(copy, read_file(run.text) + "one more line\n");
  CHECK(key({{"data", copy}}) != usual);
}

TEST_CASE("study: a run is known by all that it reads") {
  const Run run;
  const std::string held_out = run.folder / "held_out.txt", pairs = run.folder / "pairs.tsv";
  write(held_out, read_file(run.text));
  const auto held_out_key = [&] { return run_key(run.settings({{"validation_data", held_out}})); };
  const std::string before = held_out_key();
  CHECK(held_out_key() == before);
  write(held_out, read_file(run.text) + read_file(run.text));
  CHECK(held_out_key() != before);
  CHECK(read_by(run.settings()).size() == 1);  // only the text

  // Weights of init_from: another run at the same path changes the run id.
  const std::string first = run.folder / "first";
  const auto fine_tuned = [&] { return run_key(run.settings({{"init_from", first}})); };
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
    return run_key(make_settings(
        {{"model", "translation-small"}, {"task", "translation"}, {"data", pairs}, {"tokenizer", "character"}}));
  };
  const std::string ein = translated("one sentence\tein Satz\n");
  CHECK(translated("one sentence\tein Satz\n") == ein);
  CHECK(translated("one sentence\tSatz ein\n") != ein);
}

// The ids are those of 2facf9c, which had neither products, biases of a stream's parts nor shortcut.
TEST_CASE("study: settings that are newer than an id do not change it at their former values") {
  const std::string models = ORRERY_SOURCE_DIR "/tests/models/";
  const Assignments small = {{"batch", "2"}, {"steps", "1"}, {"warmup_steps", "1"}, {"seed", "7"}};
  const auto key = [&](Assignments settings, const Assignments& more = {}) {
    settings.insert(settings.end(), small.begin(), small.end());
    settings.insert(settings.end(), more.begin(), more.end());
    settings.emplace_back("evaluate_every", "0");
    return run_key(make_settings(settings));
  };
  const Assignments resnet = {{"model", "resnet"}, {"data", models + "images/shapes"}},
                    stream = {{"model", "stream"}, {"data", models + "old_names/text.txt"},
                              {"heads", "2"},      {"width", "16"},
                              {"layers", "1"},     {"context", "16"},
                              {"memory", "16"},    {"attention", "softmax(span=fixed(8))"}};
  CHECK(key(stream) == "395832c05b74e70d");
  CHECK(key(resnet) == "1ecac13998faabe9");
  CHECK(key(stream, {{"feed_forward_bias", "yes"}}) != key(stream));
  CHECK(key(resnet, {{"shortcut", "option_b"}}) != key(resnet));
  CHECK(key(resnet, {{"products", "openblas"}}) != key(resnet));
}

TEST_CASE("study: what became of a run, told by its metrics, comes back from its file") {
  const Folder folder;
  const std::string metrics = folder / "metrics.jsonl", file = folder / "outcome.json";
  const auto rows = [&](int count, int lost_at, double last) {
    std::string all;
    for (int step = 1; step <= count; ++step) {
      const bool lost = lost_at > 0 && step >= lost_at;
      all += "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(lost ? last : 4 - 0.01 * step) +
             ",\"gradient_norm\":" + (step == lost_at ? "1e10" : "0.5") +
             ",\"milliseconds\":" + (step % 4 == 0 ? "10" : "25") + "}\n";  // a busy machine
    }
    return all;
  };
  const std::string validation = "{\"step\":100,\"validation_loss\":2.5,\"accuracy\":0.25}\n";
  write(metrics, rows(100, 0, 0) + validation);
  const auto done = outcome_of(RunLog::of_run(folder.path));
  CHECK(name(done.kind) == "done");
  CHECK(done.step == 100);
  CHECK(done.seconds == doctest::Approx(1));
  CHECK(done.figures == std::map<std::string, double>{{"validation_loss", 2.5}, {"accuracy", 0.25}});
  write(metrics, rows(100, 60, 5) + validation);
  const auto lost = outcome_of(RunLog::of_run(folder.path));
  CHECK(name(lost.kind) == "diverged");
  CHECK(lost.step == 60);
  Message(lost.why).names("diverged").names("step 60").names("norm").value(print_number(1e10));
  write(metrics, rows(100, 60, 1) + validation);  // the loss recovered
  CHECK(name(outcome_of(RunLog::of_run(folder.path)).kind) == "done");
  // Diverged at the start, regardless of the medians: the loss stays far above the untrained one.
  const auto from_the_start = [&](double loss, double norm, double end, double validated) {
    std::string all = "{\"step\":1,\"loss\":4.08,\"gradient_norm\":0.02,\"milliseconds\":10}\n";
    for (int step = 2; step <= 60; ++step)
      all += "{\"step\":" + std::to_string(step) + ",\"loss\":" + print_number(step > 50 ? end : loss) +
             ",\"gradient_norm\":" + print_number(norm) + ",\"milliseconds\":10}\n";
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
    CHECK(again.figures == each.figures);
    CHECK(again.why == each.why);
    CHECK(again.version == each.version);
  }
  CHECK(!read_outcome(folder / "none.json"));
  // A changed digit is detected; outcomes of older versions have no seal.
  write_outcome(file, done);
  const std::string sealed = read_file(file);
  write(file, std::string(sealed).replace(sealed.find("2.5"), 3, "2.4"));
  expect_error([&] { read_outcome(file); }).names(file).value("SHA-256");
  const size_t seal = sealed.find(",\n \"sha256\"");
  REQUIRE(seal != std::string::npos);
  write(file, sealed.substr(0, seal) + "\n}\n");
  CHECK(read_outcome(file).value().figures == done.figures);
  write(file, "{\"outcome\": \"lucky\", \"step\": 1, \"seconds\": 1}");
  expect_error([&] { read_outcome(file); }).names("outcome").value("lucky").offers("done, diverged or failed");
}

TEST_CASE("study: the rows of a run's log, whatever their figures, but for one that is still being written") {
  const Folder folder;
  const std::string log = folder / "metrics.jsonl";
  write(log,
        "{\"step\":1,\"loss\":2.5,\"entropy/blocks.0.attention.1\":3,\"tokens_per_second\":7}\n"
        "{\"step\":1,\"validation_loss\":null,\"note\":\"text\"}\n"
        "{\"step\":2,\"loss\":2");
  const std::vector<LogRow> rows = RunLog::of_run(folder.path).rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].step == 1);
  CHECK(rows[0].figures ==
        std::map<std::string, double>{{"loss", 2.5}, {"entropy/blocks.0.attention.1", 3}, {"tokens_per_second", 7}});
  REQUIRE(rows[1].figures.size() == 1);
  CHECK(std::isnan(rows[1].figures.at("validation_loss")));
  write(log, "{\"step\":1,\"loss\":2}\n{\"loss\":2}\n");
  expect_error([&] { RunLog::of_run(folder.path).rows(); }).names(log).names("row 2").names("step").value("missing");

  const std::vector<std::string> names = figure_names(rows);
  CHECK(names ==
        std::vector<std::string>{"entropy/blocks.0.attention.1", "loss", "tokens_per_second", "validation_loss"});
  const auto fitting = [&](const std::string& patterns) { return fitting_figures("metrics", names, patterns); };
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
  CHECK(figure_names(RunLog::of_run(folder.path)) ==
        std::vector<std::string>{"a/blocks.1.x", "a/blocks.2.x", "a/blocks.9.x", "a/blocks.10.x"});
  CHECK(tells_time("tokens_per_second"));
  CHECK(tells_time("milliseconds"));
  CHECK(!tells_time("loss"));
}
