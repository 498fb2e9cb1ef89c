// The memory of a run is estimated before it starts; a run that cannot fit is refused.
#include "models/training/memory_plan.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>

#include "models/architectures/gpt.h"
#include "models/training/trainer.h"
#include "tests/support/folder.h"
#include "tests/support/gpt_settings.h"
#include "tests/support/message.h"
#include "tests/support/small_text.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::Message;
using orrery::testing::write_small_text;

namespace {

using orrery::testing::gpt_settings;

struct Estimate {
  double estimate, peak;  // bytes of tensors: all kinds except data and program
};
Estimate estimate_run(const std::string& model, const Assignments& more, const char* steps = "1") {
  const Folder folder;
  Assignments all = {{"model", model},
                     {"data", write_small_text(folder)},
                     {"out", folder / "run"},
                     {"steps", steps},
                     {"evaluate_every", "0"}};
  all.insert(all.end(), more.begin(), more.end());
  release_cached(Device::cpu);
  const int64_t before = memory_use(Device::cpu).allocated;
  Trainer trainer(make_settings(all));
  const MemoryPlan& plan = trainer.memory_plan();
  CHECK(plan.parameters == nn::count_parameters(trainer.model()));
  // The plan assumes spans of maximal length; a run begins with short ones.
  for (const nn::NamedParameter& p : nn::parameters_of(trainer.model()))
    if (const double max_value = p.parameter->max_value; std::isfinite(max_value))
      nn::fill(p.parameter->value, nn::constant(max_value), {});
  trainer.run();
  return {static_cast<double>(plan.total() - plan.data - plan.program),
          static_cast<double>(memory_use(Device::cpu).peak - before)};
}
void check_estimate(const std::string& model, const Assignments& more = {}, const char* steps = "1") {
  const Estimate r = estimate_run(model, more, steps);
  CAPTURE(model);
  if (!more.empty()) CAPTURE(more[0].second);
  CAPTURE(r.estimate);
  CAPTURE(r.peak);
  CHECK(r.estimate < 1.5 * r.peak);
  CHECK(r.estimate > r.peak / 1.5);
}

Message refusal(const Assignments& more) {
  const Folder folder;
  Assignments all = {{"data", write_small_text(folder)}, {"out", folder / "run"}};
  all.insert(all.end(), more.begin(), more.end());
  const Message message = expect_error([&] { Trainer trainer(make_settings(all)); }).names("train").value("memory");
  CHECK(!std::filesystem::exists(folder / "run"));
  return message;
}

class Limit {
 public:
  explicit Limit(int64_t bytes) {
    release_cached(Device::cpu);
    set_memory_limit(Device::cpu, memory_use(Device::cpu).allocated + bytes);
  }
  ~Limit() { set_memory_limit(Device::cpu, 0); }
};

// Returns true if a run starts with this much memory for tensors; it must then end well.
bool trains_within(int64_t bytes, const Assignments& more) {
  const Folder folder;
  Assignments all = {{"data", write_small_text(folder)}, {"out", folder / "run"}, {"steps", "2"}};
  all.insert(all.end(), more.begin(), more.end());
  const Limit limit(bytes);
  std::optional<Trainer> trainer;
  try {
    trainer.emplace(make_settings(all));
  } catch (const Error&) {
    return false;
  }
  CHECK(trainer->run().steps_done == 2);
  return true;
}

// Returns processor time instead of wall time: other work may use the processor.
double seconds_of_work() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

TEST_CASE("memory plan: within a factor of 1.5 of the peak") {
  check_estimate("gpt-char-small");  // the quickstart's preset
  check_estimate("gpt-char-medium");
  for (const char* attention : {"sparsemax", "linear(relu)", "gau", "pointwise(relu)", "softmax(persistent=64)"})
    check_estimate("gpt-char-small", {{"attention", attention}, {"context", "128"}});
  for (const char* optimizer : {"sgd", "muon", "lion", "adagrad"})
    check_estimate("gpt-char-small", {{"optimizer", optimizer}});
  check_estimate("gpt-char-small", {{"dtype", "bf16"}});
  check_estimate("gpt-char-small", {{"dtype", "f64"}, {"layers", "9"}});
  check_estimate("gpt-char-small", {{"width", "512"}, {"heads", "8"}, {"vocabulary", "20000"}, {"batch_size", "2"}});
  check_estimate("gpt-char-small", {{"batch_size", "1"}, {"context", "1000"}, {"attention", "entmax15"}});
  // Three steps fill the cache of a stream.
  check_estimate("stream-char-small", {{"batch_size", "4"}, {"optimizer", "adagrad"}, {"grad_clip", "0"}}, "3");
  for (const char* batch : {"2", "8"})
    check_estimate("stream-char-all-attention", {{"batch_size", batch}, {"gradient_accumulation_steps", "2"}}, "3");
  check_estimate("gpt-char-small", {{"signal_propagation", "yes"}});
  check_estimate("gpt-char-small",
                 {{"signal_propagation", "yes"}, {"layers", "8"}, {"context", "512"}, {"batch_size", "2"}});
  check_estimate("gpt-char-small", {{"metrics", "all"}, {"context", "256"}});
  check_estimate("gpt-char-small", {{"nan_guard", "yes"}, {"gradient_accumulation_steps", "3"}});
  for (const char* parts : {"4", "8"})
    check_estimate("gpt-char-small", {{"gradient_parts", parts},
                                      {"gradient_accumulation_steps", "8"},
                                      {"width", "512"},
                                      {"batch_size", "1"}});
  check_estimate("vit-fashion", {{"data", ORRERY_SOURCE_DIR "/tests/models/images/fashion"}, {"batch_size", "32"}});
  check_estimate("resnet8", {{"data", ORRERY_SOURCE_DIR "/tests/models/images/fashion"}, {"batch_size", "32"}});
  check_estimate("translation-small", {{"data", ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv"},
                                       {"source_column", "4"},
                                       {"target_column", "3"},
                                       {"tokenizer", "sentence_piece(vocabulary=150)"},
                                       {"context", "256"}});
}

TEST_CASE("memory plan: parameters are counted without making the model") {
  TrainSettings settings;
  GptSettings& gpt = gpt_settings(settings);
  gpt.vocabulary = 65, gpt.layers = 4096, gpt.width = 2048;
  const double began = seconds_of_work();
  CHECK(count_parameters(settings, max_elements) ==
        65 * 2048LL + 64 * 2048LL + 4096 * (12 * 2048LL * 2048LL + 4 * 2048LL) + 2 * 2048LL);
  CHECK(!count_parameters(settings, 1'000'000));
  CHECK(!count_parameters(settings, 100'000'000'000));
  CHECK(seconds_of_work() - began < 2);
}

TEST_CASE("memory plan: a model that cannot fit is an error with its settings before anything is created") {
  const double began = seconds_of_work();
  refusal({{"layers", "4096"}, {"width", "65536"}, {"heads", "64"}}).names("layers 4096").names("width 65536");
  refusal({{"d_ff", "262144"}, {"width", "32768"}, {"heads", "64"}}).names("width 32768").names("d_ff 262144");
  refusal({{"batch_size", "16384"}, {"gradient_accumulation_steps", "4096"}, {"context", "4096"}})
      .names("batch_size 16384");
  {
    const Limit limit(20'000'000);
    refusal({{"layers", "40"}}).names("layers 40");
    refusal({{"optimizer", "adamw"}, {"layers", "12"}, {"batch_size", "1"}}).names("layers 12").names("batch_size 1");
    refusal({{"batch_size", "1000"}})
        .names("cpu")
        .names("layers 4, width 128, d_ff 512, vocabulary")
        .names("batch_size 1000, context 64, attention softmax, feed_forward dense(gelu_tanh)")
        .offers("lower");
    CHECK(memory_limit(Device::cpu) > 0);
  }
  {  // a head's running state: 4096 x 4096 numbers, 67 MB
    const Limit limit(50'000'000);
    refusal({{"attention", "linear"},
             {"layers", "1"},
             {"heads", "1"},
             {"width", "8"},
             {"batch_size", "1"},
             {"context", "8"},
             {"head_size", "4096"}})
        .value("more than")
        .names("one layer")
        .names("width 8, head_size 4096, d_ff 32");
  }
  CHECK(seconds_of_work() - began < 20);
}

TEST_CASE("memory plan: at every memory limit, a run is either rejected at once or trains to its end") {
  const std::vector<Assignments> runs = {
      {{"layers", "3"}, {"signal_propagation", "yes"}, {"context", "256"}, {"metrics", "all"}},
      {{"layers", "6"}, {"nan_guard", "yes"}, {"optimizer", "lion"}, {"gradient_accumulation_steps", "2"}},
      {{"layers", "6"}, {"gradient_parts", "4"}, {"batch_size", "2"}, {"gradient_accumulation_steps", "4"}},
      {{"layers", "3"}, {"dtype", "bf16"}, {"vocabulary", "8000"}, {"batch_size", "2"}},
      {{"layers", "3"}, {"optimizer", "sgd"}, {"batch_size", "1"}, {"context", "8"}, {"width", "512"}}};
  for (const Assignments& run : runs) {
    CAPTURE(run[1].first);
    int64_t refused = 0, trains = 0;
    for (int64_t limit = 16'000'000; limit < 500'000'000; limit += limit / 3)
      (trains_within(limit, run) ? trains : refused) = limit;
    CHECK(refused > 0);
    CHECK(trains > 0);
    CHECK(refused < trains);
  }
}

TEST_CASE("memory plan: the error message names the validation if it holds the most activations") {
  const Limit limit(40'000'000);
  refusal({{"layers", "1"},
           {"width", "32"},
           {"heads", "2"},
           {"context", "256"},
           {"batch_size", "1"},
           {"vocabulary", "2000"}})
      .names("activations of a validation").names("MB").names("free");
}

TEST_CASE("memory plan: the error message has the needed and the free memory") {
  const Limit limit(40'000'000);
  std::string message = refusal({{"layers", "12"}, {"signal_propagation", "yes"}}).names("cpu").message();
  std::erase(message, ',');  // of thousands
  CAPTURE(message);
  const auto number_before = [&](size_t unit) {
    return std::atoll(message.c_str() + message.rfind(' ', unit - 1) + 1);
  };
  REQUIRE(message.find(" MB") != message.npos);
  const int64_t needed = number_before(message.find(" MB")), free = number_before(message.rfind(" MB"));
  CHECK(needed >= free);
  CHECK(free >= 40);
}
