// Errors of checkpoints: each problem is reported with a way out, never skipped.
#include "models/training/checkpoint.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/system/hash.h"
#include "engine/tensor/safetensors.h"
#include "models/training/generation.h"
#include "models/training/resume.h"
#include "tests/support/gpt_settings.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

Message resume_fails(const Run& run, const Assignments& more = {}) {
  return expect_error([&] { run.resume(more); });
}
// Changes state.json and updates its hash, as another program might.
void change_state(const std::string& checkpoint, const std::function<void(Json&)>& change) {
  Json json = Json::parse(read_file(checkpoint + "/state.json"));
  change(json);
  json.erase("sha256");
  const std::string whole = json.dump();
  json["sha256"] = sha256(std::as_bytes(std::span(whole)));
  write(checkpoint + "/state.json", json.dump(2) + "\n");
}
// Changes the weights, or another file, and updates the hash.
void change_weights(const std::string& checkpoint, const std::function<void(std::vector<NamedTensor>&)>& change,
                    const std::string& file = "weights.safetensors") {
  const std::string path = checkpoint + "/" + file;
  std::vector<NamedTensor> tensors = read_safetensors(path).tensors;
  change(tensors);
  write_safetensors(path, tensors, {{"format", "pt"}});
  change_state(checkpoint, [&](Json& json) {
    json["files"][file] = {{"bytes", fs::file_size(path)}, {"sha256", sha256_of_file(path)}};
  });
}

}  // namespace

TEST_CASE("checkpoint: any flipped bit is an error with a way out, in training and in generation") {
  const Run run;
  run.train();
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string path = run.checkpoint(6) + "/" + name, whole = read_file(path);
    const bool weights_alone = name != std::string("optimizer.safetensors");
    for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 300) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      if (name == std::string("state.json") && Json::parse(flipped, nullptr, false) == Json::parse(whole)) continue;
      write(path, flipped);
      // `error_of` keeps hundreds of different messages out of the golden file.
      Message(error_of([&] { latest_checkpoint(run.out, weights_alone); }))
          .names(path)
          .names(run.checkpoint(4))
          .offers("--checkpoint=" + run.checkpoint(4))
          .offers(resume_command(run.out, {"--resume_from_previous=yes"}));
    }
    Message(run.resume_error()).names(path);
    write(path, whole);
  }
  CHECK(run.resume_error() == "no error");
}

TEST_CASE("checkpoint: resume_from_previous=yes uses the previous checkpoint and moves the damaged one away") {
  const Run run, whole;
  whole.train({{"steps", "8"}});
  run.train();
  const std::string weights = run.checkpoint(6) + "/weights.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  resume_fails(run).names(weights).value(fs::file_size(weights)).offers("--resume_from_previous=yes");
  CHECK(run.resume({{"resume_from_previous", "yes"}}).steps_done == 8);
  CHECK(fs::exists(run.checkpoint(6) + ".damaged/weights.safetensors"));
  CHECK(read_file(run.checkpoint(8) + "/weights.safetensors") ==
        read_file(whole.checkpoint(8) + "/weights.safetensors"));
  fs::remove(run.checkpoint(8) + "/state.json");
  fs::remove(run.checkpoint(6) + "/optimizer.safetensors");
  resume_fails(run, {{"resume_from_previous", "yes"}})
      .names(run.checkpoint(8) + "/state.json")
      .names("no checkpoint before");
}

