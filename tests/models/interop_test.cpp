// Import of weights, with the models of tests/golden/hugging_face.py and their logits computed by
// transformers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "models/architectures/gpt.h"
#include "models/interop/base/weight_format.h"
#include "tests/models/interop_models.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"
#include "tests/support/text.h"

namespace orrery::testing::interop_models {

std::string changed(const Folder& folder, const std::string& name, const std::function<void(nlohmann::json&)>& change) {
  const std::string copy = folder / name;
  std::filesystem::remove_all(copy);
  std::filesystem::copy(golden + name, copy);
  auto config = nlohmann::json::parse(read_file(copy + "/config.json"));
  change(config);
  write_file_atomically(copy + "/config.json", config.dump());
  return copy;
}

}  // namespace orrery::testing::interop_models

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing::interop_models;
using orrery::testing::contains;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::largest_difference;
using orrery::testing::Message;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> names = {"gpt2", "gpt2_own_head", "llama", "llama_tied"};

}  // namespace

TEST_CASE("interop: imported transformers models give transformers' logits, and export equal tensors") {
  for (const std::string& name : names) {
    CAPTURE(name);
    const Folder folder;
    const ImportReport report = imported(golden + name, folder / "run");
    REQUIRE(report.largest_difference.has_value());
    CHECK(*report.largest_difference <= 1e-5);
    CHECK(report.unused.empty());
    CHECK(report.tokenizer == "token_ids");
    const LoadedRun run = read_run(folder / "run");
    CHECK(report.parameters == nn::count_parameters(*run.model));
    CHECK(export_model(run.exported(), folder / "exported", "") == name.substr(0, name.find('_')));
    std::map<std::string, Tensor> before;
    for (const StoredTensor& each : stored_tensors(golden + name)) before.emplace(each.name, with_values(each).tensor);
    const std::vector<StoredTensor> after = stored_tensors(folder / "exported");
    CHECK(after.size() == before.size());
    for (const StoredTensor& each : after)
      CHECK(largest_difference(with_values(each).tensor, before.at(each.name)) == 0);
    imported(folder / "exported", folder / "again");
    CHECK(largest_difference(logits(*run.model), logits(*read_run(folder / "again").model)) == 0);
  }
}

TEST_CASE("interop: files next to the weights may be packed") {
  const Folder folder;
  const auto pack = [](const std::string& file) { REQUIRE(std::system(("gzip '" + file + "'").c_str()) == 0); };
  const auto same = [&](const std::string& name, std::initializer_list<const char*> files) {
    CAPTURE(name);
    const std::string from = changed(folder, name, [](nlohmann::json&) {});
    const ImportReport before = imported(from, folder / (name + "_plain"));
    for (const char* file : files) pack(from + "/" + file);
    const ImportReport after = imported(from, folder / (name + "_packed"));
    CHECK(after.format == before.format);
    CHECK(*after.largest_difference == *before.largest_difference);
  };
  same("gpt2", {"config.json"});
  same("llama", {"config.json", "model.safetensors.index.json"});
  const std::string vit = changed(folder, "vit", [](nlohmann::json&) {});
  write_file_atomically(vit + "/preprocessor_config.json",
                        R"({"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]})");
  for (const char* file : {"/config.json", "/preprocessor_config.json"}) pack(vit + file);
  imported(vit, folder / "vit_run");
  const TrainSettings settings = read_run(folder / "vit_run").settings;
  CHECK(setting_of<std::vector<double>>(settings.task_settings, "pixel_mean") == std::vector<double>{0.4, 0.5, 0.6});
  const std::string unknown = changed(folder, "gpt2", [](nlohmann::json& config) { config["model_type"] = "bert"; });
  pack(unknown + "/config.json");
  expect_error([&] { imported(unknown, folder / "refused"); }).names("config.json").names("model_type").value("bert");
}

TEST_CASE("interop: files of older versions of transformers are read") {
  const Folder folder;
  const std::string older = changed(folder, "llama_tied", [](nlohmann::json& config) {
    config.erase("rope_parameters");
    config["rope_theta"] = 500.0, config["rope_scaling"] = nullptr;
  });
  CHECK(*imported(older, folder / "older").largest_difference <= 1e-5);
  const std::string plain = changed(folder, "llama_tied", [](nlohmann::json& config) {
    config["rope_theta"] = 500, config["rope_scaling"] = {{"type", "default"}};
    config.erase("rope_parameters");
  });
  CHECK(*imported(plain, folder / "plain").largest_difference <= 1e-5);
}

