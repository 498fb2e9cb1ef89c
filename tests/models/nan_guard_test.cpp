// --nan_guard=yes: reports in runs of every task, files for a replay, and no other changes.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "models/model.h"
#include "models/training/replay.h"
#include "tests/support/contents.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;
namespace fs = std::filesystem;

namespace {

const std::string data_of_tests = ORRERY_SOURCE_DIR "/tests/models/";
const Assignments diverging = {{"learning_rate", "1e30"}, {"warmup_steps", "0"},     {"grad_clip", "0"},
                               {"schedule", "constant"},  {"checkpoint_every", "1"}, {"steps", "9"}};

struct Kind {  // a kind of task
  std::string name;
  Assignments settings;
};
const std::vector<Kind> kinds = {
    {"language", {}},
    {"bf16", {{"dtype", "bf16"}}},
    {"streams",
     {{"model", "stream"},
      {"cache_length", "16"},
      {"gradient_accumulation_steps", "2"},
      {"dropout", "0.1"},
      {"attention", "softmax(span=adaptive_span(16, R=4))"}}},
    {"images", {{"model", "vit"}, {"patch", "7"}, {"data", data_of_tests + "images/fashion"}, {"flip", "yes"}}},
    {"batch statistics",
     {{"model", "resnet"}, {"width", "4"}, {"data", data_of_tests + "images/shapes"}, {"batch_size", "4"}}},
    {"pairs",
     {{"model", "encoder_decoder"},
      {"data", data_of_tests + "translation/bible.tsv"},
      {"source_column", "4"},
      {"target_column", "3"},
      {"tokenizer", "sentence_piece(vocabulary=150)"},
      {"batch_tokens", "300"},
      {"context", "256"}}},
    {"problems", {{"task", "algorithmic"}, {"problem", "copy(length=4)"}, {"context", "12"}}}};

// Returns the settings of a run of this kind, without those that its model lacks.
TrainSettings settings_of_kind(const Run& run, const Kind& kind, const Assignments& more) {
  Assignments all = {{"data", run.text},  {"out", run.out}, {"layers", "2"}, {"heads", "2"},         {"width", "8"},
                     {"batch_size", "2"}, {"context", "8"}, {"steps", "4"},  {"evaluate_every", "0"}};
  all.insert(all.end(), kind.settings.begin(), kind.settings.end());
  all.insert(all.end(), more.begin(), more.end());
  std::string model = "gpt", task;
  for (const auto& [key, value] : all) {
    if (key == "model") model = value;
    if (key == "task") task = value;
  }
  TrainSettings known(model, task);
  const std::vector<Setting> members = settings_of(known);
  std::erase_if(all, [&](const auto& each) { return !find_setting(members, each.first); });
  all.insert(all.begin(), {"model", model});
  return make_settings(all);
}
TrainSettings replayed(TrainSettings settings) {
  settings.out = replay_folder(settings.out), settings.resume = true;
  return settings;
}

}  // namespace

TEST_CASE("nan guard: in every task, a diverging step is reported, saved, and replayed with equal numbers") {
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    const Run run;
    Assignments with_guard = diverging;
    with_guard.emplace_back("nan_guard", "yes");
    const TrainSettings settings = settings_of_kind(run, kind, with_guard);
    Message message = expect_error([&] { Trainer(settings).run(); });

    const NonFiniteReport found = read_report(replay_folder(run.out));
    message.names("train")
        .names(orrery::models::message(found))
        .offers("orrery replay " + run.out)
        .names(run.out)
        .names(".damaged");
    CHECK(found.step >= 2);
    CHECK(found.call.outputs[found.call.first_non_finite].stats.non_finite() > 0);
    // It arose there. Batch sums are not an operation: they are found where one reads them.
    if (kind.name != "batch statistics")
      for (const OperationRecord::Value& value : found.call.inputs) CHECK(value.stats.non_finite() == 0);

    const auto before = contents_of_folder(run.out);
    {
      Trainer again(replayed(settings));
      CHECK(again.steps_done() + (found.validating ? 0 : 1) == found.step);
      const std::optional<NonFiniteReport> shown = again.replay(found.validating);
      REQUIRE(shown.has_value());
      CHECK(shown->call == found.call);
      CHECK(orrery::models::message(*shown) == orrery::models::message(found));
      const std::optional<NonFiniteReport> twice = again.replay(found.validating);  // the trainer is unchanged
      REQUIRE(twice.has_value());
      CHECK(twice->call == found.call);
    }
    CHECK(contents_of_folder(run.out) == before);
  }
}

