// Training in bf16: nearly the loss of f32; bit-identical for any thread count and when resumed.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "models/training/trainer.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/small_text.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::train;
using orrery::testing::with;

namespace {

Assignments small_run(const Folder& folder, const std::string& out, Assignments more) {
  return with({{"data", orrery::testing::write_small_text(folder)},
               {"out", folder / out},
               {"steps", "50"},
               {"layers", "2"},
               {"heads", "2"},
               {"width", "32"},
               {"context", "16"},
               {"batch_size", "4"},
               {"warmup_steps", "5"},
               {"checkpoint_every", "25"},
               {"evaluate_every", "0"},
               {"keep_checkpoints", "0"},
               {"gradient_accumulation_steps", "2"},
               {"learning_rate", "0.01"},
               {"dtype", "bf16"}},
              more);
}

}  // namespace

TEST_CASE("bf16 learns nearly as f32 does") {
  const Folder folder;
  const double wide = train(small_run(folder, "f32", {{"dtype", "f32"}})).validation_loss,
               exact = train(small_run(folder, "f64", {{"dtype", "f64"}})).validation_loss,
               narrow = train(small_run(folder, "bf16", {})).validation_loss;
  INFO("f64 ", exact, ", f32 ", wide, ", bf16 ", narrow);
  CHECK(wide < 2.3);  // ln 33 = 3.5 at the start
  CHECK(std::fabs(exact - wide) < 1e-3 * wide);
  CHECK(std::fabs(narrow - wide) < 0.02 * wide);
}

TEST_CASE("bf16: training is bit-identical for one and two threads, and after an interruption") {
  const Folder folder;
  const int before = thread_count();
  train(small_run(folder, "one", {{"threads", "1"}}));
  train(small_run(folder, "two", {{"threads", "2"}}));
  set_thread_count(before);
  CHECK_THROWS_AS(
      [&] {
        Trainer trainer(make_settings(small_run(folder, "parts", {})));
        TrainingEvents events;
        events.step = [](const StepReport& r) {
          if (r.step == 30) throw std::runtime_error("killed");
        };
        trainer.run(events);
      }(),
      std::runtime_error);
  expect_error([&] {
    train(small_run(folder, "parts", {{"resume", "yes"}, {"dtype", "f32"}}));
  })
      .names("dtype")
      .value("bf16")
      .value("f32")
      .offers("--resume=" + (folder / "parts"));
  train(small_run(folder, "parts", {{"resume", "yes"}}));
  for (const std::string file : {"weights", "optimizer"}) {
    const std::string end = "/step_000050/" + file + ".safetensors", expected = read_file(folder / ("one" + end));
    CHECK(read_file(folder / ("two" + end)) == expected);
    CHECK(read_file(folder / ("parts" + end)) == expected);
    CHECK(read_file(folder / ("parts/step_000025/" + file + ".safetensors")) != expected);
  }
}
