// Metrics of a step are means over everything in its micro-batches, even if their sizes differ. A
// micro-batch, step or validation chunk without a target adds nothing.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "models/data/prepared.h"
#include "models/tasks/evaluation.h"
#include "models/training/extra_losses.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

struct Numbers {
  std::map<std::string, double> logged, expected;
  double min_targets = INFINITY, max_targets = 0;  // fewest and most targets of a micro-batch
};

// Runs the first step, and computes its means from the micro-batches one by one.
Numbers first_step(const TrainSettings& settings) {
  Numbers numbers;
  Trainer trainer(settings);
  const Task& task = trainer.task();
  double targets = 0, units = 0;
  std::map<std::string, double> sums;
  for (int64_t micro = 0; micro < settings.gradient_accumulation_steps; ++micro) {
    const std::vector<Tensor> batch = task.batch(0, micro);
    nn::ForwardPass pass;
    for (const auto& [name, weight] : settings.losses.by_name)
      if (weight > 0) pass.requested_losses.insert(name);
    const double loss = task.loss(trainer.model(), batch, pass).item();
    const auto here = static_cast<double>(task.counts(batch).targets),
               read = static_cast<double>(task.counts(batch).units);
    targets += here, units += read, sums["loss"] += loss * here;
    for (const std::string& name : pass.requested_losses) sums[name] += extra_loss(pass, name).item() * read;
    numbers.min_targets = std::min(numbers.min_targets, here),
    numbers.max_targets = std::max(numbers.max_targets, here);
  }
  for (const auto& [name, sum] : sums) numbers.expected[name] = sum / (name == "loss" ? targets : units);
  trainer.run();
  numbers.logged = logged_rows(settings.out).at(0);
  return numbers;
}

void check_means(const Numbers& numbers) {
  for (const auto& each : numbers.expected) {
    const auto& [name, value] = each;
    CAPTURE(each.first);
    REQUIRE(numbers.logged.contains(name));
    CHECK(numbers.logged.at(name) == doctest::Approx(value).epsilon(1e-13));
  }
}

// Writes documents of a few words, and long rows of empty documents.
std::string write_documents(const Folder& folder) {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += "document " + std::to_string(i * i % 89) + " ends.<|endoftext|>";
    if (i % 3 == 0)
      for (int k = 0; k < 30; ++k) text += "<|endoftext|>";
  }
  write(folder / "documents.txt", text);
  return folder / "documents.txt";
}
const Assignments packed = {{"tokenizer", "byte_pair(vocabulary=270)"},
                            {"documents", "yes"},
                            {"batch_size", "1"},
                            {"steps", "1"},
                            {"training_loss_tokens", "0"}};

}  // namespace

TEST_CASE("means: a step's loss is over all targets of its micro-batches, for documents") {
  const Run run;
  const Assignments all = with(packed, {{"data", write_documents(run.folder)},
                                        {"gradient_accumulation_steps", "12"},
                                        {"dtype", "f64"},
                                        {"attention", "relu_former"},
                                        {"losses.normalization_loss", "0.1"}});
  const Numbers numbers = first_step(run.settings(all));
  REQUIRE(numbers.min_targets == 0);
  REQUIRE(numbers.max_targets > 3);
  check_means(numbers);
}