TEST_CASE("nan guard: in every task, a finite run is bit-identical with it and has no report") {
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    const Run plain, guarded;
    const TrainingResult one = Trainer(settings_of_kind(plain, kind, {})).run(),
                         other = Trainer(settings_of_kind(guarded, kind, {{"nan_guard", "yes"}})).run();
    for (const char* file : {"/weights.safetensors", "/optimizer.safetensors"})
      CHECK(read_file(one.checkpoint + file) == read_file(other.checkpoint + file));
    CHECK(one.validation_loss == other.validation_loss);
    CHECK(!fs::exists(replay_folder(guarded.out)));
  }
}

TEST_CASE("nan guard: the report of the first overflow names the attention in which it occurs") {
  const Run run;
  // exp of scores of some hundreds overflows f32 in the first step, before any checkpoint.
  expect_error([&] {
    run.train({{"nan_guard", "yes"}, {"attention", "pointwise(exp, scale=1e6)"}, {"initialization", "1"}});
  })
      .value("step 1")
      .names("forward")
      .names("blocks.0.attention")
      .names("output")
      .names("no checkpoint")
      .offers("--learning_rate");
  const NonFiniteReport found = read_report(replay_folder(run.out));
  CHECK(found.call.module == "blocks.0.attention");
  CHECK(latest_checkpoint(replay_folder(run.out)) == replay_folder(run.out) + "/step_000000");
  CHECK(!holds_checkpoints(run.out));
  const auto of_later = [] { report_in(R"({"format": "orrery finding 9", "during": "step"})", "found.json"); };
  expect_error(of_later).names("found.json").value("'orrery finding 9'").value("'orrery finding 1'").offers("version");
  const auto of_other = [] { report_in(R"({"format": "orrery finding 1", "during": "lunch"})", "found.json"); };
  expect_error(of_other).names("found.json").names("'during'").value("lunch").offers("step or validation");
}

TEST_CASE("nan guard: an update that overflows is undone, and the parameter is named") {
  const Run run;
  // A learning rate of 1e39 overflows f32, regardless of the gradients.
  const Assignments settings = {{"nan_guard", "yes"},   {"learning_rate", "1e30"}, {"warmup_steps", "0"},
                                {"lr_scales", "*=1e9"}, {"optimizer", "sgd"},      {"checkpoint_every", "1"}};
  run.train({{"nan_guard", "yes"}, {"steps", "3"}, {"optimizer", "sgd"}});
  const std::string good = latest_checkpoint(run.out), before = read_file(good + "/weights.safetensors");
  Assignments more = settings;
  more.emplace_back("resume", "yes"), more.emplace_back("steps", "9");
  expect_error([&] { run.train(more); })
      .value("step 4")
      .names("update")
      .names("sgd")
      .names("good checkpoint")
      .offers(good);
  const NonFiniteReport found = read_report(replay_folder(run.out));
  CHECK(found.call.direction == "update");
  CHECK(found.call.inputs.at(0).name == found.call.outputs.at(0).name + ", before");
  CHECK(found.call.inputs.at(0).stats.non_finite() == 0);
  CHECK(read_file(good + "/weights.safetensors") == before);
  CHECK(read_file(replay_folder(run.out) + "/step_000003/weights.safetensors") == before);
  Trainer again(replayed(run.settings(more)));
  CHECK(again.replay(false)->call == found.call);
}

