// orrery compare: runs that differ in settings, metrics and parameters, and runs that do not.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "engine/tensor/safetensors.h"
#include "models/study/comparison.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::Message;

namespace {

std::string compared(const Words& words) {
  const Outcome outcome = run_orrery(Words{"compare"} + words);
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  return outcome.out + outcome.err;
}

}  // namespace

TEST_CASE("compare: two runs with the same settings have no differences") {
  const Folder folder;
  const std::string out = compared({trained_run(folder, "a"), trained_run(folder, "b", {"--checkpoint_every=0"})});
  INFO(out);
  CHECK(finds(out, "settings that differ:\n +1 +2\n  checkpoint_every  500  0\n\n"));
  CHECK(finds(out, "\nmetrics of 1 and 2\\b.* same .*\\b4 steps\\b.*\\bstep 4\n"));
  CHECK(finds(out, "\nparameters of 1 and 2\\b.*\\bstep 4 and 4\\b.* 0 differ\\b.* \\d+ .*same\n"));
  CHECK(contains(out, "loss by step\n"));
  CHECK(!contains(out, "only in"));
}

TEST_CASE("compare: first differences, largest differences and parameters of only one run are listed") {
  const Folder folder;
  const std::string a = trained_run(folder, "a", {"--evaluate_every=2"}),
                    b = trained_run(folder, "b", {"--evaluate_every=2", "--learning_rate=0.01"}),
                    c = trained_run(folder, "c", {"--layers=2", "--context=6", "--steps=2", "--label_smoothing=0.1"});
  const std::string out = compared({a, b, c});
  INFO(out);
  CHECK(finds(out, "  2  [^\n]*/b  4 of 4 steps\n  3  [^\n]*/c  2 of 2 steps\n"));
  CHECK(finds(out, "  layers +1 +1 +2\n"));
  CHECK(finds(out, "  learning_rate +0.001 +0.01 +0.001\n"));
  CHECK(!contains(out, "  width"));
  CHECK(!contains(out, "  out "));
  CHECK(contains(out, "validation_loss by step\n"));
  CHECK(finds(out, "the last validation:\n +1 +2 +3\n  step +4 +4 +2\n"));
  CHECK(finds(out, "  validation_loss( +\\d+\\.\\d{4}){3}\n"));
  // Both start with equal weights and batches: the first step differs in the learning rate only.
  CHECK(finds(out, "\nmetrics of 1 and 2\\b.* step 1\n +1 +2\n  learning_rate +\\S+ +\\S+\n\n"));
  CHECK(finds(out, "\nmetrics of 1 and 3\\b.* step 1\n"));
  CHECK(finds(out, "\nparameters of 1 and 2\\b.*\\bstep 4 and 4\\b.* \\d+ differ\\b.* 0 .*same\n"));
  CHECK(finds(out, "\nparameters of 1 and 3\\b.*\\bstep 4 and 2\\b"));
  CHECK(contains(out, "  only in 3:\n    blocks.1."));
  CHECK(finds(out, "  with different shapes:\n    position_embedding.weight \\(8, 16\\) and \\(6, 16\\)\n"));
  CHECK(!contains(out, "only in 1"));

  // Notes on losses: here label smoothing is in the loss of steps alone.
  CHECK(finds(out, "\nnote: loss [^\n]*\\blabel_smoothing\\b"));
  CHECK(!contains(out, "note: validation_loss"));
  CHECK(!contains(compared({a, b}), "note: "));

  // The text changed under its path between the runs.
  const std::string before = trained_run(folder, "before", {"--data=" + folder.write("changed.txt", tiny_text())}),
                    after =
                        trained_run(folder, "after", {"--data=" + folder.write("changed.txt", tiny_text() + "WWW")});
  CHECK(finds(compared({before, after}), "\nnote: validation_loss [^\n]*\\bdata\\b[^\n]*\\btokenizer\\b"));

  const std::string few = compared({a, b, "--parameters=2", "--metrics=gradient_*"}),
                    all = compared({a, b, "--parameters=0"});
  INFO(few, all);
  CHECK(contains(few, "gradient_norm by step\n"));
  CHECK(!contains(few, "loss by step"));
  CHECK(finds(few, "\\|\n[^\n]+\n[^\n]+\n  .*\\b\\d+ .*--parameters=0\\b"));
  CHECK(!contains(all, "--parameters=0"));
  // Settings that are equal when completed do not differ; others are printed as written.
  const std::string written = compared({a, trained_run(folder, "d", {"--attention=softmax(soft_cap=0)"}),
                                        trained_run(folder, "e", {"--attention=pointwise(relu)"})});
  INFO(written);
  CHECK(finds(written, "  attention +softmax +softmax\\(soft_cap=0\\) +pointwise\\(relu\\)\n"));
  CHECK(!contains(compared({a, folder / "d"}), "  attention  "));
}

