// Metrics of claims and the statistics of their paired samples: made-up rows, numbers by hand.
#include <doctest/doctest.h>

#include <cmath>

#include "models/study/claim_result.h"
#include "models/study/verdict.h"
#include "models/study/verdict_file.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(1.0, std::abs(b)); }

const std::vector<LogRow> rows = {
    {1, {{"loss", 4}, {"entropy/blocks.0.attention.0", 1}, {"entropy/blocks.1.attention.0", 3}}},
    {2, {{"loss", 3}}},
    {3, {{"loss", 3.5}, {"entropy/blocks.0.attention.0", 2}, {"entropy/blocks.1.attention.0", 6}}},
    {3, {{"validation_loss", 2.5}}}};
double measured(const std::string& metric, double swept = 0) {
  return measure(parse_metric("claim", metric), rows, swept);
}

// relu's loss is below softmax's by 0.02, 0.03 and 0.04 at slots=8, by twice that at slots=16.
Claim small_claim(const std::vector<Comparison>& refuted_if, const std::string& metric = "validation_loss") {
  Claim claim;
  claim.path = "claim.toml";
  claim.variants = {{"relu", {}}, {"softmax", {}}};
  claim.sweep = {{"slots", {"8", "16"}}};
  claim.seeds = {1, 2, 3};
  claim.metrics = {parse_metric("claim", metric)};
  claim.refuted_if = refuted_if;
  return claim;
}
Measurements small_measurements() {
  Measurements all;
  all.values = {{{{1.98, 1.97, 1.96}, {1.96, 1.94, 1.92}}, {{2, 2, 2}, {2, 2, 2}}}};
  return all;
}
Comparison if_above(double bound) {
  Comparison comparison;
  comparison.text = "relu > softmax", comparison.left = "relu", comparison.right = "softmax";
  comparison.bound = bound;
  return comparison;
}

}  // namespace

TEST_CASE("verdict: shown, not shown and reversed, against Student's interval by hand") {
  // mean -0.03, s 0.01, t of 2 degrees 4.302653: the half width is 0.02484138
  const std::vector<double> d = {-0.03, -0.02, -0.04};
  const TestResult below_zero = test_differences(d, RefutedWhen::above, 0);
  CHECK(below_zero.verdict == Verdict::shown);
  CHECK(near(below_zero.interval.mean, -0.03));
  CHECK(near(below_zero.interval.low, -0.03 - 0.02484138));
  CHECK(near(below_zero.interval.high, -0.03 + 0.02484138));
  CHECK(below_zero.samples == 3);
  CHECK(test_differences(d, RefutedWhen::below, 0).verdict == Verdict::reversed);
  CHECK(test_differences(d, RefutedWhen::below, -0.06).verdict == Verdict::shown);
  CHECK(test_differences(d, RefutedWhen::above, -0.06).verdict ==
        Verdict::not_shown);  // smaller than claimed, but not reversed
  CHECK(!test_differences(d, RefutedWhen::above, -0.06).needed);
  CHECK(test_differences(d, RefutedWhen::below, 0.5).verdict == Verdict::reversed);  // also below zero
  CHECK(test_differences(std::vector<double>{0, 0, 0}, RefutedWhen::below, 0.5).verdict == Verdict::not_shown);
  CHECK(test_differences(std::vector<double>{0.6, 0.7, 0.6}, RefutedWhen::above, 0.5).verdict == Verdict::not_shown);
  CHECK(test_differences(std::vector<double>{0.8, 0.9, 0.8}, RefutedWhen::above, 0.5).verdict == Verdict::reversed);
  // The bound -0.01 is inside. 4 samples: 3.182446 x 0.01 / 2 = 0.0159 < 0.02, and 3 have 0.0248.
  const TestResult held = test_differences(d, RefutedWhen::above, -0.01);
  CHECK(held.verdict == Verdict::not_shown);
  CHECK(held.needed == 4);
  // The border is 0.0025, a tenth of the half width, around the ends -0.0548 and -0.0052.
  CHECK(!below_zero.is_borderline);
  CHECK(test_differences(d, RefutedWhen::above, -0.007).is_borderline);
  CHECK(test_differences(d, RefutedWhen::above, -0.003).is_borderline);
  CHECK(!test_differences(d, RefutedWhen::above, -0.0025).is_borderline);
  CHECK(test_differences(d, RefutedWhen::outside, 0.054).is_borderline);
}

