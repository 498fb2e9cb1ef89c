// Whole models on the device: the CPU's losses, bit-identical replays, and a non-finite loss.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "models/model.h"
#include "models/training/checkpoint.h"
#include "models/training/generation.h"
#include "models/training/replay.h"
#include "models/training/trainer.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/folder.h"
#include "tests/support/random_tensors.h"
#include "tests/support/small_text.h"
#include "tests/support/thread_ranks.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::Folder;
using orrery::testing::largest_difference;

namespace {

Assignments operator+(Assignments a, const Assignments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Runs of one model on different devices, each in its own folder.
class Runs {
 public:
  explicit Runs(Assignments common) : common_(std::move(common)), text_(orrery::testing::write_small_text(folder_)) {}

  Trainer begin(const std::string& name, const Assignments& more, Ranks* ranks = nullptr) const {
    Assignments all = common_;
    const std::vector<Setting> of_task = make_settings(common_).task_settings.members();
    if (find_setting(of_task, "data")) all.emplace_back("data", text_);  // generated tasks have none
    // In the emulation, they take most of the time.
    if (find_setting(of_task, "training_loss_tokens")) all.emplace_back("training_loss_tokens", "0");
    all.insert(all.end(), {{"out", folder_ / name}, {"evaluate_every", "0"}, {"checkpoint_every", "0"}});
    return Trainer(make_settings(all + more), ranks);
  }
  const Folder& folder() const { return folder_; }
  TrainingResult train(const std::string& name, const Assignments& more) const {
    Trainer trainer = begin(name, more);
    return trainer.run();
  }
  std::vector<nlohmann::json> metrics(const std::string& name) const {
    std::vector<nlohmann::json> rows;
    std::ifstream in(folder_ / name + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      nlohmann::json row = nlohmann::json::parse(line);
      for (const char* of_time : {"step_ms", "tokens_per_second", "mfu"}) row.erase(of_time);
      rows.push_back(row);
    }
    return rows;
  }
  std::string file(const std::string& checkpoint, const char* name) const { return read_file(checkpoint + "/" + name); }
  double loss_gap(const std::string& a, const std::string& b) const {
    const auto left = metrics(a), right = metrics(b);
    REQUIRE(left.size() == right.size());
    double gap = 0;
    for (size_t i = 0; i < left.size(); ++i)
      for (const char* key : {"loss", "validation_loss"})
        if (left[i].contains(key)) gap = std::max(gap, std::fabs(double(left[i][key]) - double(right[i][key])));
    return gap;
  }

 private:
  Assignments common_;
  Folder folder_;
  std::string text_;
};

const Assignments on_gpu = {{"device", "cuda"}};
const Assignments replayed = {{"device", "cuda"}, {"cuda_graph", "yes"}};

}  // namespace

TEST_CASE("a GPT trains on the device with the CPU's losses") {
  if (no_gpu()) return;
  const Runs runs({{"layers", "2"},
                   {"width", "64"},
                   {"heads", "2"},
                   {"context", "32"},
                   {"batch_size", "4"},
                   {"steps", thread_sanitizer ? "3" : "20"},
                   {"warmup_steps", "5"},
                   {"bias", "yes"}});
  runs.train("cpu", {});
  runs.train("cuda", on_gpu);
  CHECK(runs.metrics("cpu").size() == (thread_sanitizer ? 4 : 21));
  CHECK(double(runs.metrics("cpu").back()["validation_loss"]) < (thread_sanitizer ? 4 : 3));
  CHECK(runs.loss_gap("cpu", "cuda") <= 1e-5);
}

TEST_CASE("gpt-char-small takes two steps on the device") {
  if (no_gpu() || thread_sanitizer) return;
  const Runs runs(Assignments{{"steps", "2"}});
  runs.train("cpu", {});
  runs.train("cuda", on_gpu);
  CHECK(runs.loss_gap("cpu", "cuda") <= 1e-5);
}

const Assignments basic = {{"layers", "1"}, {"width", "32"}, {"heads", "2"}, {"context", "16"}, {"batch_size", "2"}};

TEST_CASE("parts of a step: losses equal the CPU's; replayed steps are bit-identical to eager ones") {
  if (no_gpu()) return;
  const Runs runs(basic + Assignments{{"steps", "4"}, {"gradient_accumulation_steps", "9"}, {"gradient_parts", "8"}});
  runs.train("cpu", {});
  const TrainingResult eager = runs.train("cuda", on_gpu), replays = runs.train("graph", replayed);
  CHECK(runs.loss_gap("cpu", "cuda") <= 1e-5);
  for (const char* name : {"weights.safetensors", "optimizer.safetensors"})
    CHECK(runs.file(eager.checkpoint, name) == runs.file(replays.checkpoint, name));
}

TEST_CASE("dropout, accumulation, clipping: losses equal the CPU's; replayed steps are bit-identical to eager ones") {
  if (no_gpu()) return;
  const Runs runs(basic + Assignments{{"steps", "6"},
                                     {"gradient_accumulation_steps", "2"},
                                     {"dropout", "0.1"},
                                     {"attention", "softmax(dropout=0.2)"},
                                     {"grad_clip", "0.5"}});
  runs.train("cpu", {});
  const TrainingResult eager = runs.train("cuda", on_gpu), again = runs.train("again", on_gpu);
  CHECK(runs.loss_gap("cpu", "cuda") <= 1e-5);
  const TrainingResult replays = runs.train("graph", replayed);
  for (const char* name : {"weights.safetensors", "optimizer.safetensors"}) {
    CHECK(runs.file(eager.checkpoint, name) == runs.file(again.checkpoint, name));
    CHECK(runs.file(eager.checkpoint, name) == runs.file(replays.checkpoint, name));
  }
  CHECK(runs.metrics("cuda") == runs.metrics("graph"));

  // A run that is stopped and resumed, replayed or not, ends with the same bits.
  for (const Assignments& how : {on_gpu, replayed}) {
    const std::string name = how.size() > 1 ? "resumed graph" : "resumed";
    Trainer half = runs.begin(name, how);
    int64_t observed = 0;
    TrainingEvents events;
    events.step = [&](const StepReport& r) { observed = r.step; };
    events.stop = [&] { return observed >= 2; };
    half.run(events);
    Assignments rest = how;
    rest.emplace_back("resume", "yes");
    const TrainingResult resumed = runs.train(name, rest);
    CHECK(resumed.steps_done == 6);
    CHECK(runs.file(eager.checkpoint, "weights.safetensors") == runs.file(resumed.checkpoint, "weights.safetensors"));
  }
}

TEST_CASE("a non-finite loss: the device does not update the weights, and the error names the step") {
  if (no_gpu()) return;
  const Runs runs(
      {{"layers", "1"}, {"width", "16"}, {"heads", "1"}, {"context", "8"}, {"batch_size", "2"}, {"steps", "9"}});
  Trainer trainer = runs.begin("cuda", on_gpu);
  Tensor before;
  TrainingEvents events;
  events.step = [&](const StepReport& r) {
    if (r.step != 3) return;
    // Spoils one row of the embedding after step 4 has been queued: step 5 fails.
    const Tensor weight = nn::parameters_of(trainer.model())[0].parameter->value;
    weight[0].copy_from(Tensor::full({16}, NAN));
    before = weight.detach().clone();
  };
  const auto go_on = [&] { trainer.run(events); };
  expect_error(go_on).names("loss").names("step 5").value("loss nan").value("gradient norm nan").names("no checkpoint");
  const Tensor after = nn::parameters_of(trainer.model())[0].parameter->value;
  for (const int64_t row : {1, 2}) CHECK(largest_difference(before[row], after[row]) == 0);
}

TEST_CASE("nan guard: on the device it finds the same as on the CPU, undoes an update, and changes no result") {
  if (no_gpu()) return;
  const Runs runs(
      {{"layers", "1"}, {"width", "16"}, {"heads", "1"}, {"context", "8"}, {"batch_size", "2"}, {"steps", "3"}});
  const Assignments guard = {{"nan_guard", "yes"}}, far = {{"learning_rate", "1e30"}, {"warmup_steps", "0"}};
  const auto found = [&](const std::string& name, const Assignments& settings) {
    expect_error([&] { runs.train(name, guard + far + settings); }).names("train").value("not finite").names("step");
    return read_report(replay_folder(runs.folder() / name));
  };
  const NonFiniteReport on_cpu = found("cpu", {}), on_device = found("cuda", on_gpu);
  CHECK(on_device.step == on_cpu.step);
  CHECK(on_device.call.operation == on_cpu.call.operation);
  CHECK(on_device.call.module == on_cpu.call.module);
  CHECK(on_device.call.outputs[0].stats.shape == on_cpu.call.outputs[0].stats.shape);

  const NonFiniteReport update = found("update", on_gpu + Assignments{{"lr_scales", "*=1e9"}});
  CHECK(update.step == 1);
  CHECK(update.call.direction == "update");
  Trainer again =
      runs.begin("update/replay", guard + far + on_gpu + Assignments{{"lr_scales", "*=1e9"}, {"resume", "yes"}});
  const std::optional<NonFiniteReport> shown = again.replay(false);
  REQUIRE(shown.has_value());
  CHECK(shown->call == update.call);

  const TrainingResult plain = runs.train("plain", on_gpu), guarded = runs.train("guarded", on_gpu + guard);
  for (const char* name : {"weights.safetensors", "optimizer.safetensors"})
    CHECK(runs.file(plain.checkpoint, name) == runs.file(guarded.checkpoint, name));
  CHECK(runs.metrics("plain") == runs.metrics("guarded"));
  expect_error([&] { runs.train("graph", guard + replayed); })
      .names("--nan_guard=yes")
      .value("step")
      .offers("--cuda_graph");
}

TEST_CASE("text generation on the device equals that on the CPU") {
  if (no_gpu()) return;
  const Runs runs(basic + Assignments{{"steps", "3"}});
  Trainer trainer = runs.begin("cpu", {});
  const std::vector<int32_t> start = {1, 2, 3};
  const SamplingSettings sampling = {.tokens = 20, .temperature = 0};
  auto& writer = model_as<LanguageModel>(trainer.model(), "test", "a language model");
  const std::vector<int32_t> on_cpu = generate(writer, start, sampling);
  nn::move(trainer.model(), Device::cuda);
  CHECK(generate(writer, start, sampling) == on_cpu);
}

TEST_CASE("every task and model trains and validates on the device with the CPU's losses") {
  if (no_gpu()) return;
  const std::string tests = ORRERY_SOURCE_DIR "/tests/models/";
  const Assignments small = {{"layers", "1"}, {"heads", "2"}, {"width", "16"}};
  struct Learned {
    Assignments common, own;  // own: after --data
  };
  const std::map<std::string, Learned> all = {
      {"stream",
       {{{"model", "stream"},
         {"context", "12"},
         {"cache_length", "24"},
         {"batch_size", "2"},
         {"attention", "softmax(span=adaptive_span(24, R=8))"},
         {"losses.span_penalty", "1e-3"}},
        small}},
      {"algorithmic",
       {{{"model", "gpt"}, {"task", "algorithmic"}, {"problem", "copy(length=4)"}, {"batch_size", "2"}}, small}},
      {"vit",
       {{{"model", "vit-fashion"}, {"batch_size", "2"}}, small + Assignments{{"data", tests + "images/fashion"}}}},
      {"resnet", {{{"model", "resnet"}, {"width", "4"}, {"batch_size", "4"}}, {{"data", tests + "images/shapes"}}}},
      {"translation",
       {{{"model", "translation-small"}},
        small + Assignments{{"data", tests + "translation/bible.tsv"},
                            {"source_column", "4"},
                            {"target_column", "3"},
                            {"tokenizer", "sentence_piece(vocabulary=200)"},
                            {"batch_tokens", "200"}}}}};
  for (const auto& [name, learned] : all) {
    const std::string task = name;
    CAPTURE(task);
    const Runs runs(learned.common + Assignments{{"steps", "3"}});
    runs.train("cpu", learned.own);
    const TrainingResult result = runs.train("cuda", learned.own + on_gpu);
    CHECK(result.steps_done == 3);
    CHECK(std::isfinite(result.validation_loss));
    CHECK(runs.loss_gap("cpu", "cuda") <= 1e-5);
  }
}

TEST_CASE("step inputs: each set of shapes has its own CUDA graph, captured once; all graphs share one memory pool") {
  if (no_gpu() || thread_sanitizer) return;
  StepInputsByShape steps(Device::cuda, true);
  const auto of = [](int64_t n, double value) {
    return std::vector<std::vector<Tensor>>{{Tensor::full(Shape{n}, value, Dtype::f32)}};
  };
  const Tensor total = Tensor::zeros(Shape{}, Dtype::f32, Device::cuda);
  const auto step = [&](const StepInputs& inputs) {
    return [&] { add_in_place(total, sum(inputs.batches[0][0].tensor())); };
  };
  StepInputs& three = steps.send(of(3, 1));
  steps.capture(three, step(three));
  three.graph->replay();
  StepInputs& five = steps.send(of(5, 10));
  CHECK(&five != &three);
  steps.capture(five, step(five));
  five.graph->replay();
  CHECK(&steps.send(of(3, 100)) == &three);  // the captured step reads the new numbers
  three.graph->replay();
  CHECK(total.item() == 3 + 50 + 300);
  CHECK(&three.graph->memory() == &five.graph->memory());
}

TEST_CASE("translation: steps of each shape are captured once; replayed steps are bit-identical to eager ones") {
  if (no_gpu() || thread_sanitizer) return;
  const Runs runs({{"model", "translation-small"}, {"layers", "1"}, {"heads", "2"}, {"width", "16"}});
  // Three batches per epoch: after the eager first step, every shape occurs at least twice.
  const Assignments pairs = {{"data", ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv"},
                             {"source_column", "4"},
                             {"target_column", "3"},
                             {"tokenizer", "sentence_piece(vocabulary=200)"},
                             {"batch_tokens", "3000"},
                             {"dropout", "0.1"},
                             {"steps", "8"}};
  const TrainingResult eager = runs.train("eager", pairs + on_gpu), replays = runs.train("graph", pairs + replayed);
  for (const char* name : {"weights.safetensors", "optimizer.safetensors"})
    CHECK(runs.file(eager.checkpoint, name) == runs.file(replays.checkpoint, name));
  CHECK(runs.metrics("eager") == runs.metrics("graph"));
  const Assignments two = pairs + replayed + Assignments{{"gradient_accumulation_steps", "2"}};
  const auto accumulate = [&] { runs.train("more", two); };
  expect_error(accumulate).names("--cuda_graph").offers("batches").names("gradient_accumulation_steps").value(2);
}

// Gradients and weights go through host memory, where they are added up in the order of one process.
TEST_CASE("two ranks on one device train with the bits of one") {
  for (const char* const kind : {"f32", "bf16", "normalization=batch"}) {
    CAPTURE(kind);
    const bool batch = std::string(kind) == "normalization=batch";
    Assignments common = {{"model", "gpt"},      {"layers", "1"},       {"heads", "2"},
                          {"width", "16"},       {"context", "8"},      {"batch_size", "2"},
                          {"steps", "3"},        {"warmup_steps", "1"}, {"gradient_accumulation_steps", "3"},
                          {"gradient_parts", "3"}, {"dropout", "0.1"},  {"dtype", batch ? "f32" : kind}};
    if (batch) common.emplace_back("normalization", "batch");
    const Runs runs(common);
    const std::string one = runs.train("one", on_gpu).checkpoint;
    std::string two;
    orrery::testing::on_thread_ranks(
        2,
        [&](Ranks& ranks) {
          Trainer trainer = runs.begin("two", on_gpu, &ranks);
          const std::string checkpoint = trainer.run().checkpoint;
          if (ranks.is_first()) two = checkpoint;
        },
        60, true);
    set_memory_limit(Device::cpu, 0);  // each rank has set it, and the order in which they end restores another
    for (const char* const file : {"weights.safetensors", "optimizer.safetensors"})
      CHECK(runs.file(one, file) == runs.file(two, file));
  }
}
