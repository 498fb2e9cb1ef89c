// Import and export of a vision transformer, with the model of tests/golden/hugging_face.py and its
// logits computed by transformers.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "models/data/images.h"
#include "models/interop/base/weight_format.h"
#include "models/training/run_folder.h"
#include "tests/models/interop_models.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"
#include "tests/support/text.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing::interop_models;
using orrery::testing::contains;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::largest_difference;
namespace fs = std::filesystem;

TEST_CASE("interop: a vision transformer of transformers gives transformers' logits, and exports equal tensors") {
  const Folder folder;
  const ImportReport report = imported(golden + "vit", folder / "run");
  REQUIRE(report.largest_difference.has_value());
  CHECK(*report.largest_difference <= 1e-5);
  CHECK(report.unused.empty());
  CHECK(report.classes == 3);
  const LoadedRun run = read_run(folder / "run");
  CHECK(restore_classes(run.tokenizer) == std::vector<std::string>{"a cat", "a dog", "neither"});
  CHECK(export_model(run.exported(), folder / "exported", "") == "vit");
  std::map<std::string, Tensor> before;
  for (const StoredTensor& each : stored_tensors(golden + "vit")) before.emplace(each.name, with_values(each).tensor);
  const std::vector<StoredTensor> after = stored_tensors(folder / "exported");
  CHECK(after.size() == before.size());
  for (const StoredTensor& each : after) CHECK(largest_difference(with_values(each).tensor, before.at(each.name)) == 0);
  CHECK(
      *import_model(folder / "exported", folder / "again", "", golden + "vit/logits.safetensors").largest_difference ==
      *report.largest_difference);
  CHECK(restore_classes(read_run(folder / "again").tokenizer) == restore_classes(run.tokenizer));

  const std::string vit = golden + "vit", of_text = golden + "gpt2/logits.safetensors";
  expect_error([&] { import_model(vit, folder / "x", "byte", ""); })
      .names(vit)
      .value("image model")
      .offers("--tokenizer");
  expect_error([&] { import_model(vit, folder / "x", "", of_text); }).names(of_text).value("'pixel_values'");
  const auto refused = [&](const std::string& key, const std::string& value) {
    TrainSettings other = run.settings;
    set_setting(other.model_settings, "vit", key, value);
    const ExportedModel exported = {other, *run.model, run.tokenizer};
    expect_error([&] { export_model(exported, folder / "out", "vit"); }).names("vit").value(key + "=" + value);
  };
  refused("pooling", "mean"), refused("normalization", "rms"), refused("attention", "pointwise(relu)");
}

TEST_CASE("interop: a vision transformer without biases of queries, keys and values, and its pixel scaling") {
  const Folder folder;
  const auto zeroed = [&](const std::string& name, bool there) {
    const std::string copy = changed(folder, "vit", [&](nlohmann::json& config) { config["qkv_bias"] = there; });
    std::vector<NamedTensor> tensors;
    for (const StoredTensor& each : stored_tensors(copy)) {
      const bool bias = contains(each.name, ".attention.attention.") && each.name.ends_with("bias");
      const Tensor numbers = with_values(each).tensor;
      if (!bias) tensors.push_back({each.name, numbers});
      if (bias && there) tensors.push_back({each.name, Tensor::zeros_like(numbers)});
    }
    write_safetensors(copy + "/model.safetensors", tensors, {});
    fs::remove(copy + "/logits.safetensors");  // computed with other biases
    fs::rename(copy, folder / name);
    return imported(folder / name, folder / (name + "_run"));
  };
  zeroed("with", true), zeroed("without", false);
  const auto weights = [&](const char* run) {
    return read_file(latest_checkpoint(folder / run) + "/weights.safetensors");
  };
  CHECK(weights("with_run") == weights("without_run"));

  const std::string copy = changed(folder, "vit", [](nlohmann::json&) {});
  const auto scaled = [&](const std::string& json) {
    write_file_atomically(copy + "/preprocessor_config.json", json);
    fs::remove_all(folder / "scaled");
    imported(copy, folder / "scaled");
    const TrainSettings settings = read_run(folder / "scaled").settings;
    return std::pair(setting_of<std::vector<double>>(settings.task_settings, "pixel_mean"),
                     setting_of<std::vector<double>>(settings.task_settings, "pixel_std"));
  };
  using Numbers = std::vector<double>;
  const std::string own = R"({"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4], )";
  CHECK(scaled(own + R"("do_normalize": true})") == std::pair(Numbers{0.4, 0.5, 0.6}, Numbers{0.2, 0.3, 0.4}));
  CHECK(scaled(own + R"("do_normalize": false})") == std::pair(Numbers{0, 0, 0}, Numbers{1, 1, 1}));
  expect_error([&] { scaled(R"({"image_mean": [0.4], "image_std": [0.2]})"); })
      .names("image_mean")
      .value("[0.4]")
      .offers(3);
  expect_error([&] { scaled(own + R"("rescale_factor": 1.0})"); }).names("rescale_factor").offers("1 / 255");
}