TEST_CASE("verdict: equality is tested by both ends of the interval") {
  const std::vector<double> d = {-0.03, -0.02, -0.04};  // -0.0548 to -0.0052
  CHECK(test_differences(d, RefutedWhen::outside, 0.06).verdict == Verdict::shown);
  CHECK(test_differences(d, RefutedWhen::outside, 0.054).verdict == Verdict::not_shown);  // one end is outside
  CHECK(test_differences(d, RefutedWhen::outside, 0.05).needed == 4);                     // the nearer end is 0.02 away
  CHECK(test_differences(d, RefutedWhen::outside, 0.005).verdict == Verdict::reversed);
  const std::vector<double> other = {0.03, 0.02, 0.04};
  CHECK(test_differences(other, RefutedWhen::outside, 0.005).verdict == Verdict::reversed);
  CHECK(test_differences(other, RefutedWhen::outside, 0.054).verdict == Verdict::not_shown);
  const std::vector<double> same = {0, 0, 0};
  CHECK(test_differences(same, RefutedWhen::outside, 0.001).verdict == Verdict::shown);
  expect_error([&] { test_differences(same, RefutedWhen::outside, -1); })
      .names("study")
      .names("margin")
      .value(-1)
      .offers(0);
}

TEST_CASE("verdict: the number of samples that would resolve not_shown") {
  // mean 0.005, s 0.01290994: 28 have 2.051831 s / sqrt 28 = 0.005006, 29 have 2.048407 s / sqrt 29 = 0.004911
  const TestResult open = test_differences(std::vector<double>{0.02, -0.01, 0.01, 0}, RefutedWhen::above, 0);
  CHECK(open.verdict == Verdict::not_shown);
  CHECK(open.needed == 29);
  CHECK(!test_differences(std::vector<double>{0.01, -0.01, 0}, RefutedWhen::above, 0).needed);  // the mean is the bound
  expect_error([] { test_differences(std::vector<double>{1}, RefutedWhen::above, 0); })
      .names("study")
      .names("samples")
      .value(1);
  using V = std::vector<Verdict>;
  CHECK(verdict_of_all(V{Verdict::shown, Verdict::shown}) == Verdict::shown);
  CHECK(verdict_of_all(V{Verdict::shown, Verdict::not_shown}) == Verdict::not_shown);
  CHECK(verdict_of_all(V{Verdict::not_shown, Verdict::reversed, Verdict::shown}) == Verdict::reversed);
  CHECK(verdict_of_all(V{}) == Verdict::not_shown);
}

TEST_CASE("metric: module paths, rows, numbers and sweeps") {
  CHECK(measured("validation_loss") == 2.5);
  CHECK(measured("loss") == 3.5);
  CHECK(measured("first(loss)") == 4);
  CHECK(measured("lowest(loss)") == 3);
  CHECK(measured("highest(loss)") == 4);
  CHECK(measured("average(loss)") == 3.5);
  CHECK(measured("entropy/*") == 4);
  CHECK(measured("max(entropy/*)") == 6);
  CHECK(measured("sum(entropy/*)") == 8);
  CHECK(measured("min(entropy/blocks.*.attention.[01])") == 2);
  CHECK(measured("first(max(entropy/*))") == 3);
  CHECK(measured("above(entropy/*, 5.9)") == 0.5);
  CHECK(measured("above(entropy/*, 6)") == 0);
  CHECK(measured("first(above(entropy/*, 0.5))") == 1);
  CHECK(measured("ratio(entropy/blocks.1.*, entropy/blocks.0.*)") == 3);
  CHECK(measured("difference(loss, product(swept, 0.25))", 2) == 3);
  CHECK(near(measured("root(log(loss))"), std::sqrt(std::log(3.5))));
  const auto over = [](const char* metric, const std::vector<double>& x, const std::vector<double>& y) {
    return measure_sweep(parse_metric("claim", metric), x, y);
  };
  const std::vector<double> sizes = {16, 64, 256};
  expect_error([&] { over("loss", sizes, {5, 4, 3}); }).names("loss").value("3 swept");
  expect_error([&] { over("slope(loss)", sizes, {5, 4}); }).names("slope(loss)").value("2 measured").offers("equal");
  CHECK(near(over("slope(loss)", {1, 2, 4}, {1, 3, 7}), 2));
  CHECK(near(over("slope(loss)", {0, 1, 2}, {0, 1, 4}), 2));  // least squares by hand: sum (x-1)(y-5/3) / 2
  CHECK(near(over("doubling(loss)", sizes, {5, 4, 3}), -0.5));
  CHECK(near(over("power(loss)", sizes, {8, 32, 128}), 1));
  CHECK(near(over("growth(loss)", sizes, {8, 99, 2}), 0.25));
  CHECK(over("at_first(loss)", sizes, {8, 2, 5}) == 8);
  CHECK(over("at_last(loss)", sizes, {8, 2, 5}) == 5);
  CHECK(over("lowest_at(loss)", sizes, {8, 2, 5}) == 64);
  CHECK(over("highest_at(loss)", sizes, {8, 9, 9}) == 64);
  for (const char* each : {"doubling(ratio(max(entropy/*), 2))", "first(loss)", "difference(a, swept)"})
    CHECK(print(parse_metric("claim", each)) == each);
}