// Expected bases: as transformers 5.23 reads config.json.
TEST_CASE("interop: if several rotary bases are given, the base that transformers uses is used") {
  const Folder folder;
  const auto base = [&](const nlohmann::json& more) {
    const std::string from = changed(folder, "llama", [&](nlohmann::json& config) {
      config.erase("rope_parameters"), config.erase("rope_theta");
      config.update(more);
    });
    fs::remove(from + "/logits.safetensors");
    fs::remove_all(folder / "run");
    imported(from, folder / "run");
    const TrainSettings settings = read_run(folder / "run").settings;
    const Spec position = settings.model_settings.as<GptSettings>().position;
    return parse_number("base", std::find_if(position.items.begin(), position.items.end(), [](const Spec::Item& item) {
                                  return item.key == "base";
                                })->value.name);
  };
  const nlohmann::json own = {{"rope_type", "default"}, {"rope_theta", 5.0}}, other = {{"rope_theta", 7.0}};
  CHECK(base({{"rope_scaling", own}}) == 5);
  CHECK(base({{"rope_scaling", own}, {"rope_parameters", other}, {"rope_theta", 9.0}}) == 5);
  CHECK(base({{"rope_scaling", {{"rope_type", "default"}}}, {"rope_parameters", other}, {"rope_theta", 9.0}}) == 9);
  CHECK(base({{"rope_scaling", {{"type", "default"}}}, {"rope_parameters", other}}) == 10000);
  CHECK(base({{"rope_scaling", nlohmann::json::object()}, {"rope_parameters", other}, {"rope_theta", 9.0}}) == 7);
  CHECK(base({{"rope_scaling", nullptr}, {"rope_parameters", {{"rope_type", "default"}}}, {"rope_theta", 9.0}}) == 9);
}

TEST_CASE("interop: alternative names of GPT-2's keys precede its own names, as in transformers") {
  const Folder folder;
  const std::map<std::string, std::string> common = {{"num_hidden_layers", "n_layer"},
                                                     {"num_attention_heads", "n_head"},
                                                     {"hidden_size", "n_embd"},
                                                     {"max_position_embeddings", "n_positions"}};
  const auto renamed = [&](bool both) {
    return imported(changed(folder, "gpt2",
                            [&](nlohmann::json& config) {
                              for (const auto& [name, own] : common) {
                                config[name] = config[own];
                                if (both)
                                  config[own] = 1;
                                else
                                  config.erase(own);
                              }
                            }),
                    folder / (both ? "both" : "alone"));
  };
  const ImportReport alone = renamed(false), both = renamed(true);
  CHECK(*alone.largest_difference <= 1e-5);
  CHECK(*both.largest_difference <= 1e-5);
  CHECK(both.notes.size() == alone.notes.size() + common.size());
  Message(join(both.notes)).names("'num_attention_heads'").value(2).names("'n_head'").value(1);
  expect_error([&] {
    imported(changed(folder, "gpt2", [](nlohmann::json& config) { config["num_attention_heads"] = 0; }), folder / "x");
  })
      .names("num_attention_heads")
      .value(0)
      .offers(1);
}

TEST_CASE("interop: nanoGPT's weights equal GPT-2's, untransposed and with the exact GELU") {
  const Folder folder;
  const std::string theirs =
      changed(folder, "gpt2", [](nlohmann::json& config) { config["activation_function"] = "gelu"; });
  imported(theirs, folder / "gpt2_run");
  std::vector<NamedTensor> tensors;
  for (const StoredTensor& each : stored_tensors(golden + "gpt2")) {
    const bool linear = contains(each.name, ".c_") && each.name.ends_with("weight");
    const Tensor numbers = with_values(each).tensor;
    tensors.push_back({"_orig_mod." + each.name, linear ? transpose(numbers) : numbers});
  }
  const std::string nanogpt = folder / "nanogpt";
  fs::create_directory(nanogpt);
  write_safetensors(nanogpt + "/model.safetensors", tensors, {});
  const nlohmann::json args = {{"n_layer", 2},     {"n_head", 2},  {"n_embd", 16},  {"block_size", 24},
                               {"vocab_size", 61}, {"bias", true}, {"dropout", 0.1}};
  write_file_atomically(nanogpt + "/config.json", args.dump());
  const ImportReport report = imported(nanogpt, folder / "nanogpt_run");
  CHECK(report.format == "nanogpt");
  CHECK(report.unused.empty());
  const LoadedRun one = read_run(folder / "gpt2_run"), other = read_run(folder / "nanogpt_run");
  CHECK(largest_difference(logits(*one.model), logits(*other.model)) == 0);
}

