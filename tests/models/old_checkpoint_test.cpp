// A checkpoint with former setting names (tests/models/old_checkpoint/make.sh) still generates, and
// its run resumes as it did with the program of that time.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/system/files.h"
#include "engine/tensor/safetensors.h"
#include "models/architectures/gpt.h"
#include "models/data/tokenizer.h"
#include "models/settings/settings_file.h"
#include "models/training/generation.h"
#include "models/training/run_folder.h"
#include "models/training/trainer.h"
#include "nn/attentions/base/attention.h"
#include "tests/support/folder.h"
#include "tests/support/gpt_settings.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::largest_difference;

namespace {

const std::string old = ORRERY_SOURCE_DIR "/tests/models/old_checkpoint/";
using orrery::testing::gpt_settings;

// Returns the settings of the old run, with `out` in the folder of this test.
TrainSettings settings_in(const Folder& folder, const Assignments& more = {}) {
  TrainSettings known;
  Assignments all = read_settings_file(old + "run/settings.toml", settings_of(known));
  for (const auto& one : Assignments{{"data", old + "text.txt"}, {"out", folder / "run"}, {"resume", "yes"}})
    all.push_back(one);
  all.insert(all.end(), more.begin(), more.end());
  return make_settings(all);
}

}  // namespace

TEST_CASE("an old checkpoint generates an unchanged text") {
  const CheckpointState state = read_state(latest_checkpoint(old + "run"));
  const auto tokenizer = restore_tokenizer(state.tokenizer);
  Gpt model(gpt_settings(make_settings(state.settings)));
  load_weights(latest_checkpoint(old + "run"), model);
  const std::vector<int32_t> tokens = generate(model, tokenizer->encode("We"), {.tokens = 40, .temperature = 1});
  CHECK(tokenizer->decode(tokens) + "\n" == read_file(old + "generated.txt"));
}

TEST_CASE("old run: resumes to the recorded losses and weights, and is saved under the current names") {
  const Folder folder;
  std::filesystem::copy(old + "run", folder / "run", std::filesystem::copy_options::recursive);
  Trainer trainer(settings_in(folder));
  CHECK(trainer.steps_done() == 2);
  std::map<int64_t, double> losses;
  TrainingEvents events;
  events.step = [&](const StepReport& report) { losses[report.step] = report.loss; };
  losses[0] = trainer.run(events).validation_loss;
  CHECK(trainer.steps_done() == 4);

  std::istringstream rows(read_file(old + "run/metrics.jsonl"));
  int compared = 0;
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row["step"] <= 2) continue;
    const bool validation = row.contains("validation_loss");
    const double expected = row[validation ? "validation_loss" : "loss"];
    CHECK(std::fabs(losses.at(validation ? 0 : row["step"].get<int64_t>()) - expected) <= 1e-12);
    ++compared;
  }
  CHECK(compared == 3);
  std::map<std::string, Tensor> end;
  for (const NamedTensor& t : read_safetensors(old + "end.safetensors").tensors) end.emplace(t.name, t.tensor);
  const auto parameters = nn::parameters_of(trainer.model());
  CHECK(parameters.size() == end.size());
  for (const nn::NamedParameter& p : parameters) {
    INFO(p.path);
    CHECK(largest_difference(p.parameter->value, end.at(p.path)) <= 1e-12);
  }

  const auto recorded = nlohmann::ordered_json::parse(read_file(folder / "run/step_000004/state.json")).at("settings");
  std::vector<std::string> keys, present;
  for (const auto& [key, setting] : recorded.items()) keys.push_back(key);
  for (const auto& [key, setting] : list_settings(TrainSettings())) present.push_back(key);
  CHECK(keys == present);
  CHECK(recorded["optimizer"] ==
        "adamw(beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.05, lr_scales=groups(thresholds=0.5))");
  const std::string toml = read_file(folder / "run/settings.toml");
  for (const char* line : {"\nlearning_rate = 0.02\n", "\nd_ff = 24\n", "\nkeep_checkpoints = 3\n",
                           "\nposition = \"rotary(partial_rotary_factor=0.5)\"\n",
                           "\noptimizer = \"adamw(weight_decay=0.05, beta2=0.95, "
                           "lr_scales=groups(thresholds=0.5))\"\n"})
    CHECK_MESSAGE(toml.find(line) != std::string::npos, line);
}

TEST_CASE("old run: resuming it as another model is an error with the current names") {
  const Folder folder;
  std::filesystem::copy(old + "run", folder / "run", std::filesystem::copy_options::recursive);
  const auto refusal = [&](const std::string& key, const std::string& value) {
    return expect_error([&] { Trainer trainer(settings_in(folder, {{key, value}})); });
  };
  refusal("inner", "32").names("d_ff=24").value(32).offers("orrery train");
  const std::string position = "position=rotary(base=10000, partial_rotary_factor=0.5, pairs=half_split)";
  refusal("position", "rotary").names(position).value("rotary").offers("orrery train");
  refusal("attention.own", "yes").names("attention").value("attend_to_self=no").offers("orrery train");
}

TEST_CASE("old checkpoint: with a fixed span it keeps its visibility of the token itself, now a named setting") {
  const Folder folder;
  auto state = nlohmann::json::parse(read_file(latest_checkpoint(old + "run") + "/state.json"));
  const auto attention = [&](const std::string& model, const std::string& value) -> std::string {
    state["settings"] = {{"model", model}, {"attention", value}};
    write_file_atomically(folder / "state.json", state.dump());
    for (const auto& [key, read] : read_state(folder / "").settings)
      if (key == "attention") return read;
    return "";
  };
  const auto with_own_and_span = [](const std::string& own, const std::string& span) {
    return "softmax(dropout=0, attend_to_self=" + own + ", span=" + span + ")";
  };
  CHECK(attention("gpt-char-small", with_own_and_span("default", "fixed(S=8)")) ==
        with_own_and_span("yes", "fixed(S=8)"));
  CHECK(attention("gpt", with_own_and_span("no", "fixed(S=8)")) == with_own_and_span("no", "fixed(S=8)"));
  CHECK(attention("stream-char-fixed", with_own_and_span("default", "fixed(S=8)")) ==
        with_own_and_span("no", "fixed(S=8)"));
  CHECK(attention("gpt", with_own_and_span("default", "none")) == with_own_and_span("default", "none"));
  const std::string learned = with_own_and_span("default", "adaptive_span(S=8, R=4)");
  CHECK(attention("gpt", learned) == learned);
  for (const char* span : {"fixed(8)", "adaptive_span(8)"})
    CHECK(print(nn::resolved_attention(parse_spec("softmax(span=" + std::string(span) + ")")))
              .find("attend_to_self=no") != std::string::npos);
}