TEST_CASE("nan guard: good checkpoints stay and can be resumed, and a later report replaces the earlier one") {
  const Run run;
  run.train({{"steps", "4"}});
  const auto good = contents_of_folder(run.checkpoint(4));
  Assignments settings = {{"nan_guard", "yes"},      {"resume", "yes"},     {"keep_checkpoints", "1"},
                          {"learning_rate", "1e30"}, {"warmup_steps", "0"}, {"steps", "9"},
                          {"keep_best", "no"}};
  const auto go_on = [&] { run.train(settings); };
  Message message = expect_error(go_on);
  message.names("value").value("step 6").names("good checkpoint").offers(run.checkpoint(4));
  CHECK(latest_checkpoint(run.out) == run.checkpoint(4));
  CHECK(contents_of_folder(run.checkpoint(4)) == good);
  CHECK(names_in(replay_folder(run.out)) == std::set<std::string>{"found.json", "step_000005"});

  CHECK(expect_error(go_on).message() == message.message());
  CHECK(names_in(replay_folder(run.out)) == std::set<std::string>{"found.json", "step_000005"});
  write(replay_folder(run.out) + "/step_000005/mine.txt", "not yours");
  expect_error(go_on);
  CHECK(fs::exists(replay_folder(run.out) + "/step_000005/mine.txt"));
  fs::remove_all(replay_folder(run.out) + "/step_000005");
  settings.emplace_back("learning_rate", "1e-3");
  CHECK_NOTHROW(go_on());
}

TEST_CASE("nan guard: if the replay cannot be written, the error message and the checkpoints remain") {
  const Run run;
  run.train({{"steps", "4"}});
  write(replay_folder(run.out), "a file where the folder would be");
  expect_error([&] {
    run.train(
        {{"nan_guard", "yes"}, {"resume", "yes"}, {"learning_rate", "1e30"}, {"warmup_steps", "0"}, {"steps", "9"}});
  })
      .names("value")
      .value("step 6")
      .names(replay_folder(run.out))
      .names("good checkpoint")
      .offers(run.checkpoint(4));
}

TEST_CASE("nan guard: validations are checked, too") {
  const Run run;
  Trainer trainer(run.settings({{"nan_guard", "yes"}, {"evaluate_every", "3"}}));
  TrainingEvents events;
  events.step = [&](const StepReport& report) {  // finite weights with non-finite predictions
    if (report.step != 3) return;
    for (const nn::NamedParameter& p : nn::parameters_of(trainer.model()))
      if (p.path.ends_with("attention.output.weight") || p.path.find("feed_forward") != std::string::npos)
        p.parameter->value.copy_from(Tensor::full(p.parameter->value.shape(), 3e38));
  };
  expect_error([&] { trainer.run(events); }).names("value").names("validation").value("step 3").names("forward");
  const NonFiniteReport found = read_report(replay_folder(run.out));
  CHECK(found.validating);
  Trainer again(replayed(run.settings({{"evaluate_every", "3"}})));
  CHECK(again.steps_done() == 3);
  const std::optional<NonFiniteReport> shown = again.replay(true);
  REQUIRE(shown.has_value());
  CHECK(shown->call == found.call);
}

TEST_CASE("nan guard: settings that exclude it have error messages") {
  const Run run;
  expect_error([&] { run.train({{"nan_guard", "yes"}, {"profile", "yes"}}); }).names("--nan_guard").offers("--profile");
  expect_error([&] { replay_folder_at(run.out); }).names(run.out).names("found.json").offers("--nan_guard=yes");
  CHECK(Trainer(run.settings({{"nan_guard", "yes"}})).memory_plan().guard > 0);
}

TEST_CASE("the error for a run resumed from weights with a non-finite loss names the previous checkpoint") {
  const Run run;
  // Stops after step 4, before any loss has verified its weights.
  int64_t last_step = 0;
  TrainingEvents events;
  events.step = [&](const StepReport& report) { last_step = report.step; };
  events.stop = [&] { return last_step == 4; };
  run.train({{"steps", "9"}, {"keep_checkpoints", "0"}}, events);
  Trainer other(run.settings({{"resume", "yes"}, {"steps", "9"}, {"keep_checkpoints", "0"}}));
  for (const nn::NamedParameter& p : nn::parameters_of(other.model()))
    p.parameter->value.copy_from(Tensor::full(p.parameter->value.shape(), 3e38));
  const auto before = contents_of_folder(run.checkpoint(4));
  expect_error([&] { other.run(); })
      .value("step 5")
      .names("gradient norm")
      .names(run.checkpoint(4))
      .offers(run.checkpoint(2))
      .offers("--learning_rate");
  CHECK(contents_of_folder(run.checkpoint(4)) == before);
}
