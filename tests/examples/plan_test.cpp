// orrery train --plan: the plan of a run agrees with the run, and nothing is written.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/system/folder_lock.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

Json planned(const Words& words, int code = 0) {
  const Outcome outcome = run_orrery(words + Words{"--plan=yes", "--json=yes"});
  CHECK_MESSAGE(outcome.code == code, outcome.err);
  return Json::parse(outcome.out);
}

}  // namespace

TEST_CASE("plan: memory, time, data, parameters and FLOPs agree with the run") {
  const Folder folder;
  const Words words = train_tiny(folder, "run", {"--layers=3", "--gradient_accumulation_steps=2"});
  const Outcome plan = run_orrery(words + Words{"--plan"});
  CHECK_MESSAGE(plan.code == 0, plan.err);
  Message(plan.out)
      .names("parameters")
      .value("embedding")
      .value("attention")
      .value("feed-forward")
      .value("norm")
      .names("training tokens")
      .value("for validation")
      .names("memory")
      .value("MB are free")
      .names("time")
      .value("4 steps")
      .value("FLOPs per step");
  const Json json = planned(words);
  CHECK(!fs::exists(folder / "run"));

  REQUIRE(is_complete(run_orrery(words)));
  int64_t parts = 0;
  for (const auto& [part, count] : json["parameters"].items())
    if (part != "total") parts += count.get<int64_t>();
  CHECK(json["parameters"]["total"] == parts);
  const Json shown = Json::parse(run_orrery({"show", folder / "run", "--json"}).out);
  CHECK(json["parameters"]["total"] == shown["numbers"]);
  std::istringstream rows(read_file(folder / "run/metrics.jsonl"));
  std::string row;
  REQUIRE(std::getline(rows, row));
  CHECK(json["flops_per_step"].get<double>() / 2 ==
        doctest::Approx(Json::parse(row)["multiply_adds"].get<double>()).epsilon(0.01));
  CHECK(json["data"]["units_per_step"] == 32);  // 2 micro-batches of 2 sequences of 8
  CHECK(json["time"]["steps"] == 4);
  CHECK(json["memory"]["total_bytes"].get<int64_t>() > 0);
  CHECK(json["can_start"] == true);

  const Json resumed = planned({"train", "--resume=" + (folder / "run"), "--steps=10"});
  CHECK(resumed["time"]["steps"] == 6);
  CHECK(!fs::exists(folder / "run/.orrery.lock"));
}

TEST_CASE("plan: a run that does not fit is planned as far as possible, with exit code 1") {
  const Folder folder;
  const Words words = train_tiny(folder, "run", {"--width=2048", "--layers=4096"});
  const Json json = planned(words, 1);
  CHECK(json["can_start"] == false);
  CHECK(contains(json["problem"].get<std::string>(), "does not fit"));
  CHECK(json["memory"]["free_bytes"].get<int64_t>() > 0);
  CHECK(json["parameters"]["total"].get<int64_t>() > 100'000'000'000);
  CHECK(json["data"]["unit"] == "tokens");
  const Outcome text = run_orrery(words + Words{"--plan"});
  expect_error(text).names("train").value("does not fit").names("width 2048");
  Message(text.out).names("memory").value("MB are free");
  const Words too_long = {"--layers=4096", "--width=64", "--context=32", "--steps=1000000000", "--plan"};
  expect_error(run_orrery(train_tiny(folder, "run", too_long))).names("train").value("years").offers("steps");
  CHECK(!fs::exists(folder / "run"));
}

TEST_CASE("plan: a run that would be refused at once cannot start") {
  const Folder folder;
  REQUIRE(is_complete(run_orrery(train_tiny(folder, "run"))));
  const auto problem = [&](const std::string& out) {
    const Json json = planned(train_tiny(folder, "run", {"--out=" + out}), 1);
    CHECK(json["can_start"] == false);
    CHECK(json["parameters"]["total"].get<int64_t>() > 0);  // the rest of the plan is made
    return Message(json["problem"].get<std::string>());
  };
  problem(folder / "run").names("already holds a run").offers("--out").offers("--resume=" + (folder / "run"));
  problem(folder / "text.txt/run").names(folder / "text.txt/run").value("Not a directory").offers("--out");
  folder.write("other/settings.toml", "mine");
  problem(folder / "other").offers("--out");
  CHECK(read_file(folder / "other/settings.toml") == "mine");
  {
    const std::string locked = folder / "locked";
    const orrery::FolderLock lock(locked);
    problem(locked).names(locked).value("in use").offers("--out");
  }
  CHECK(!fs::exists(folder / "locked"));

  // Wrong settings end the plan as they end the run, with the same words.
  fs::remove_all(folder / "free");
  for (const char* const wrong : {"--lr_scales=a", "--lr_scales=zz*=2", "--weight_decay_rules=zz*=no", "--out=",
                                  "--schedule=cosine(speed=2)", "--metrics=foo"}) {
    CAPTURE(wrong);
    const Words words = train_tiny(folder, "run", {"--out=" + (folder / "free"), wrong});
    const Message of_plan = expect_error(run_orrery(words + Words{"--plan"}), 2);
    CHECK(of_plan.message() == expect_error(run_orrery(words), 2).message());
  }
  const Words other_width =
      train_tiny(folder, "run", {"--out=" + (folder / "free"), "--init_from=" + (folder / "run")});
  const Outcome plan = run_orrery(other_width + Words{"--width=32", "--plan"});
  expect_error(plan, 1).names("token_embedding.weight").value("(15, 16)").offers("(15, 32)");
  CHECK(!fs::exists(folder / "free"));
}

TEST_CASE("plan: a resumed run is planned from the checkpoint that the run would resume") {
  const Folder folder;
  REQUIRE(is_complete(run_orrery(train_tiny(folder, "run", {"--checkpoint_every=2"}))));
  std::filesystem::resize_file(folder / "run/step_000004/optimizer.safetensors", 100);
  const Words words = {"train", "--resume=" + (folder / "run"), "--steps=10"};
  expect_error(run_orrery(words + Words{"--plan"}), 1).names("step_000004").value("damaged").offers("step_000002");
  CHECK(planned(words + Words{"--resume_from_previous=yes"})["time"]["steps"] == 8);
  CHECK(fs::exists(folder / "run/step_000004"));  // the plan renames nothing
}
