// Runs on streams: tokens of the rows, bit-identical resuming for any thread count, and errors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "engine/tensor/safetensors.h"
#include "models/data/text_streams.h"
#include "models/settings/settings_file.h"
#include "models/training/checkpoint.h"
#include "models/training/trainer.h"
#include "tests/support/folder.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"
#include "tests/support/small_text.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::logged_rows;
using orrery::testing::train;
using orrery::testing::with;
using orrery::testing::write_small_text;

namespace {

Assignments small_run(const Folder& folder, const std::string& out, int steps, const Assignments& more = {}) {
  return with({{"model", "stream"},
               {"data", write_small_text(folder)},
               {"out", folder / out},
               {"steps", std::to_string(steps)},
               {"layers", "2"},
               {"heads", "2"},
               {"width", "16"},
               {"context", "12"},
               {"cache_length", "40"},
               {"attention", "softmax(span=adaptive_span(40, R=8))"},
               {"losses.span_penalty", "1e-4"},
               {"batch_size", "3"},
               {"gradient_accumulation_steps", "2"},
               {"optimizer", "adagrad"},
               {"grad_clip", "0"},
               {"learning_rate", "0.05"},
               {"schedule", "constant"},
               {"warmup_steps", "5"},
               {"dropout", "0.1"},
               {"checkpoint_every", "5"},
               {"evaluate_every", "0"},
               {"keep_checkpoints", "0"}},
              more);
}
double metric_of(const TrainingResult& result, const std::string& name) {
  for (const auto& [its, value] : result.metrics)
    if (its == name) return value;
  return NAN;
}
void check_same_files(const std::string& a, const std::string& b) {
  for (const char* file : {"/weights.safetensors", "/optimizer.safetensors"})
    CHECK(read_file(a + file) == read_file(b + file));
}

}  // namespace

TEST_CASE("streams: each row continues at its last position, and wraps around at the end of the text") {
  std::vector<int32_t> tokens(23);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  const TextStreams streams(tokens, 4, 5, "text");
  std::vector<int64_t> at = {0, 5, 11, 17};  // 23 row / 4
  for (int64_t step = 0; step < 30; ++step) {
    const Batch all = streams.at(step, 0, 4), some = streams.at(step, 1, 2);
    for (int64_t row = 0; row < 4; ++row)
      for (int64_t t = 0; t < 5; ++t) {
        int64_t& next_token = at[static_cast<size_t>(row)];
        CHECK(all.inputs.data<int32_t>()[row * 5 + t] == next_token);
        next_token = (next_token + 1) % 23;
        CHECK(all.targets.data<int32_t>()[row * 5 + t] == next_token);
      }
    CHECK(some.inputs.to_vector() == all.inputs.slice(1, 3).to_vector());
  }
  expect_error([&] { TextStreams(tokens, 4, 6, "text: a.txt"); }).names("a.txt").value(23).value(4).value(6).offers(24);
  for (const int64_t rows : {0, 4}) {
    const int64_t context = 4 - rows;
    expect_error([&] { each_block(tokens, context, rows, [](const Batch&) { return true; }); })
        .names(rows == 0 ? "streams" : "context")
        .value(0)
        .offers(1);
  }
}

TEST_CASE("streams: in a validation, every token except the first is a target once, and each row continues") {
  for (const int64_t length : {2, 7, 16, 61, 100})
    for (const int64_t rows : {1, 3, 16}) {
      std::vector<int32_t> tokens(static_cast<size_t>(length)), visits(static_cast<size_t>(length));
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
      std::vector<int32_t> last;
      each_block(tokens, 8, rows, [&](const Batch& block) {
        const int64_t streams = block.inputs.size(0), time = block.inputs.size(1);
        for (int64_t row = 0; row < streams; ++row)
          for (int64_t t = 0; t < time; ++t) {
            const int32_t input = block.inputs.data<int32_t>()[row * time + t],
                          target = block.targets.data<int32_t>()[row * time + t];
            if (target < 0) continue;
            CHECK(target == input + 1);
            ++visits[static_cast<size_t>(target)];
            if (t == 0 && !last.empty()) CHECK(input == last[static_cast<size_t>(row)]);
          }
        last.clear();
        for (int64_t row = 0; row < streams; ++row) last.push_back(block.targets.data<int32_t>()[(row + 1) * time - 1]);
        return true;
      });
      CHECK(visits[0] == 0);
      CHECK(std::count(visits.begin() + 1, visits.end(), 1) == length - 1);
    }
}

TEST_CASE("streams: an interrupted run resumes bit-identically, at its position in the text") {
  const Folder folder;
  for (const char* dtype : {"f32", "bf16"}) {
    INFO(dtype);
    const std::string whole = std::string("whole") + dtype, interrupted = std::string("parts") + dtype;
    const auto run = [&](const std::string& out, int steps, const Assignments& more) {
      Assignments all = more;
      all.emplace_back("dtype", dtype);
      return train(small_run(folder, out, steps, all));
    };
    const TrainingResult one = run(whole, 15, {});
    run(interrupted, 10, {});
    CHECK(read_state(folder / (interrupted + "/step_000010")).position == 120);
    const std::vector<nn::Cache> stream_states =
        load_stream_states(folder / (interrupted + "/step_000010"), Device::cpu);
    CHECK(stream_states.size() == 2);
    CHECK(stream_states[1].length == 120);
    CHECK(stream_states[1].entries.at("blocks.1.attention").states.size(0) == 3);
    const TrainingResult two = run(interrupted, 15, {{"resume", "yes"}});
    check_same_files(folder / (whole + "/step_000015"), folder / (interrupted + "/step_000015"));
    CHECK(one.validation_loss == two.validation_loss);
  }
}

