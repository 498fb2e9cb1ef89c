// Settings that a resumed run may change: not those that change what its numbers mean.
#include <doctest/doctest.h>

#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "models/training/run_plan.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

// Starts the resumed run without training: all checks come before.
void begin_again(const Run& run, Assignments more) {
  more.insert(more.begin(), {{"resume", "yes"}, {"steps", "8"}});
  const Trainer trainer(run.settings(more));
}

struct Change {
  std::string key, its, ours;
};

// Trains with these settings, then expects that the resumed run may not have any of the changes.
void expect_refused(const Assignments& settings, const std::vector<Change>& changes) {
  Trainer(make_settings(settings)).run();
  for (const Change& c : changes) {
    CAPTURE(c.key);
    Assignments changed = settings;
    changed.insert(changed.end(), {{"resume", "yes"}, {c.key, c.ours}});
    expect_error([&] {
      Trainer(make_settings(changed));
    })
        .names(c.key)
        .value(c.its)
        .offers("--resume");
  }
}

}  // namespace

TEST_CASE("resume: changing a setting that changes the meaning of a metric is an error") {
  const Run run;
  run.train();
  const std::vector<Change> changes = {{"validation_fraction", "0.1", "0.2"},
                                       {"validation_tokens", "0", "20"},
                                       {"training_loss_tokens", "16384", "5"},
                                       {"label_smoothing", "0", "0.1"},
                                       {"seed", "1337", "5"},
                                       {"overfit_one_batch", "no", "yes"},
                                       {"dtype", "f32", "f64"},
                                       {"width", "8", "16"},
                                       {"optimizer", "adamw", "lion"}};
  for (const Change& c : changes) {
    CAPTURE(c.key);
    expect_error([&] {
      begin_again(run, {{c.key, c.ours}});
    })
        .names(c.key)
        .value(c.its)
        .value(c.ours)
        .offers("--resume");
  }
}

TEST_CASE("resume: fewer steps than the run has done are wrong usage, also for a plan") {
  const Run run;
  run.train();
  const std::string settings = read_file(run.out + "/settings.toml");
  const Assignments fewer = {{"resume", "yes"}, {"steps", "4"}};
  expect_error<UsageError>([&] {
    Trainer trainer(run.settings(fewer));
  })
      .names("steps")
      .value(4)
      .value(6)
      .offers("--steps");
  expect_error<UsageError>([&] { plan_run(run.settings(fewer)); }).names("steps").value(4).value(6).offers("--steps");
  CHECK(read_file(run.out + "/settings.toml") == settings);
  CHECK(run.resume({{"steps", "6"}}).steps_done == 6);
}

TEST_CASE("resume: the same holds for algorithmic problems, images and sentence pairs") {
  const Folder folder;
  const std::string sources = ORRERY_SOURCE_DIR "/tests/models/";
  expect_refused({{"out", folder / "problem"},
                  {"model", "gpt"},
                  {"task", "algorithmic"},
                  {"problem", "copy(length=3)"},
                  {"layers", "1"},
                  {"heads", "2"},
                  {"width", "8"},
                  {"context", "8"},
                  {"batch_size", "2"},
                  {"steps", "2"},
                  {"evaluate_every", "0"}},
                 {{"problem", "copy(length=3, symbols=8)", "copy(length=2)"}, {"validation_sequences", "512", "20"}});
  expect_refused({{"out", folder / "images"},
                  {"model", "resnet"},
                  {"width", "4"},
                  {"data", sources + "images/shapes/train"},
                  {"validation_fraction", "0.25"},
                  {"batch_size", "4"},
                  {"steps", "2"},
                  {"evaluate_every", "0"}},
                 {{"validation_fraction", "0.25", "0.5"},
                  {"loss", "softmax", "sigmoid"},
                  {"label_smoothing", "0", "0.1"},
                  {"mixup", "0", "0.2"},
                  {"image_size", "12", "8"},
                  {"pixel_mean", "0.5", "0.3"},
                  {"pixel_std", "0.5", "0.3"},
                  {"classes", "2", "7"},
                  {"skip_broken", "no", "yes"},
                  {"training_loss_images", "512", "3"}});
  expect_refused({{"out", folder / "pairs"},
                  {"model", "encoder_decoder"},
                  {"layers", "1"},
                  {"heads", "2"},
                  {"width", "8"},
                  {"context", "500"},
                  {"data", sources + "translation/bible.tsv"},
                  {"source_column", "4"},
                  {"target_column", "3"},
                  {"document_column", "1"},
                  {"document_lines", "2"},
                  {"tokenizer", "character"},
                  {"validation_fraction", "0.1"},
                  {"batch_tokens", "900"},
                  {"steps", "2"},
                  {"evaluate_every", "0"}},
                 {{"source_column", "4", "3"},
                  {"target_column", "3", "4"},
                  {"document_column", "1", "2"},
                  {"document_lines", "2", "1"},
                  {"max_length", "0", "450"},
                  {"validation_fraction", "0.1", "0.2"},
                  {"label_smoothing", "0.1", "0.2"},
                  {"training_loss_pairs", "256", "3"},
                  {"exchanged_sources", "no", "yes"},
                  {"tokenizer", "character", "byte"}});
}