TEST_CASE("checkpoint: files of different steps and invalid steps are errors") {
  const Run run;
  run.train();
  for (const char* name : {"weights.safetensors", "optimizer.safetensors"}) {
    const std::string path = run.checkpoint(6) + "/" + name, whole = read_file(path);
    write(path, read_file(run.checkpoint(4) + "/" + name));
    resume_fails(run).names(path).value(6).names("SHA-256").offers("--resume_from_previous=yes");
    write(path, whole);
  }
  const std::string path = run.checkpoint(6) + "/state.json", whole = read_file(path);
  write(path, read_file(run.checkpoint(4) + "/state.json"));
  resume_fails(run).names(path).value("step 4").offers("--resume_from_previous=yes");
  for (const char* step : {"-5", "5.7", "9223372036854775808", "9223372036854775807", "1e300", "\"6\"", "null"}) {
    write(path, whole);
    change_state(run.checkpoint(6), [&](Json& json) { json["step"] = Json::parse(step); });
    const std::string found = Json::parse(step).dump();
    resume_fails(run).names(path).names("step").value(found).offers("--resume_from_previous=yes");
    expect_error([&] { read_state(run.checkpoint(6)); }).names(path).names("step").value(found).offers("whole number");
  }
  for (const char* digits : {"abc", "zz"}) {
    write(path, whole);
    change_state(run.checkpoint(6), [&](Json& json) { json["settings"]["data"] = Json{{"bytes", digits}}; });
    expect_error([&] { read_state(run.checkpoint(6)); }).names(path).value(digits).offers("hexadecimal");
  }
  write(path, std::string(100'000, '['));
  resume_fails(run).names(path).names("damaged").offers("--resume_from_previous=yes");
}

TEST_CASE("checkpoint: the error for a missing tensor names it") {
  const Run run;
  run.train();
  const std::string checkpoint = run.checkpoint(6), name = "token_embedding.weight";
  change_weights(checkpoint, [&](std::vector<NamedTensor>& tensors) {
    REQUIRE(std::erase_if(tensors, [&](const NamedTensor& t) { return t.name == name; }) == 1);
  });
  Gpt model(gpt_settings(make_settings(read_state(checkpoint).settings)));
  expect_error([&] { load_weights(checkpoint, model); }).names("load").names(checkpoint).names(name).offers("settings");
}

TEST_CASE("checkpoint: tensors of another dtype than the run's are an error") {
  const Run run;
  run.train();
  for (const Dtype dtype : {Dtype::f64, Dtype::bf16, Dtype::i32}) {
    const Run other;
    fs::copy(run.out, other.out, fs::copy_options::recursive);
    change_weights(other.checkpoint(6), [&](std::vector<NamedTensor>& tensors) {
      tensors[0].tensor =
          dtype == Dtype::i32 ? Tensor::zeros(tensors[0].tensor.shape(), Dtype::i32) : tensors[0].tensor.to(dtype);
    });
    resume_fails(other).names("weights.safetensors").names("dtype").value(name(dtype)).offers("f32");
    Gpt model(gpt_settings(make_settings(read_state(other.checkpoint(6)).settings)));
    expect_error([&] { load_weights(other.checkpoint(6), model); }).names("dtype").value(name(dtype)).offers("f32");
  }
  change_weights(run.checkpoint(6), [](std::vector<NamedTensor>& tensors) {  // writes f16 by hand
    tensors[0].tensor = tensors[0].tensor.to(Dtype::bf16);
  });
  const std::string path = run.checkpoint(6) + "/weights.safetensors";
  std::string bytes = read_file(path);
  const size_t at = bytes.find("\"BF16\"");
  REQUIRE(at != std::string::npos);
  bytes.replace(at, 6, "\"F16\" ");
  write(path, bytes);
  change_state(run.checkpoint(6),
               [&](Json& json) { json["files"]["weights.safetensors"]["sha256"] = sha256_of_file(path); });
  resume_fails(run).names("weights.safetensors").names("dtype").value("f16").offers("f32");
}

TEST_CASE("checkpoint: another text or tokenizer is an error; allow_new_text=yes accepts the text") {
  const Run run;
  run.train();
  const std::string other = run.folder / "other.txt";
  write(other, read_file(run.text) + "one more line\n");
  resume_fails(run, {{"data", other}}).value(other).names(run.out).offers(run.text).offers("--allow_new_text=yes");
  resume_fails(run, {{"tokenizer", "byte"}}).names("tokenizer").value("character").value("byte").offers("--resume=");
  CHECK(run.resume({{"data", other}, {"allow_new_text", "yes"}}).steps_done == 8);
  resume_fails(run, {{"steps", "9"}}).value(run.text).names(run.out).offers(other);  // the run's text is now `other`
  const std::string moved = run.folder / "moved.txt";
  fs::rename(other, moved);
  CHECK(run.resume_error({{"steps", "9"}, {"data", moved}}) == "no error");
}

TEST_CASE("checkpoint: non-finite weights are neither written nor read") {
  const Run run;
  run.train();
  for (const double broken : {NAN, INFINITY, -INFINITY}) {
    Trainer trainer(run.settings({{"resume", "yes"}, {"steps", "8"}, {"keep", "1"}}));
    TrainingEvents events;
    events.step = [&](const StepReport& r) {
      const Tensor table = nn::parameters_of(trainer.model())[0].parameter->value;
      // No text of these steps reads this row of the embedding: only the checkpoint reveals it.
      if (r.step == 8) table[0].copy_from(Tensor::full({8}, broken));
    };
    expect_error([&] { trainer.run(events); }).value("step 8").offers("good checkpoint").offers(run.checkpoint(6));
    CHECK(latest_checkpoint(run.out) == run.checkpoint(6));
  }
  change_weights(run.checkpoint(6), [](std::vector<NamedTensor>& tensors) {
    tensors[1].tensor = tensors[1].tensor.clone();
    tensors[1].tensor.mutable_data<float>()[0] = NAN;
  });
  resume_fails(run).names("weights.safetensors").value("not finite").offers("earlier checkpoint");
  Gpt model(gpt_settings(make_settings(read_state(run.checkpoint(6)).settings)));
  expect_error([&] { load_weights(run.checkpoint(6), model); }).names("weights.safetensors").value("not finite");
  nn::initialize(model, 1);
  for (const nn::NamedParameter& p : nn::parameters_of(model))
    p.parameter->value.copy_from(Tensor::full(p.parameter->value.shape(), 3e38));
  expect_error([&] { generate(model, {1}, {.tokens = 3}); }).names("generate").value("not finite").offers("earlier");
}

TEST_CASE("checkpoint: a non-finite optimizer state is neither written nor read") {
  const Run run;
  run.train();
  const auto spoil = [](std::vector<NamedTensor>& tensors) {
    tensors[1].tensor = tensors[1].tensor.clone();
    tensors[1].tensor.mutable_data<float>()[0] = INFINITY;
  };
  change_weights(run.checkpoint(6), spoil, "optimizer.safetensors");
  resume_fails(run).names("optimizer.safetensors").value("not finite").offers("earlier checkpoint");
  // Squares of gradients of 1e20 overflow f32: these weights would silently stop changing.
  const CheckpointState state = read_state(run.checkpoint(6));
  const TrainSettings settings = make_settings(state.settings);
  Gpt model(gpt_settings(settings));
  nn::initialize(model, 1);
  nn::FlatParameters parameters(model);
  const auto optimizer = nn::make_optimizer(settings.optimizer, parameters);
  fs::create_directories(run.folder / "sound");
  write_checkpoint(run.folder / "sound", state, model, optimizer.get());
  const Tensor moments = optimizer->state().back().second;
  moments.copy_from(Tensor::full(moments.shape(), INFINITY));
  fs::create_directories(run.folder / "broken");
  expect_error<NonFiniteCheckpointError>(
      [&] { write_checkpoint(run.folder / "broken", state, model, optimizer.get()); });
}

TEST_CASE("checkpoint: without optimizer state, it can generate and start another run, but cannot be resumed") {
  const Run run;
  run.train({{"save_optimizer", "no"}, {"keep_checkpoints", "1"}, {"keep_best", "no"}});
  const std::string checkpoint = run.checkpoint(6);
  CHECK(fs::exists(checkpoint + "/weights.safetensors"));
  CHECK(!fs::exists(checkpoint + "/optimizer.safetensors"));
  CHECK(!fs::exists(run.checkpoint(4)));  // checkpoints without optimizer count as complete
  CHECK(latest_checkpoint(run.out) == checkpoint);
  resume_fails(run).names("train").value(checkpoint).names("optimizer").offers("--init_from=" + checkpoint);
  const Run another;
  CHECK(another.train({{"init_from", checkpoint}}).steps_done == 6);
}

TEST_CASE("checkpoint: a checkpoint whose weights give a non-finite loss does not replace a good one") {
  const Run run;
  run.train({{"steps", "4"}});
  // The step from 4 to 5 spoils the weights, which stay finite; the next loss does not.
  Message message = expect_error([&] {
    run.train({{"resume", "yes"},
               {"steps", "9"},
               {"keep", "1"},
               {"checkpoint_every", "1"},
               {"learning_rate", "1e30"},
               {"warmup_steps", "0"}});
  });
  const std::string good = latest_checkpoint(run.out);
  message.names("gradient norm").names(".damaged").names("good checkpoint").offers(good);
  Gpt model(gpt_settings(make_settings(read_state(good).settings)));
  load_weights(good, model);
  CHECK(error_of([&] { generate(model, {1}, {.tokens = 3}); }) == "no error");
}
