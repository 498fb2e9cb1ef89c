// Failing memory: each allocation on the GPU, or of pinned memory, fails in turn while a model
// trains, resumes or writes. Each failure gives an error message or has no effect. No more memory
// than before stays in use, and a resumed run has the bytes of an undisturbed one.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "engine/system/files.h"
#include "models/training/checkpoint.h"
#include "models/training/generation.h"
#include "models/training/trainer.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/folder.h"
#include "tests/support/small_text.h"
#if defined(EMULATE_CUDA)
#include "tests/support/failing_calls.h"
#include "tests/support/gpt_settings.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::Folder;

namespace {

namespace fs = std::filesystem;

const char* const scale = std::getenv("ORRERY_FAILURES");
const int64_t max_of_a_kind = scale && std::string(scale) == "all" ? INT64_MAX : thread_sanitizer ? 2 : 10;

// Returns the error message of f, or "no error": both are valid if memory is refused.
template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

class SmallRun {
 public:
  explicit SmallRun(bool graph) : text_(orrery::testing::write_small_text(folder_, 20)), graph_(graph) {}

  std::string train(bool resume) const {  // returns the error, or "no error"
    return error_of([&] { Trainer(settings(resume)).run(); });
  }
  TrainSettings settings(bool resume) const {
    return make_settings({{"layers", "1"},
                          {"width", "16"},
                          {"heads", "2"},
                          {"context", "8"},
                          {"batch_size", "2"},
                          {"steps", "4"},
                          {"warmup_steps", "1"},
                          {"checkpoint_every", "2"},
                          {"keep_checkpoints", "0"},
                          {"device", "cuda"},
                          {"cuda_graph", graph_ ? "yes" : "no"},
                          {"data", text_},
                          {"training_loss_tokens", "0"},
                          {"out", out()},
                          {"resume", resume ? "yes" : "no"}});
  }
  std::string out() const { return folder_ / "run"; }
  std::string checkpoint(int step) const { return out() + "/step_00000" + std::to_string(step); }
  // Returns both tensor files of the last checkpoint.
  std::string bytes() const {
    std::string all;
    for (const char* name : {"/weights.safetensors", "/optimizer.safetensors"}) all += read_file(checkpoint(4) + name);
    return all;
  }

 private:
  Folder folder_;
  std::string text_;
  bool graph_;
};

void nothing_fails() {
  for (cuda_on_cpu::FailingCalls* calls : {&cuda_on_cpu::device_allocations, &cuda_on_cpu::pinned_allocations})
    calls->at = 0, calls->calls = 0, calls->lasting = false;
  release_cached(Device::cuda);  // else a run would reuse blocks of an earlier one
}

std::set<int64_t> sampled_calls(int64_t count) {
  std::set<int64_t> all;
  const int64_t limit = std::min(count, max_of_a_kind);
  for (int64_t i = 0; i < limit; ++i) all.insert(limit == 1 ? 1 : 1 + i * (count - 1) / (limit - 1));
  return all;
}

// Returns the number of failed calls. `run` returns the error message; `after` checks the result.
template <class Run, class After>
int64_t fail_in_turn(const Run& run, const After& after) {
  int64_t tried = 0;
  for (cuda_on_cpu::FailingCalls* calls : {&cuda_on_cpu::device_allocations, &cuda_on_cpu::pinned_allocations}) {
    nothing_fails();
    REQUIRE(run() == "no error");
    after("no error");
    const int64_t count = calls->calls;
    for (const bool lasting : {false, true})
      for (const int64_t at : sampled_calls(count)) {
        nothing_fails();
        const int64_t allocated = memory_use(Device::cuda).allocated;
        calls->at = at, calls->lasting = lasting;
        const std::string error = run();
        nothing_fails();
        CAPTURE(at);
        CAPTURE(lasting);
        CAPTURE(error);
        if (error != "no error") Message(error).names("memory");
        CHECK(memory_use(Device::cuda).allocated == allocated);
        after(error);
        ++tried;
      }
  }
  return tried;
}

}  // namespace

TEST_CASE("failures: an allocation of device memory fails during training, and no checkpoint is lost") {
  for (const bool graph : {false, true}) {
    CAPTURE(graph);
    const SmallRun run(graph);
    nothing_fails();
    REQUIRE(run.train(false) == "no error");
    const std::string undisturbed = run.bytes();
    const auto begin_anew = [&] {
      fs::remove_all(run.out());
      return run.train(false);
    };
    const auto go_on = [&](const std::string& error) {
      if (error != "no error") CHECK(run.train(fs::exists(run.checkpoint(2))) == "no error");
      CHECK(run.bytes() == undisturbed);
    };
    CHECK(fail_in_turn(begin_anew, go_on) >= (thread_sanitizer ? 6 : 20));

    const auto resume = [&] {
      fs::remove_all(run.checkpoint(4));
      return run.train(true);
    };
    fail_in_turn(resume, [&](const std::string& error) {
      CHECK(fs::exists(run.checkpoint(2)));
      go_on(error);
    });
  }
}

TEST_CASE("failures: an allocation of device memory fails while a model generates text") {
  const SmallRun run(false);
  nothing_fails();
  REQUIRE(run.train(false) == "no error");
  Gpt model(orrery::testing::gpt_settings(Trainer(run.settings(true)).settings()));
  load_weights(run.checkpoint(4), model);
  const std::vector<int32_t> start = {1, 2, 3};
  const SamplingSettings sampling = {.tokens = 4, .temperature = 0};
  const std::vector<int32_t> expected = generate(model, start, sampling);
  std::vector<int32_t> written;
  const auto write = [&] {
    return error_of([&] {
      Gpt on_gpu(model.settings());
      load_weights(run.checkpoint(4), on_gpu);
      nn::move(on_gpu, Device::cuda);
      written = generate(on_gpu, start, sampling);
    });
  };
  fail_in_turn(write, [&](const std::string& error) {
    if (error == "no error") CHECK(written == expected);
  });
}

#endif