TEST_CASE("resume: a folder whose text is divided into other files counts as other data") {
  const Run run;
  const std::string text = read_file(run.text), folder = run.folder / "texts";
  const auto divide = [&](size_t files) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    for (size_t i = 0, at = 0; i < files; ++i) {
      const size_t end = text.size() * (i + 1) / files;
      write_file_atomically(folder + "/" + std::to_string(i), text.substr(at, end - at));
      at = end;
    }
  };
  for (const char* key : {"data", "validation_data"}) {
    CAPTURE(std::string(key));
    divide(3);
    std::filesystem::remove_all(run.out);
    run.train({{key, folder}});
    begin_again(run, {{key, folder}});
    for (const size_t files : {1, 5}) {
      divide(files);
      expect_error([&] {
        begin_again(run, {{key, folder}});
      })
          .names(key)
          .value(folder)
          .value(3)
          .offers("--allow_new_text=yes");
    }
    begin_again(run, {{key, folder}, {"allow_new_text", "yes"}});
  }
}

TEST_CASE("resume: how a run trains, computes and logs may change") {
  const Run run;
  run.train();
  const Assignments changes = {{"learning_rate", "1e-4"},
                               {"schedule", "linear"},
                               {"warmup_steps", "3"},
                               {"grad_clip", "0.5"},
                               {"batch_size", "3"},
                               {"gradient_accumulation_steps", "2"},
                               {"gradient_parts", "1"},
                               {"dropout", "0.1"},
                               {"threads", "1"},
                               {"evaluate_every", "1"},
                               {"checkpoint_every", "1"},
                               {"metrics", "none"},
                               {"keep_best", "no"},
                               {"nan_guard", "yes"},
                               {"weight_decay_rules", "*.bias=yes"},
                               {"optimizer", "adamw(weight_decay=0)"}};
  for (const auto& change : changes) {
    CAPTURE(change.first);
    CHECK_NOTHROW(begin_again(run, {change}));
  }
}

TEST_CASE("resume: a schedule that would end above its peak is wrong usage, also for a plan") {
  const Run run;
  run.train({{"warmup_steps", "2"}});
  const std::string settings = read_file(run.out + "/settings.toml");
  const Assignments lower = {{"resume", "yes"},
                             {"steps", "8"},
                             {"warmup_steps", "2"},
                             {"schedule", "cosine"},
                             {"learning_rate", "5e-5"}};
  const auto refused = [](const auto& start) {
    expect_error<UsageError>(start)
        .names("cosine")
        .value("1e-4")
        .value("5e-5")
        .offers("--min_learning_rate=5e-6")
        .offers("--schedule=constant");
  };
  refused([&] { Trainer trainer(run.settings(lower)); });
  refused([&] { plan_run(run.settings(lower)); });
  CHECK(read_file(run.out + "/settings.toml") == settings);
  const auto accepted = [&](const std::string& key, const std::string& value) {
    Assignments changed = lower;
    changed.emplace_back(key, value);
    CHECK_NOTHROW(begin_again(run, changed));
  };
  accepted("schedule", "constant");
  accepted("min_learning_rate", "5e-6");
  accepted("warmup_steps", "100");  // longer than the run, which ends below the peak

  // Older versions resumed with such a schedule, and recorded it.
  CheckpointState state = read_state(run.checkpoint(6));
  for (auto& [key, value] : state.settings) {
    if (key == "schedule") value = "cosine";
    if (key == "learning_rate") value = "5e-5";
  }
  write_state(run.checkpoint(6), state);
  CHECK_NOTHROW(begin_again(run, lower));
}

TEST_CASE("resume: other validation data are an error, as other training data are") {
  const Run run;
  const std::string held_out = run.folder / "held_out.txt";
  write(held_out, "the quick fox number 7 jumps over the lazy dog.\n");
  expect_error([&] {
    run.train(), begin_again(run, {{"validation_data", held_out}});
  })
      .names("validation_data")
      .value(held_out)
      .offers("allow_new_text");

  const Run apart("apart");
  const Assignments own = {{"validation_data", held_out}};
  apart.train(own);
  CHECK_NOTHROW(begin_again(apart, own));
  write(held_out, "the lazy dog number 8 jumps over the quick fox.\n");
  expect_error([&] { begin_again(apart, own); }).names(held_out).names("validation_data").offers("allow_new_text");
  const std::string same = apart.folder / "same.txt";
  write(same, "the quick fox number 7 jumps over the lazy dog.\n");
  CHECK_NOTHROW(begin_again(apart, {{"validation_data", same}}));
  CHECK_NOTHROW(
      begin_again(apart, {{"validation_data", held_out}, {"validation_tokens", "9"}, {"allow_new_text", "yes"}}));
}