TEST_CASE("compare: an unfinished run is compared up to its last row, and missing files are reported") {
  const Folder folder;
  const std::string a = trained_run(folder, "a"), b = folder / "b";
  fs::create_directory(b);
  fs::copy(a + "/settings.toml", b + "/settings.toml");
  std::string rows = read_file(a + "/metrics.jsonl");
  const size_t third = rows.find("{\"step\":3");
  folder.write("b/metrics.jsonl", rows.substr(0, third + 12));
  const std::string out = compared({a, b});
  INFO(out);
  CHECK(finds(out, "/b  2 of 4 steps\n"));
  CHECK(finds(out, "\nsettings\\b.* same\n"));
  CHECK(finds(out, "\nmetrics of 1 and 2\\b.* same .*\\b2 steps\\b.*\\bstep 2\n"));
  Message(out).names("parameters of 1 and 2").value(b).names("checkpoint");
  fs::remove(b + "/metrics.jsonl");
  Message(compared({b, a})).names("metrics of 1 and 2").value(b).names("metrics.jsonl");
  fs::remove(a + "/settings.toml");  // its checkpoint holds them
  CHECK(finds(compared({a, b}), "\nsettings\\b.* same\n"));
}

TEST_CASE("compare: invalid arguments and damaged checkpoints are refused") {
  const Folder folder;
  const std::string a = trained_run(folder, "a");
  const auto refusal = [&](const Words& words) {
    return expect_error(run_orrery(Words{"compare"} + words)).names("compare");
  };
  refusal({a}).value(1).offers("orrery compare runs/a runs/b");
  refusal({a, folder / "none"}).value(folder / "none").offers("orrery train --out");
  refusal({folder.path(), a}).value(folder.path()).offers("settings.toml");
  refusal({a, a, "--metrics=los"}).names("metric").value("los").offers("loss");
  refusal({a, a, "--parameter=3"}).value("parameter").offers("parameters");
  const std::string weights = a + "/step_000004/weights.safetensors";
  std::string bytes = read_file(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder.write("a/step_000004/weights.safetensors", bytes);
  expect_error(run_orrery({"compare", a, a})).names(weights).value("damaged");
}

TEST_CASE("compare: differences of parameters and metrics have the expected values") {
  using orrery::Shape;
  using orrery::Tensor;
  using namespace orrery::models;
  using Tensors = std::vector<orrery::NamedTensor>;
  const auto of = [](std::vector<double> x) { return Tensor::from(Shape{static_cast<int64_t>(x.size())}, x); };
  const ParameterComparison found =
      compare_parameters(Tensors{{"zero", of({0, 0})}, {"a", of({3, 4})}, {"b", of({1, 0})}, {"same", of({1})}},
                         Tensors{{"b", of({1, 2})}, {"a", of({3, 4.5})}, {"zero", of({0, 1})}, {"same", of({1})}});
  REQUIRE(found.differing.size() == 3);
  CHECK(found.differing[0].name == "zero");
  CHECK(std::isinf(found.differing[0].relative));
  CHECK(found.differing[1].name == "b");
  CHECK(found.differing[1].relative == 2);
  CHECK(found.differing[1].largest == 2);
  CHECK(found.differing[2].relative == doctest::Approx(0.1));
  CHECK(found.differing[2].largest == 0.5);
  CHECK(found.same == Words{"same"});

  using Rows = std::vector<LogRow>;
  const Rows rows = {{1, {{"loss", 2}, {"step_ms", 3}}},
                     {2, {{"loss", NAN}, {"tokens_per_second", 3}}},
                     {3, {{"loss", 1}, {"alpha/blocks.0", 1}, {"a/b", 5}}}};
  Rows other = {{2, {{"loss", NAN}, {"tokens_per_second", 4}}},
                {3, {{"loss", std::nextafter(1.0, 2)}, {"alpha/blocks.0", 2}, {"a/b", 5}, {"more", 1}}},
                {4, {{"loss", 1}}}};
  const LogComparison comparison = compare_logs(rows, other);
  CHECK(comparison.steps == 2);
  CHECK(comparison.last == 3);
  CHECK(comparison.first_difference == 3);
  REQUIRE(comparison.metrics.size() == 2);
  CHECK(comparison.metrics[0].name == "loss");  // before metrics of modules
  CHECK(comparison.metrics[1].name == "alpha/blocks.0");
  CHECK(comparison.metrics[1].second == 2);
  other.pop_back();
  other[1].metrics["loss"] = 1, other[1].metrics["alpha/blocks.0"] = 1;
  CHECK(compare_logs(rows, other).first_difference == -1);
}