TEST_CASE("metric: rank correlation of two metrics over their module paths") {
  // Ranks 1 2 3 4 against 2 1 4 3: 1 - 6 (1 + 1 + 1 + 1) / (4 (16 - 1)) = 0.6
  const std::vector<LogRow> places = {{1,
                                       {{"a/0", -5},
                                        {"a/1", 0.1},
                                        {"a/2", 7},
                                        {"a/3", 900},
                                        {"b/0", 2},
                                        {"b/1", 1},
                                        {"b/2", 4},
                                        {"b/3", 3},
                                        {"c/0", 1},
                                        {"c/1", 1},
                                        {"c/2", 2},
                                        {"c/3", 3},
                                        {"d/0", 1}}}};
  const auto of = [&](const std::string& metric) { return measure(parse_metric("claim", metric), places, 0); };
  CHECK(near(of("rank_correlation(a/*, b/*)"), 0.6));
  CHECK(near(of("rank_correlation(a/*, a/*)"), 1));
  // Equal values share their rank: 1.5 1.5 3 4 against 1 2 3 4 is 4.5 / sqrt(4.5 x 5).
  CHECK(near(of("rank_correlation(c/*, a/*)"), 4.5 / std::sqrt(22.5)));
  expect_error([&] { of("rank_correlation(a/*, d/*)"); }).names("study").names("rank correlation").value(4).value(1);
}

TEST_CASE("metric: an invalid expression has an error message") {
  const auto refused = [](const std::string& metric) {
    return expect_error([&] { parse_metric("c.toml:3", metric); }).names("c.toml:3");
  };
  refused("slop(loss)").value("slop").names("slop(loss)").offers("slope");
  refused("ratio(loss)").names("ratio").offers(2).value(1).names("ratio(loss)");
  refused("above(loss, loss)").value("above(loss, loss)").offers("above(METRIC, NUMBER)");
  refused("max(loss").value("max(loss").value("closed");
  refused("max(first(loss))").value("max(first(loss))").value("first(loss)").names("max(...)").offers("metric");
  refused("log(slope(loss))").value("log(slope(loss))").value("slope(...)");
  refused("").value("''").offers("metric");
  expect_error([] { measured("validation_los"); }).names("study").value("validation_los").offers("validation_loss");
  expect_error([] { measured("log(difference(loss, loss))"); })
      .names("log(difference(loss, loss))")
      .value("-inf")
      .offers("finite");
  const std::vector<LogRow> lost = {{1, {{"loss", 2}}}, {2, {{"loss", NAN}}}};
  expect_error([&] { measure(parse_metric("c", "highest(loss)"), lost, 0); })
      .names("highest(loss)")
      .value("nan")
      .offers("finite");
}

