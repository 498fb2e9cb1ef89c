// gradient_parts: a step's gradient is the sum of its parts in the order of a fixed tree.
#include <doctest/doctest.h>

#include <algorithm>

#include "engine/loops/tensor_sums.h"
#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "engine/tensor/storage.h"
#include "engine/types/usage_error.h"
#include "models/study/runs.h"
#include "models/training/checkpoint.h"
#include "models/training/run_plan.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

Assignments of_parts(int64_t micro_batches, int64_t parts, const Assignments& more = {}) {
  return with({{"gradient_accumulation_steps", std::to_string(micro_batches)},
               {"gradient_parts", std::to_string(parts)}},
              more);
}

using Tensors = std::vector<Tensor>;  // by parameter
Tensors gradients_of(nn::Module& model) {
  Tensors all;
  for (const nn::NamedParameter& p : nn::parameters_of(model)) all.push_back(p.parameter->value.grad().clone());
  return all;
}
bool equal(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return x.to_vector() == y.to_vector(); });
}

// Computes the gradient of micro-batches [begin, end) of the first step, added up one by one.
Tensors gradient_of(Trainer& trainer, int64_t begin, int64_t end) {
  const Dtype dtype = trainer.settings().dtype == "f64" ? Dtype::f64 : Dtype::f32;
  const auto fraction = 1.0 / static_cast<double>(trainer.settings().gradient_accumulation_steps);
  for (const nn::NamedParameter& p : nn::parameters_of(trainer.model())) p.parameter->value.zero_grad();
  for (int64_t micro = begin; micro < end; ++micro) {
    nn::ForwardPass pass;
    pass.training = true;
    const Tensor loss = trainer.task().loss(trainer.model(), trainer.task().batch(0, micro), pass);
    (loss * Tensor::full({}, fraction, dtype)).backward();
  }
  return gradients_of(trainer.model());
}
Tensors sum_of_parts(Trainer& trainer, int64_t begin, int64_t end) {
  const TrainSettings& s = trainer.settings();
  if (end - begin == 1)
    return gradient_of(trainer, s.gradient_accumulation_steps * begin / s.gradient_parts,
                       s.gradient_accumulation_steps * end / s.gradient_parts);
  int64_t first = 1;
  while (2 * first < end - begin) first *= 2;
  Tensors sum = sum_of_parts(trainer, begin, begin + first);
  const Tensors rest = sum_of_parts(trainer, begin + first, end);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum_of(sum[i], rest[i]);
  return sum;
}

}  // namespace

TEST_CASE("gradient parts: a step's gradient has the bits of plain recursion over the parts") {
  const Run run;
  for (const char* dtype : {"f32", "bf16", "f64"})
    for (const auto& [micro_batches, parts] :
         std::vector<std::pair<int64_t, int64_t>>{{5, 1}, {2, 2}, {5, 3}, {8, 8}, {12, 8}, {12, 12}}) {
      CAPTURE(std::string(dtype));
      const std::string count = std::to_string(micro_batches) + "/" + std::to_string(parts);
      CAPTURE(count);
      std::filesystem::remove_all(run.out);
      Trainer trainer(
          run.settings(of_parts(micro_batches, parts, {{"steps", "1"}, {"dtype", dtype}, {"dropout", "0"}})));
      const Tensors expected = sum_of_parts(trainer, 0, parts);
      trainer.run();
      CHECK(equal(gradients_of(trainer.model()), expected));
      if (parts > 2) CHECK(!equal(expected, gradient_of(trainer, 0, micro_batches)));
    }
}

TEST_CASE("gradient parts: one part has the bits of a run without the setting, and others nearly its losses") {
  const Run run;
  const Assignments eight = {{"gradient_accumulation_steps", "8"}};
  const auto weights = [&] { return read_file(run.checkpoint(6) + "/weights.safetensors"); };
  const auto train_anew = [&](const Assignments& settings) {
    std::filesystem::remove_all(run.out);
    return run.train(settings).validation_loss;
  };
  const double loss = train_anew(eight);
  const std::string before = weights();
  const std::vector<std::string> rows = rows_without_time(run.out);
  CHECK(train_anew(of_parts(8, 1)) == loss);
  CHECK(weights() == before);
  CHECK(rows_without_time(run.out) == rows);
  for (const int64_t parts : {2, 3, 8}) CHECK(train_anew(of_parts(8, parts)) == doctest::Approx(loss).epsilon(1e-5));
  CHECK(weights() != before);
}