TEST_CASE("interop: tensors without the model's prefix, masks and a head that is stored twice") {
  const Folder folder;
  const std::string bare = changed(folder, "gpt2", [](nlohmann::json&) {});
  std::vector<NamedTensor> tensors;
  for (const StoredTensor& each : stored_tensors(bare))
    tensors.push_back({each.name.substr(12), with_values(each).tensor});
  REQUIRE(tensors.size() == 28);
  for (const NamedTensor& each : std::vector<NamedTensor>(tensors))
    if (each.name == "wte.weight") tensors.push_back({"lm_head.weight", each.tensor});
  tensors.push_back({"h.1.attn.bias", Tensor::zeros({1, 1, 4, 4})});
  tensors.push_back({"score.weight", Tensor::zeros({2})});
  write_safetensors(bare + "/model.safetensors", tensors);
  const ImportReport report = imported(bare, folder / "run");
  CHECK(*report.largest_difference <= 1e-5);
  std::map<std::string, std::string> unused(report.unused.begin(), report.unused.end());
  CHECK(unused.size() == 3);
  CHECK(unused.at("lm_head.weight") == "a copy of the embedding");
  CHECK(unused.at("h.1.attn.bias") == "a mask, not a weight");
  CHECK(unused.at("score.weight") == "not used by this model");

  const std::string llama = changed(folder, "llama_tied", [](nlohmann::json&) {});
  tensors.clear();
  for (const StoredTensor& each : stored_tensors(llama)) {
    REQUIRE(each.name.starts_with("model."));
    tensors.push_back({each.name.substr(6), with_values(each).tensor});
  }
  tensors.push_back({"layers.1.self_attn.rotary_emb.inv_freq", Tensor::zeros({2})});
  write_safetensors(llama + "/model.safetensors", tensors);
  const ImportReport of_llama = imported(llama, folder / "llama_run");
  CHECK(*of_llama.largest_difference <= 1e-5);
  REQUIRE(of_llama.unused.size() == 1);
  CHECK(of_llama.unused[0].second == "rotary angles, not weights");
}

TEST_CASE("interop: an adapter next to the weights is not read, and the report names it") {
  const Folder folder;
  const std::string from = changed(folder, "llama_tied", [](nlohmann::json&) {});
  const std::vector<std::string> without = imported(from, folder / "without").notes;
  write_file_atomically(from + "/adapter_config.json", R"({"peft_type": "LORA", "r": 8})");
  const std::vector<std::string> notes = imported(from, folder / "with").notes;
  REQUIRE(notes.size() == without.size() + 1);
  Message(notes[0]).names(from + "/adapter_config.json").value("not read").offers("merge_and_unload");
  for (const char* const file : {"/model.safetensors", "/config.json"}) {
    fs::remove(from + file);
    expect_error([&] { imported(from, folder / "none"); })
        .names(from)
        .value("adapter_config.json")
        .offers("merge_and_unload");
  }
}

TEST_CASE("interop: logits may differ by rounding errors of the dtype in which they are stored") {
  const Folder folder;
  std::map<std::string, Tensor> inputs;
  for (const StoredTensor& each : stored_tensors(golden + "gpt2/logits.safetensors"))
    inputs.emplace(each.name, each.name == "tokens" ? as_tokens(with_values(each)) : with_values(each).tensor);
  const Tensor& right = inputs.at("logits");
  const double largest = largest_difference(right, Tensor::zeros_like(right));
  const auto check_with = [&](double apart, Dtype dtype) {  // shifts a logit by this fraction of the largest
    std::vector<double> numbers = right.to_vector();
    numbers[7] += apart * largest;
    write_safetensors(folder / "logits",
                      std::vector<NamedTensor>{{"tokens", inputs.at("tokens")},
                                               {"logits", Tensor::from(right.shape(), numbers, dtype)}});
    fs::remove_all(folder / "run");
    return *import_model(golden + "gpt2", folder / "run", "", folder / "logits").largest_difference;
  };
  CHECK(check_with(0.0008, Dtype::f32) <= 1e-3 * largest);
  expect_error([&] { check_with(0.0015, Dtype::f32); }).names(folder / "logits").value("0.001").offers("float32");
  CHECK(check_with(0.02, Dtype::bf16) > 0.01 * largest);
  expect_error([&] { check_with(0.1, Dtype::bf16); }).names(folder / "logits").value("0.05").offers("float32");
  expect_error([&] { check_with(NAN, Dtype::f32); }).names(folder / "logits").value("nan");
  CHECK(!fs::exists(folder / "run"));
}

TEST_CASE("interop: weights that the described model does not have are logged") {
  const Folder folder;
  const auto fewer = [&](const char* name, const char* key, const nlohmann::json& value) {
    const std::string from = changed(folder, name, [&](nlohmann::json& config) { config[key] = value; });
    fs::remove(from + "/logits.safetensors");
    fs::remove_all(folder / "run");
    return join(imported(from, folder / "run").notes);
  };
  // A block of width 16 has 12 tensors: 12 width^2 + 13 width numbers.
  Message(fewer("gpt2", "n_layer", 1)).value(12).value(3280).names("transformer.h.1.");
  CHECK(!contains(fewer("gpt2", "n_layer", 2), "transformer."));
}
