// examples/05_gpt.cpp against `orrery train`: with equal settings both have the same losses, although
// they share no code of a model or an optimizer.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/program.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"

using Words = std::vector<std::string>;
using orrery::testing::expect_error;

namespace {

constexpr size_t steps = 100;

Outcome run_example(const Words& words) {
  std::string command = "OMP_NUM_THREADS=1 '" GPT_EXAMPLE "'";
  for (const std::string& word : words) command += " '" + word + "'";
  return run_shell(command);
}

// The warm-up ends, the cosine falls to its end, and the gradients of half of the steps are clipped.
Words settings(const Folder& folder, const std::string& dtype) {
  return {"--data=" + folder.write("text.txt", tiny_text()),
          "--dtype=" + dtype,
          "--layers=2",
          "--heads=2",
          "--width=16",
          "--context=12",
          "--batch_size=3",
          "--steps=" + std::to_string(steps),
          "--warmup_steps=20",
          "--learning_rate=3e-3",
          "--seed=7"};
}

std::vector<double> losses_of_train(const Folder& folder, const Words& words) {
  const std::string run = folder / "run";
  const Outcome outcome = run_orrery(Words{"train", "--out=" + run, "--threads=1"} + words);
  REQUIRE_MESSAGE(is_complete(outcome), outcome.err);
  std::vector<double> losses;
  for (const auto& row : orrery::testing::logged_rows(run))
    if (row.contains("loss")) losses.push_back(row.at("loss"));
  return losses;
}

std::vector<double> losses_of_example(const Words& words) {
  const Outcome outcome = run_example(words + Words{"--log_every=1", "--tokens=0"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::vector<double> losses;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    size_t step = 0;
    double loss = 0;
    if (std::sscanf(line.c_str(), "step %zu/%*u loss %lf", &step, &loss) != 2) continue;
    losses.push_back(loss);
    CHECK(step == losses.size());
  }
  return losses;
}

}  // namespace

TEST_CASE("05_gpt: the losses of 100 steps are those of orrery train, in f64 to 1e-9") {
  const Folder folder;
  const Words words = settings(folder, "f64");
  const std::vector<double> ours = losses_of_example(words), theirs = losses_of_train(folder, words);
  REQUIRE(ours.size() == steps);
  REQUIRE(theirs.size() == steps);
  double largest = 0;
  for (size_t i = 0; i < steps; ++i) largest = std::max(largest, std::abs(ours[i] - theirs[i]));
  CHECK(largest < 1e-9);
  CHECK(ours.back() < ours.front() - 0.5);  // it learned something, so all steps were compared
}

TEST_CASE("05_gpt: the first loss is that of orrery train, in f32 to 1e-6") {
  const Folder folder;
  const Words words = settings(folder, "f32");
  const std::vector<double> ours = losses_of_example(words), theirs = losses_of_train(folder, words);
  REQUIRE(ours.size() == steps);
  REQUIRE(theirs.size() == steps);
  CHECK(std::abs(ours.front() - theirs.front()) < 1e-6);
  MESSAGE("in f32 the losses of step 100 differ by " << std::abs(ours.back() - theirs.back()));
}

TEST_CASE("05_gpt: prints a sample of the requested length in the characters of the text") {
  const Folder folder;
  const Outcome outcome = run_example(settings(folder, "f32") + Words{"--tokens=30"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const std::string end = " ms per step\n";
  const size_t at = outcome.out.rfind(end);
  REQUIRE(at != std::string::npos);
  const std::string sample = outcome.out.substr(at + end.size());
  CHECK(sample.size() == 31);  // with a line break
  CHECK(sample.find_first_not_of(tiny_text() + "\n") == std::string::npos);
}

TEST_CASE("05_gpt: refuses unknown settings, sizes that do not fit, and too short texts") {
  const Folder folder;
  const std::string data = "--data=" + folder.write("text.txt", tiny_text());
  expect_error(run_example({data, "--layrs=2"})).names("layrs").offers("layers");
  expect_error(run_example({data, "--heads=3"})).names("heads").value(3).names("width").value(128);
  expect_error(run_example({data, "--context=900"})).names("data").value(900).names("context").offers("longer text");
  expect_error(run_example({data, "gpu"})).value("gpu").offers("cpu");
}

TEST_CASE("05_gpt: one file of at most 300 lines, which includes the engine alone") {
  const std::string source = read_file(ORRERY_SOURCE_DIR "/examples/05_gpt.cpp");
  CHECK(std::count(source.begin(), source.end(), '\n') <= 300);
  for (const auto& include : orrery::testing::matches_in(source, "#include \"([^\"]+)\""))
    CHECK_MESSAGE(include[1].starts_with("engine/"), include[1]);
}
