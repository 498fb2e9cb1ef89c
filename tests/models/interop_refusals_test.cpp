// Imports that are refused: unsupported configurations, numbers out of range, wrong indices and runs
// that exist.
#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/tensor/safetensors.h"
#include "models/interop/base/hugging_face.h"
#include "models/interop/base/weight_format.h"
#include "tests/models/interop_models.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing::interop_models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::Message;
namespace fs = std::filesystem;

namespace {

Message refusal(const Folder& folder, const std::string& name, const std::string& key, const nlohmann::json& value) {
  const std::string from = changed(folder, name, [&](nlohmann::json& config) { config[key] = value; });
  const Message message = expect_error([&] { imported(from, folder / "refused"); });
  CHECK(!fs::exists(folder / "refused"));
  return message;
}

}  // namespace

TEST_CASE("interop: the error for a folder with an unsupported option names the key") {
  const Folder folder;
  const auto llama = [&](const char* key, const nlohmann::json& value) { return refusal(folder, "llama", key, value); };
  llama("hidden_act", "snake").names("config.json").names("'hidden_act'").value("\"snake\"").offers("gelu_new");
  const nlohmann::json linear = {{"type", "linear"}, {"factor", 2.0}};
  llama("rope_scaling", linear).names("'rope_scaling.type'").value("\"linear\"").offers("default");
  const nlohmann::json llama3 = {{"rope_type", "llama3"}, {"rope_theta", 1e4}};
  llama("rope_parameters", llama3).names("'rope_parameters.rope_type'").value("\"llama3\"").offers("default");
  llama("quantization_config", {{"bits", 4}}).names("'quantization_config'").value("{\"bits\":4}");
  llama("num_hidden_layers", "two")
      .names("config.json")
      .names("'num_hidden_layers'")
      .value("two")
      .offers("whole number");
  llama("num_hidden_layers", 3).names("'model.layers.2.input_layernorm.weight'");
  Message shapes = llama("intermediate_size", 41);
  shapes.names("'model.layers.0.mlp.gate_proj.weight'").value("(40, 16)").offers("(41, 16)");
  llama("vocab_size", 1000000).names(folder / "llama").value(1029632).value(7408);
  llama("model_type", "mamba").names("config.json").names("model_type").value("mamba").offers("gpt2");
  llama("tie_word_embeddings", "yes").names("'tie_word_embeddings'").value("yes").offers("true").offers("false");
  const auto gpt2 = [&](const char* key) { return refusal(folder, "gpt2", key, false); };
  gpt2("scale_attn_weights").names("'scale_attn_weights'").value("false");
  gpt2("tie_word_embeddings").names("'tie_word_embeddings'").value("false").names("'lm_head.weight'").offers("true");
  expect_error([&] { imported(folder / "nothing", folder / "out"); }).names(folder / "nothing");
  expect_error([&] { HuggingFaceConfig(folder / "nothing"); }).names(folder / "nothing").offers("config.json");
}

TEST_CASE("interop: the error for a number out of range has the file and the source's name") {
  const Folder folder;
  const auto check_limit = [&](const char* name, const char* key, int64_t value, int64_t limit) {
    refusal(folder, name, key, value).names("config.json").names(key).value(value).offers(limit);
  };
  check_limit("llama", "num_attention_heads", -4, 1);
  check_limit("gpt2", "n_layer", 0, 1);
  check_limit("gpt2", "n_positions", 1 << 30, 1 << 24);
  check_limit("gpt2", "layer_norm_epsilon", -1, 0);
  check_limit("vit", "patch_size", -2, 1);
}

TEST_CASE("interop: an invalid index has an error message") {
  const Folder folder;
  const auto with_index = [&](const std::function<void(nlohmann::json&)>& change) {
    const std::string from = changed(folder, "llama", [](nlohmann::json&) {}),
                      path = from + "/model.safetensors.index.json";
    auto index = nlohmann::json::parse(read_file(path));
    change(index["weight_map"]);
    write_file_atomically(path, index.dump());
    return expect_error([&] { imported(from, folder / "refused"); });
  };
  with_index([](auto& map) { map["x"] = "../s.safetensors"; }).value("../s.safetensors").offers("same folder");
  with_index([](auto& map) { map["x"] = map["model.norm.weight"]; }).names("'x'").value("model-00003-of-00003");
  with_index([](auto& map) { map = 3; }).names("model.safetensors.index.json").names("'weight_map'");
  with_index([](auto& map) { map["x"] = "model-9.safetensors"; }).names("model-9.safetensors").value("No such file");
  with_index([](auto& map) { map["x"] = 3; }).names("model.safetensors.index.json").names("'x'").offers("in quotes");
  const auto twice = [&](auto& map) {
    fs::copy_file(folder / "llama/model-00001-of-00003.safetensors", folder / "llama/again.safetensors");
    map["x"] = "again.safetensors";
  };
  with_index(twice).names(folder / "llama").names("model.embed_tokens").value("model-00001").offers("remove it");
}

TEST_CASE("interop: an import does not overwrite a run, and reads reference logits from another file") {
  const Folder folder;
  imported(golden + "gpt2", folder / "run");
  expect_error([&] { imported(golden + "gpt2", folder / "run"); })
      .names(folder / "run")
      .value("checkpoints")
      .offers("--out");
  const std::string other = golden + "llama/logits.safetensors";
  expect_error([&] { import_model(golden + "gpt2", folder / "other", "", other); })
      .names(other)
      .value("0.001")
      .offers("leave this file out");
  CHECK(!fs::exists(folder / "other"));
  write_safetensors(folder / "x", std::vector<NamedTensor>{{"tokens", Tensor::zeros({1, 2})}});
  expect_error([&] { import_model(golden + "gpt2", folder / "third", "", folder / "x"); })
      .names(folder / "x")
      .value("'logits'");
  write_safetensors(folder / "y", std::vector<NamedTensor>{{"tokens", Tensor::zeros({1, 2})},
                                                           {"logits", Tensor::zeros({1, 3, 61})}});
  expect_error([&] { import_model(golden + "gpt2", folder / "third", "", folder / "y"); })
      .names(folder / "y")
      .value("(1, 2)")
      .value("(1, 3, 61)")
      .offers("(B, T, 61)");
  CHECK(!fs::exists(folder / "third"));
}