TEST_CASE("claim: tested at each swept value, or over the sweep") {
  const auto first = [](const ClaimResult& claim) {
    return Message(claim.comparisons[0].sentence).names("validation loss").names("relu - softmax").names("slots=8");
  };
  const ClaimResult at_each = test_claim(small_claim({if_above(0)}), small_measurements());
  REQUIRE(at_each.comparisons.size() == 2);
  CHECK(at_each.verdict == Verdict::shown);
  CHECK(at_each.comparisons[0].at == "slots=8");
  CHECK(near(at_each.comparisons[0].mean, -0.03));
  CHECK(near(at_each.comparisons[1].mean, -0.06));
  Message(at_each.comparisons[0].sentence).names("shown").names("95 %").names("below zero");
  first(at_each).value("-0.0300").value("-0.0548").value("-0.0052").value("3 seeds");
  const ClaimResult far =
      test_claim(small_claim({if_above(-0.04)}), small_measurements());  // -0.0548 .. and -0.1097 ..
  CHECK(far.verdict == Verdict::not_shown);
  CHECK(far.comparisons[0].needed == 0);
  first(far).names("margin").value("-0.04").names("mean").value("above").value("zero");
  const ClaimResult less = test_claim(small_claim({if_above(-0.06)}), small_measurements());
  CHECK(less.comparisons[0].verdict == Verdict::not_shown);
  first(less).value("above").names("margin").value("-0.06").value("zero");
  const ClaimResult open = test_claim(small_claim({if_above(-0.025)}), small_measurements());
  CHECK(open.comparisons[0].needed == 18);  // 2.109816 x 0.01 / sqrt 18 = 0.00497 < 0.005, and 17 have 0.00514
  first(open).names("margin").value("-0.025").offers("18 seeds");

  // One doubling, from 8 to 16: the second value minus the first, -0.02, -0.03 and -0.04.
  const ClaimResult over = test_claim(small_claim({if_above(0)}, "doubling(validation_loss)"), small_measurements());
  REQUIRE(over.comparisons.size() == 1);
  CHECK(over.comparisons[0].at.empty());
  CHECK(near(over.comparisons[0].mean, -0.03));

  Comparison number = if_above(0);
  number.of_variants = false, number.right = "ratio(16, swept)", number.number = parse_metric("c", number.right);
  const ClaimResult against = test_claim(small_claim({number}), small_measurements());  // 2 at 8, and 1 at 16
  CHECK(near(against.comparisons[0].mean, -0.03));
  CHECK(near(against.comparisons[1].mean, 0.94));
  CHECK(against.verdict == Verdict::reversed);

  Comparison share = if_above(0.1);
  share.is_relative = true;
  CHECK(near(test_claim(small_claim({share}), small_measurements()).comparisons[0].mean, -0.015));
}

TEST_CASE("claim: a comparison with a missing sample is not shown") {
  Measurements measured = small_measurements();
  measured.values[0][1][0][2] = std::nullopt;
  const ClaimResult result = test_claim(small_claim({if_above(0)}), measured);
  CHECK(result.verdict == Verdict::not_shown);
  CHECK(!result.comparisons[0].known);
  Message(result.comparisons[0].sentence)
      .names("not shown")
      .names("validation loss")
      .names("relu - softmax")
      .names("slots=8")
      .value("2 of 3 seeds");
  CHECK(result.comparisons[1].verdict == Verdict::shown);
}

TEST_CASE("claim: a written verdict is read back unchanged") {
  const Folder folder;
  StudyVerdict verdict;
  verdict.file = "a.toml", verdict.sentence = "\"quoted\" | and more", verdict.kind = "trained";
  verdict.minutes = 1.5, verdict.missing = {"relu seed=1: diverged at step 3"};
  verdict.result = test_claim(small_claim({if_above(-0.04)}), small_measurements());
  verdict.reported = "34 | 33", verdict.main = true;
  verdict.learning_rates = {{"relu", 0.01}, {"softmax", 0.003}}, verdict.shared_lr = 0.003;
  verdict.at_shared_lr = test_claim(small_claim({if_above(1)}), small_measurements());
  write_verdict(folder / "verdict.json", verdict);
  const StudyVerdict again = read_verdict(folder / "verdict.json");
  CHECK(again.sentence == verdict.sentence);
  CHECK(again.missing == verdict.missing);
  CHECK(again.minutes == 1.5);
  CHECK(again.label() == "not shown");
  CHECK(again.reported == verdict.reported);
  CHECK(again.main);
  CHECK(again.learning_rates == verdict.learning_rates);
  CHECK(again.shared_lr == 0.003);
  REQUIRE(again.at_shared_lr);
  CHECK(again.at_shared_lr->verdict == Verdict::shown);
  CHECK(again.at_shared_lr->comparisons[1].mean == verdict.at_shared_lr->comparisons[1].mean);
  verdict.smaller = "one layer", verdict.result.verdict = Verdict::shown;
  CHECK(verdict.label() == "shown at this scale");
  REQUIRE(again.result.comparisons.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const ComparisonResult &a = again.result.comparisons[i], &b = verdict.result.comparisons[i];
    CHECK(a.sentence == b.sentence);
    CHECK(a.mean == b.mean);
    CHECK(a.high == b.high);
    CHECK(a.needed == b.needed);
    CHECK(a.verdict == b.verdict);
  }
}