TEST_CASE("streams: training is bit-identical for one and two threads") {
  const Folder folder;
  const int before = thread_count();
  for (const char* threads : {"1", "2"}) train(small_run(folder, threads, 8, {{"threads", threads}}));
  set_thread_count(before);
  check_same_files(folder / "1/step_000008", folder / "2/step_000008");
}

TEST_CASE("streams: cached states matter, and a run logs bits per character, spans and multiply-adds") {
  const Folder folder;
  const Assignments no_dropout = {{"dropout", "0"}, {"learning_rate", "0.07"}};
  const TrainingResult adaptive = train(small_run(folder, "adaptive", 60, no_dropout));
  CHECK(adaptive.validation_loss < 2.2);  // ln 33 = 3.5 at the start
  CHECK(metric_of(adaptive, "bits_per_character") == doctest::Approx(adaptive.validation_loss / std::log(2.0)));
  CHECK(metric_of(adaptive, "span_mean") >= 8);
  CHECK(metric_of(adaptive, "span_max") <= 40);
  Assignments fixed = no_dropout;
  fixed.insert(fixed.end(), {{"attention", "softmax(span=fixed(40))"}, {"losses.span_penalty", "0"}});
  CHECK(metric_of(train(small_run(folder, "fixed", 60, fixed)), "attention_multiply_adds_per_token") >
        metric_of(adaptive, "attention_multiply_adds_per_token"));
  const auto last = logged_rows(folder / "adaptive").back();
  for (const char* key : {"validation_loss", "bits_per_character", "span_mean", "span.1.max", "span.1.0", "span.1.1"})
    CHECK(last.contains(key));
}

TEST_CASE("streams: a separate validation text, and bf16 next to f32") {
  const Folder folder;
  const std::string other = folder / "other.txt";
  write_file_atomically(other, "the lazy dog jumps over the quick fox number 7.\n");
  const Trainer trainer(make_settings(small_run(folder, "own", 2, {{"validation_data", other}})));
  CHECK(trainer.task().validation_units() == 48);
  const double wide = train(small_run(folder, "f32", 40)).validation_loss,
               narrow = train(small_run(folder, "bf16", 40, {{"dtype", "bf16"}})).validation_loss;
  INFO(wide, " ", narrow);
  CHECK(std::abs(narrow - wide) < 0.05 * wide);
}

TEST_CASE("streams: each configuration of the studies of novels trains on any text") {
  const Folder folder;
  const std::string text = write_small_text(folder, 400);
  for (const char* name : {"novels-adaptive", "novels-fixed", "novels-all-attention"}) {
    INFO(name);
    TrainSettings known("stream");
    Assignments all =
        read_settings_file(std::string(ORRERY_SOURCE_DIR) + "/examples/configs/" + name + ".toml", settings_of(known));
    all.insert(all.end(), {{"data", text},
                           {"out", folder / name},
                           {"steps", "2"},
                           {"context", "16"},
                           {"batch_size", "2"},
                           {"warmup_steps", "1"},
                           {"validation_fraction", "0.02"}});
    CHECK(train(all).validation_loss < 6);  // ln 256 = 5.5
  }
}

TEST_CASE("streams: settings that do not fit have error messages") {
  const Folder folder;
  const auto refused = [&](const Assignments& more) {
    return expect_error([&] { Trainer trainer(make_settings(small_run(folder, "refused", 5, more))); });
  };
  refused({{"batch_size", "400"}}).value(800).value(12).offers(9600).offers("batch_size");
  refused({{"data", folder / "absent.txt"}}).names("absent.txt");
  refused({{"task", "stream_modeling"}, {"model", "gpt-char-small"}}).names("cache_length").offers("model=stream");
  const std::string tiny = folder / "tiny.txt";
  write_file_atomically(tiny, "x");
  refused({{"validation_data", tiny}}).names("validation").value(1).offers(2);
  train(small_run(folder, "run", 5));
  const auto resumed = [&](const Assignments& more) {
    Assignments all = {{"resume", "yes"}};
    all.insert(all.end(), more.begin(), more.end());
    const Trainer trainer(make_settings(small_run(folder, "run", 9, all)));
  };
  for (const Assignments& other : {Assignments{{"batch_size", "2"}}, {{"gradient_accumulation_steps", "3"}}})
    expect_error([&] { resumed(other); })
        .names(folder / "run")
        .value(2)
        .value(3)
        .offers("batch_size")
        .offers("gradient_accumulation_steps");
  expect_error([&] { resumed({{"context", "10"}}); }).names("context").value(12).value(10);
  CHECK_NOTHROW(resumed({}));
  const std::string checkpoint = folder / "run/step_000005", file = checkpoint + "/optimizer.safetensors";
  std::vector<NamedTensor> tensors = read_safetensors(file).tensors;
  std::erase_if(tensors, [](const NamedTensor& t) { return t.name.starts_with("carried.0."); });
  write_safetensors(file, tensors);
  expect_error([&] { load_stream_states(checkpoint, Device::cpu); }).names("load").names(checkpoint).value("batch 0");
}