TEST_CASE("gradient parts: runs are bit-identical for any threads, for streams and batch normalization too") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  const Assignments stream = {{"model", "stream-char-small"}, {"data", text}, {"layers", "1"}, {"width", "16"},
                              {"heads", "2"}, {"context", "8"}, {"batch_size", "2"}, {"optimizer", "adagrad"}},
                    image = {{"model", "resnet"}, {"data", ORRERY_SOURCE_DIR "/tests/models/images/shapes/train"},
                             {"width", "4"}, {"batch_size", "4"}, {"validation_fraction", "0.25"}};
  const int before = thread_count();
  for (const Assignments& kind : {stream, image}) {
    CAPTURE(kind[0].second);
    const auto settings = [&](const char* out, const Assignments& more) {
      return with(with(kind, of_parts(5, 3, {{"out", folder / out}, {"steps", "4"}, {"evaluate_every", "0"}})), more);
    };
    for (const char* out : {"one", "two"}) std::filesystem::remove_all(folder / out);
    train(settings("one", {{"threads", "1"}}));
    train(settings("two", {{"threads", "2"}}));
    set_thread_count(before);
    for (const char* file : {"/step_000004/weights.safetensors", "/step_000004/optimizer.safetensors"})
      CHECK(read_file(folder / (std::string("one") + file)) == read_file(folder / (std::string("two") + file)));
  }
}

TEST_CASE("gradient parts: a resumed run has the bits of an uninterrupted one, and its settings name the parts") {
  const Run whole("whole"), halves("halves");
  whole.train(of_parts(5, 3, {{"data", whole.text}, {"steps", "8"}}));
  halves.train(of_parts(5, 3, {{"data", whole.text}}));
  CHECK(setting_of(make_settings(read_state(halves.checkpoint(6)).settings), "gradient_parts") == "3");
  CHECK(read_file(halves.out + "/settings.toml").find("\ngradient_parts = 3\n") != std::string::npos);
  halves.resume(of_parts(5, 3, {{"data", whole.text}}));
  for (const char* file : {"/weights.safetensors", "/optimizer.safetensors"})
    CHECK(read_file(whole.checkpoint(8) + file) == read_file(halves.checkpoint(8) + file));
}

TEST_CASE("gradient parts: a checkpoint of an earlier version has one part, and its run keeps its id") {
  const CheckpointState state = read_state(ORRERY_SOURCE_DIR "/tests/models/old_names/gpt/step_000004");
  for (const auto& [key, value] : state.settings) CHECK(key != "gradient_parts");
  CHECK(make_settings(state.settings).gradient_parts == 1);
  const Run run;
  const std::string id = run_hash(run.settings(of_parts(4, 1)));
  CHECK(run_hash(run.settings({{"gradient_accumulation_steps", "4"}})) == id);
  CHECK(run_hash(run.settings(of_parts(4, 2))) != id);
}

TEST_CASE("gradient parts: more parts than micro-batches are wrong usage, also for a plan and a resumed run") {
  const Run run;
  const auto refused = [&](const Assignments& settings, int64_t parts, int64_t micro_batches) {
    for (const bool plan : {false, true})
      expect_error<UsageError>([&] {
        plan ? static_cast<void>(plan_run(run.settings(settings))) : static_cast<void>(Trainer(run.settings(settings)));
      })
          .names("gradient_parts")
          .value(parts)
          .names("gradient_accumulation_steps")
          .value(micro_batches)
          .offers("--gradient_parts=" + std::to_string(micro_batches))
          .offers("--gradient_accumulation_steps=" + std::to_string(parts));
  };
  refused(of_parts(2, 3), 3, 2);
  refused({{"gradient_parts", "2"}}, 2, 1);
  CHECK(!std::filesystem::exists(run.out));
  for (const char* parts : {"0", "-2", "4097"})
    expect_error([&] {
      run.settings(with(of_parts(4, 1), {{"gradient_parts", parts}}));
    })
        .names("gradient_parts")
        .value(parts);
  run.train(of_parts(4, 4));
  refused(of_parts(2, 4, {{"resume", "yes"}, {"steps", "8"}}), 4, 2);
  CHECK(run.resume(of_parts(2, 2)).steps_done == 8);
}

TEST_CASE("gradient parts: a trainer allocates 4 bytes a parameter for each buffer, as the plan counts them") {
  const Run run;
  const auto allocated = [&](int64_t parts, int64_t& planned) {
    release_cached(Device::cpu);
    const int64_t before = memory_use(Device::cpu).allocated;
    const Trainer trainer(run.settings(of_parts(12, parts, {{"width", "32"}})));
    planned = trainer.memory_plan().gradient_sums;
    return memory_use(Device::cpu).allocated - before;
  };
  int64_t planned = 0;
  const int64_t one = allocated(1, planned);
  CHECK(planned == 0);
  const int64_t parameters = Trainer(run.settings({{"width", "32"}})).memory_plan().parameters;
  for (const int64_t parts : {2, 3, 4, 7, 8, 12}) {
    const int64_t buffers = parts < 4 ? 1 : parts < 8 ? 2 : 3;
    const int64_t more = allocated(parts, planned) - one;
    CAPTURE(parts);
    CHECK(planned >= 4 * parameters * buffers);
    CHECK(static_cast<double>(more) == doctest::Approx(static_cast<double>(planned)).epsilon(0.05));
    CHECK(static_cast<double>(planned) == doctest::Approx(4.0 * parameters * buffers).epsilon(0.05));
  }
}