TEST_CASE("means: a step's loss is over all targets of its micro-batches, for translations, in the run's dtype") {
  const Run run;
  const Numbers numbers = first_step(make_settings({{"model", "encoder_decoder"},
                                                    {"data", ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv"},
                                                    {"source_column", "4"},
                                                    {"target_column", "3"},
                                                    {"tokenizer", "character"},
                                                    {"batch_tokens", "700"},
                                                    {"gradient_accumulation_steps", "3"},
                                                    {"label_smoothing", "0"},
                                                    {"attention", "relu_former"},
                                                    {"losses.normalization_loss", "0.1"},
                                                    {"dropout", "0"},
                                                    {"dtype", "f64"},
                                                    {"layers", "1"},
                                                    {"heads", "2"},
                                                    {"width", "16"},
                                                    {"context", "400"},
                                                    {"steps", "1"},
                                                    {"evaluate_every", "0"},
                                                    {"out", run.out}}));
  REQUIRE(numbers.min_targets < numbers.max_targets);
  check_means(numbers);
}

// Those of images and of streams have equal sizes: batch_size images, or batch_size streams of `context` tokens.
TEST_CASE("means: a step's loss is over all targets of its micro-batches, for algorithmic problems") {
  const Run run;
  const Numbers numbers = first_step(make_settings({{"task", "algorithmic"},
                                                    {"problem", "ladder(length=16, first=2, gap=3, rungs=2)"},
                                                    {"batch_size", "1"},
                                                    {"gradient_accumulation_steps", "12"},
                                                    {"attention", "relu_former"},
                                                    {"losses.normalization_loss", "0.1"},
                                                    {"dtype", "f64"},
                                                    {"layers", "1"},
                                                    {"heads", "2"},
                                                    {"width", "8"},
                                                    {"context", "16"},
                                                    {"steps", "1"},
                                                    {"evaluate_every", "0"},
                                                    {"out", run.out}}));
  REQUIRE(numbers.min_targets < numbers.max_targets);
  check_means(numbers);
}

// tests/cases/empty_files: a text, 400 empty files, which are documents of one token, and a text.
TEST_CASE("means: steps without a target have gradient 0 and no loss") {
  const Run run;
  const std::string folder = run.folder / "files";
  std::string text;
  for (int i = 0; i < 30; ++i)
    text +=
        "The grey cat sits by the old gate and looks at the long road. A cart comes; the dog barks, and no one "
        "minds.\n";
  for (int i = 0; i < 402; ++i) {
    const std::string number = std::to_string(i);
    write(folder + "/" + std::string(4 - number.size(), '0') + number + ".txt", i == 0 || i == 401 ? text : "");
  }
  for (const char* batch : {"1", "4"}) {
    const std::string out = run.folder / (std::string("run") + batch);
    std::vector<double> losses;
    TrainingEvents events;
    events.step = [&](const StepReport& report) { losses.push_back(report.loss); };
    const TrainingResult result = run.train(with(packed, {{"data", folder},
                                                          {"out", out},
                                                          {"context", "16"},
                                                          {"steps", "60"},
                                                          {"batch_size", batch},
                                                          {"validation_tokens", "100"}}),
                                            events);
    CHECK(result.steps_done == 60);
    CHECK(std::isfinite(result.validation_loss));
    int64_t without = 0;
    for (const auto& row : logged_rows(out)) {
      if (!row.contains("gradient_norm") || row.contains("loss")) continue;
      ++without;
      CHECK(row.at("gradient_norm") == 0);
      CHECK(std::isnan(losses.at(static_cast<size_t>(row.at("step")) - 1)));
    }
    if (batch == std::string("1")) CHECK(without > 0);
  }
}

TEST_CASE("means: a validation's loss and bits per character are over its targets, for any chunks") {
  const Run run;
  const TrainSettings given =
      run.settings(with(packed, {{"data", write_documents(run.folder)}, {"validation_fraction", "0.5"}}));
  Trainer trainer(given);
  const auto tokenizer = restore_tokenizer(trainer.task().tokenizer());
  const int32_t end = tokenizer->end_of_text().value();
  const TokenSequence held_out =
      split(TokenSequence(tokenizer->encode(read_file(run.folder / "documents.txt"))), 0.5).second;
  const std::vector<int32_t> tokens = held_out.to_vector();
  int64_t targets = 0;
  double characters = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i - 1] == end) continue;
    ++targets;
    if (tokens[i] != end)  // the end token is not a character
      characters += static_cast<double>(tokenizer->decode(std::vector<int32_t>{tokens[i]}).size());  // ASCII
  }
  const MeanLoss one = evaluate(trainer.model(), held_out, 8, 1, {}, end).value(),
                 many = evaluate(trainer.model(), held_out, 8, 16, {}, end).value();
  CHECK(one.targets() == targets);
  CHECK(one.mean() == doctest::Approx(many.mean()).epsilon(1e-6));
  const Validation found = trainer.task().validate(trainer.model(), {}).value();
  CHECK(found.loss == many.mean());
  const std::map<std::string, double> metrics(found.metrics.begin(), found.metrics.end());
  CHECK(metrics.at("bits_per_character") ==
        doctest::Approx(many.mean() * static_cast<double>(targets) / std::log(2.0) / characters).epsilon(1e-12));
}

TEST_CASE("means: data without any target are an error before the first step") {
  const Run run;
  const std::string tokenizer = ORRERY_SOURCE_DIR "/tests/cases/gpt2_end_of_text";
  std::string text = "the only document of some words<|endoftext|>", ends;
  for (int i = 0; i < 200; ++i) ends += "<|endoftext|>";
  write(run.folder / "text.txt", text + ends);
  expect_error([&] {
    run.train(with(packed, {{"data", run.folder / "text.txt"}, {"tokenizer", tokenizer}}));
  })
      .names("documents")
      .names("validation split")
      .names("targets")
      .offers("documents");
  write(run.folder / "ends.txt", ends);
  write(run.folder / "words.txt", text);
  expect_error([&] {
    run.train(with(
        packed,
        {{"data", run.folder / "ends.txt"}, {"validation_data", run.folder / "words.txt"}, {"tokenizer", tokenizer}}));
  })
      .names("documents")
      .names("data")
      .names("targets")
      .offers("documents");
}
