// Import and export of weights, with the models of tests/golden/hugging_face.py and their logits
// computed by transformers.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "models/architectures/gpt.h"
#include "models/data/images.h"
#include "models/interop/base/hugging_face.h"
#include "models/interop/base/weight_format.h"
#include "models/model.h"
#include "models/training/run_folder.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"
#include "tests/support/text.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::contains;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::largest_difference;
using orrery::testing::Message;
namespace fs = std::filesystem;

namespace {

const std::string golden = ORRERY_SOURCE_DIR "/tests/golden/hugging_face/";
const std::vector<std::string> names = {"gpt2", "gpt2_own_head", "llama", "llama_tied"};

ImportReport imported(const std::string& from, const std::string& to) { return import_model(from, to, "", ""); }

struct LoadedRun {
  TrainSettings settings;
  std::string tokenizer;
  std::unique_ptr<nn::Module> model;
  ExportedModel exported() const { return {settings, *model, tokenizer}; }
};
LoadedRun read_run(const std::string& run) {
  const std::string checkpoint = latest_checkpoint(run);
  const CheckpointState state = read_state(checkpoint);
  LoadedRun read{make_settings(state.settings), state.tokenizer, nullptr};
  read.model = make_model(read.settings);
  load_weights(checkpoint, *read.model);
  return read;
}
// Makes a decoder with random weights that no checkpoint holds.
LoadedRun made(std::vector<std::pair<std::string, std::string>> changes) {
  changes.insert(changes.begin(), {{"model", "gpt"},
                                   {"layers", "2"},
                                   {"heads", "2"},
                                   {"width", "16"},
                                   {"context", "12"},
                                   {"vocabulary", "256"},
                                   {"tokenizer", "byte"}});
  LoadedRun run{make_settings(changes), R"({"name":"byte"})", nullptr};
  run.model = make_model(run.settings);
  int seed = 0;
  for (const nn::NamedParameter& p : nn::parameters_of(*run.model))
    p.parameter->value.copy_from(orrery::testing::random_tensor(p.parameter->value.shape(), ++seed, Dtype::f32));
  return run;
}
Tensor logits(nn::Module& model) {
  const NoGrad guard;
  nn::ForwardPass pass;
  return model(Tensor::from(Shape{1, 6}, std::vector<int32_t>{1, 4, 2, 8, 5, 7}), pass);
}

// Copies a golden folder and changes its config.json.
std::string changed(const Folder& folder, const std::string& name, const std::function<void(nlohmann::json&)>& change) {
  const std::string copy = folder / name;
  fs::remove_all(copy);
  fs::copy(golden + name, copy);
  auto config = nlohmann::json::parse(read_file(copy + "/config.json"));
  change(config);
  write_file_atomically(copy + "/config.json", config.dump());
  return copy;
}
Message refusal(const Folder& folder, const std::string& name, const std::string& key, const nlohmann::json& value) {
  const std::string from = changed(folder, name, [&](nlohmann::json& config) { config[key] = value; });
  const Message message = expect_error([&] { imported(from, folder / "refused"); });
  CHECK(!fs::exists(folder / "refused"));
  return message;
}

}  // namespace

TEST_CASE("exchange: transformers' models give transformers' logits, and go back as the same tensors") {
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

TEST_CASE("exchange: a vision transformer of transformers gives its logits, and goes back as the same tensors") {
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

TEST_CASE("exchange: a vision transformer without biases of queries, keys and values, and how its pixels are scaled") {
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

TEST_CASE("exchange: whatever lies beside the weights may be packed") {
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

TEST_CASE("exchange: what an older transformers wrote is read as well") {
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
TEST_CASE("exchange: of several bases of the angles the one counts that counts for transformers") {
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

TEST_CASE("exchange: GPT-2's keys have other names, which count before its own as for transformers") {
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

TEST_CASE("exchange: nanoGPT's weights are those of GPT-2, untransposed and with the exact GELU") {
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

TEST_CASE("exchange: tensors without the model's prefix, masks and a head that is stored twice") {
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
}

TEST_CASE("exchange: a folder that says what this program cannot do is refused with the key") {
  const Folder folder;
  const auto llama = [&](const char* key, const nlohmann::json& value) { return refusal(folder, "llama", key, value); };
  llama("hidden_act", "snake").names("config.json").names("'hidden_act'").value("\"snake\"").offers("gelu_new");
  const nlohmann::json linear = {{"type", "linear"}, {"factor", 2.0}};
  llama("rope_scaling", linear).names("'rope_scaling.type'").value("\"linear\"").offers("default");
  const nlohmann::json llama3 = {{"rope_type", "llama3"}, {"rope_theta", 1e4}};
  llama("rope_parameters", llama3).names("'rope_parameters.rope_type'").value("\"llama3\"").offers("default");
  llama("quantization_config", {{"bits", 4}}).names("'quantization_config'").value("{\"bits\":4}");
  llama("num_hidden_layers", "two").names("config.json").names("'num_hidden_layers'").offers("whole number");
  llama("num_hidden_layers", 3).names("'model.layers.2.input_layernorm.weight'");
  Message shapes = llama("intermediate_size", 41);
  shapes.names("'model.layers.0.mlp.gate_proj.weight'").value("(40, 16)").offers("(41, 16)");
  llama("vocab_size", 1000000).names(folder / "llama").value(1029632).value(7408);
  llama("model_type", "mamba").names("config.json").names("model_type").value("mamba").offers("gpt2");
  llama("tie_word_embeddings", "yes").names("'tie_word_embeddings'").offers("true").offers("false");
  const auto gpt2 = [&](const char* key) { return refusal(folder, "gpt2", key, false); };
  gpt2("scale_attn_weights").names("'scale_attn_weights'").value("false");
  gpt2("tie_word_embeddings").names("'tie_word_embeddings'").value("false").names("'lm_head.weight'").offers("true");
  expect_error([&] { imported(folder / "nothing", folder / "out"); }).names(folder / "nothing");
  expect_error([&] { HuggingFaceConfig(folder / "nothing"); }).names(folder / "nothing").offers("config.json");
}

TEST_CASE("exchange: a number out of its range is refused by the file's name and theirs") {
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

TEST_CASE("exchange: a tokenizer that is missing is one of numbers, one that is damaged is an error") {
  const Folder folder;
  const std::string byte_pairs = ORRERY_SOURCE_DIR "/tests/models/byte_pair/gpt2";
  const auto import_with = [&](const std::string& file, const std::string& content, const std::string& tokenizer) {
    const std::string from = changed(folder, "gpt2", [](nlohmann::json&) {});
    if (!file.empty()) write_file_atomically(from + "/" + file, content);
    return import_model(from, folder / "run", tokenizer, "");
  };
  const auto message = [&](const std::string& file, const std::string& content) {
    const Message found = expect_error([&] { import_with(file, content, ""); });
    CHECK(!fs::exists(folder / "run"));
    return found;
  };
  for (const char* const cut : {"{\"model\": {\"type\": \"BPE\", ", "", "{}"})
    message("tokenizer.json", cut).names("import").names("tokenizer.json").offers("--tokenizer=FOLDER");
  message("tokenizer.model", "no model").names("tokenizer.model").value("SentencePiece").offers("--tokenizer=FOLDER");
  const ImportReport missing = import_with("", "", "");
  CHECK(missing.tokenizer == "token_ids");
  Message(join(missing.notes)).names("tokenizer").value(folder / "gpt2");
  fs::remove_all(folder / "run");
  const ImportReport other = import_with("tokenizer.json", R"({"model": {"type": "Unigram"}})", "");
  CHECK(other.tokenizer == "token_ids");
  Message(join(other.notes)).names("tokenizer.json").names("\"type\"").value("\"Unigram\"");
  fs::remove_all(folder / "run");
  const ImportReport larger = import_with("tokenizer.json", "{", byte_pairs);
  CHECK(larger.tokenizer == "byte_pair");
  Message(join(larger.notes)).names("tokenizer").value(420).names("model").value(61);
}

TEST_CASE("exchange: the tokens that begin and end a text come back as they were") {
  const Folder folder;
  const std::string from = changed(folder, "llama", [](nlohmann::json& config) {
    config["bos_token_id"] = 3, config["eos_token_id"] = nlohmann::json::array({4, 5});
  });
  imported(from, folder / "run");
  const LoadedRun run = read_run(folder / "run");
  const auto tokenizer = restore_tokenizer(run.tokenizer);
  CHECK(tokenizer->begin() == 3);
  CHECK(tokenizer->end_of_text() == 4);
  CHECK(beginning_of_text(*tokenizer) == std::vector<int32_t>{3});
  export_model(run.exported(), folder / "exported", "");
  const auto config = nlohmann::json::parse(read_file(folder / "exported/config.json"));
  CHECK(config["bos_token_id"] == 3);
  CHECK(config["eos_token_id"] == nlohmann::json::array({4, 5}));
  imported(folder / "exported", folder / "again");
  CHECK(read_run(folder / "again").tokenizer == run.tokenizer);
  for (const nlohmann::json& ends : {nlohmann::json(7), nlohmann::json::array({7, 8})}) {
    const Folder others;
    fs::copy(from, others / "from");
    write_file_atomically(others / "from/generation_config.json", nlohmann::json{{"eos_token_id", ends}}.dump());
    imported(others / "from", others / "run");
    const LoadedRun first = read_run(others / "run");
    export_model(first.exported(), others / "exported", "");
    CHECK(nlohmann::json::parse(read_file(others / "exported/config.json"))["eos_token_id"] == 4);
    CHECK(nlohmann::json::parse(read_file(others / "exported/generation_config.json"))["eos_token_id"] == ends);
    imported(others / "exported", others / "again");
    CHECK(read_run(others / "again").tokenizer == first.tokenizer);
  }
  export_model(made({}).exported(), folder / "ours", "");
  CHECK(nlohmann::json::parse(read_file(folder / "ours/config.json"))["bos_token_id"].is_null());
}

TEST_CASE("exchange: documents end with the tokenizer's eos_token, and generation with the ids of config.json") {
  struct Case {
    const char *name, *end;
    int32_t token;
  };
  for (const Case& each : {Case{"gpt2_end_of_text", "<|endoftext|>", 0}, {"llama_bos", "</s>", 2}}) {
    CAPTURE(each.name);
    const Folder folder;
    const std::string from = folder / "from", exported = folder / "exported";
    fs::copy(ORRERY_SOURCE_DIR "/tests/cases/" + std::string(each.name), from);
    auto config = nlohmann::json::parse(read_file(from + "/config.json"));
    config["eos_token_id"] = {5, each.token};
    write_file_atomically(from + "/config.json", config.dump());
    imported(from, folder / "run");
    const LoadedRun run = read_run(folder / "run");
    const auto tokenizer = restore_tokenizer(run.tokenizer);
    CHECK(tokenizer->end_of_text() == each.token);
    CHECK(tokenizer->ends() == std::vector<int32_t>{5, each.token});
    export_model(run.exported(), exported, "");
    CHECK(nlohmann::json::parse(read_file(exported + "/tokenizer_config.json"))["eos_token"] == each.end);
    CHECK(nlohmann::json::parse(read_file(exported + "/generation_config.json"))["eos_token_id"] ==
          config["eos_token_id"]);
    imported(exported, folder / "again");
    const auto again = restore_tokenizer(read_run(folder / "again").tokenizer);
    CHECK(again->end_of_text() == each.token);
    CHECK(again->ends() == tokenizer->ends());
  }
}

TEST_CASE("exchange: an index that is wrong is refused") {
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

TEST_CASE("exchange: an import writes no second model into a run, and takes reference logits from elsewhere") {
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
  CHECK(!fs::exists(folder / "third"));
}

TEST_CASE("exchange: logits may differ by what rounding explains, in the dtype in which they are stored") {
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

TEST_CASE("exchange: weights that the model described has no place for are noted") {
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

TEST_CASE("exchange: ours go out where the format can say them, with zeros for biases that we lack") {
  const std::vector<std::pair<std::string, std::string>> llama = {{"position", "rotary(pairs=interleaved, base=300)"},
                                                                  {"normalization", "rms"},
                                                                  {"feed_forward", "gated(silu)"},
                                                                  {"attention_bias", "yes"},
                                                                  {"tied_head", "no"}};
  for (const auto& changes :
       {std::vector<std::pair<std::string, std::string>>{}, {{"normalization_bias", "no"}}, llama}) {
    const Folder folder;
    const LoadedRun run = made(changes);
    export_model(run.exported(), folder / "exported", "");
    const ImportReport report = imported(folder / "exported", folder / "again");
    CHECK(report.tokenizer == "byte");
    const Tensor before = logits(*run.model), after = logits(*read_run(folder / "again").model);
    CHECK(largest_difference(before, after) <= 1e-3 * largest_difference(before, Tensor::zeros_like(before)));
  }
}

TEST_CASE("exchange: ours are refused with the setting that the format cannot say, and nothing is left") {
  const auto refused = [](const std::vector<std::pair<std::string, std::string>>& changes,
                          const char* format = "gpt2") {
    const Folder folder;
    const Message message = expect_error([&] { export_model(made(changes).exported(), folder / "out", format); });
    CHECK(fs::is_empty(folder.path));
    return message;
  };
  for (const auto& [key, value] : std::map<std::string, std::string>{{"normalization", "dyt(alpha=1)"},
                                                                     {"final_normalization", "rms"},
                                                                     {"attention", "pointwise(relu)"},
                                                                     {"feed_forward", "gated(silu)"},
                                                                     {"embedding_scale", "learned(2)"},
                                                                     {"parallel", "yes"},
                                                                     {"norm_place", "post"},
                                                                     {"residual_gain", "0.5"},
                                                                     {"kv_heads", "1"},
                                                                     {"head_size", "4"},
                                                                     {"head_bias", "yes"},
                                                                     {"position", "alibi(learned=no)"}})
    refused({{key, value}}).names("gpt2").value(key + "=" + value);
  refused({}, "llama").names("llama").value("position=learned");
  refused({{"feed_forward", "dense(softplus)"}}).names("gpt2").value("feed_forward=dense(softplus)");
  for (const char* const position : {"alibi", "none", "sinusoidal"}) {
    Message message = refused({{"position", position}}, "").value(text("position=", position)).names("model=gpt");
    message.offers("gpt2").offers("position=learned").offers("llama").offers("position=rotary");
  }
  refused({}, "vit").names("vit").offers("class vit").value("model=gpt").value("class gpt");
  const TrainSettings net = make_settings({{"model", "resnet8"}, {"channels", "3"}, {"classes", "2"}});
  const auto resnet = make_model(net);
  const auto export_net = [&] { export_model({net, *resnet, "[]"}, "/nowhere/out", ""); };
  expect_error(export_net).names("model=resnet8").value("class resnet").offers("gpt2");
  const Folder folder;
  const std::string there = folder.path.string();
  expect_error([&] { export_model(made({}).exported(), there, ""); }).names(there).offers("--out");
}

namespace {

// Writes a llama2.c file with the weights of our model, following the description in run.c.
void write_llama2c(const std::string& path, const LoadedRun& run, bool second_version) {
  const auto& s = run.settings.model_settings.as<GptSettings>();
  std::map<std::string, std::vector<float>> ours;
  for (const nn::NamedParameter& p : nn::parameters_of(*run.model)) {
    const std::vector<double> numbers = p.parameter->value.to_vector();
    ours[p.path].assign(numbers.begin(), numbers.end());
  }
  const auto c = static_cast<size_t>(s.width), keys = c / 2, inner = static_cast<size_t>(s.d_ff) * c;
  std::string bytes;
  const auto whole = [&](int64_t number) {
    const auto four = static_cast<int32_t>(number);
    bytes.append(reinterpret_cast<const char*>(&four), 4);
  };
  const auto put = [&](const std::string& path_in_model, size_t begin = 0, size_t count = 0) {
    const std::vector<float>& all = ours.at(path_in_model);
    bytes.append(reinterpret_cast<const char*>(all.data() + begin), 4 * (count ? count : all.size()));
  };
  const auto each = [&](const std::string& part, size_t begin = 0, size_t count = 0) {
    for (int64_t i = 0; i < s.layers; ++i) put("blocks." + std::to_string(i) + "." + part, begin, count);
  };
  if (second_version) whole(0x616b3432), whole(1);
  for (const int64_t number : {s.width, s.d_ff, s.layers, s.heads, s.kv_heads,
                               s.tied_head || second_version ? s.vocabulary : -s.vocabulary, s.context})
    whole(number);
  if (second_version) bytes.push_back(static_cast<char>(s.tied_head)), bytes.resize(256);
  const std::string qkv = "attention.query_key_value.weight";
  const auto matrices = [&] {
    each(qkv, 0, c * c), each(qkv, c * c, keys * c), each(qkv, (c + keys) * c, keys * c);
    each("attention.output.weight");
  };
  const auto inner_matrices = [&] {
    each("feed_forward.input.weight", 0, inner), each("feed_forward.output.weight");
    each("feed_forward.input.weight", inner, inner);
  };
  if (second_version) {
    each("attention_norm.weight"), each("feed_forward_norm.weight"), put("norm.weight"), put("token_embedding.weight");
    matrices(), inner_matrices();
  } else {
    put("token_embedding.weight"), each("attention_norm.weight"), matrices();
    each("feed_forward_norm.weight"), inner_matrices(), put("norm.weight");
    bytes.append(static_cast<size_t>(4 * s.context * s.width / s.heads), '\0');
  }
  if (!s.tied_head) put("head.weight");
  write_file_atomically(path, bytes);
}

}  // namespace

TEST_CASE("exchange: llama2.c's files, of both versions, tied or not, with grouped heads") {
  for (const char* tied : {"yes", "no"})
    for (const bool second : {false, true}) {
      const Folder folder;
      const LoadedRun run = made({{"position", "rotary(pairs=interleaved)"},
                                  {"normalization", "rms(epsilon=1e-5)"},
                                  {"feed_forward", "gated(silu)"},
                                  {"d_ff", "24"},
                                  {"heads", "4"},
                                  {"kv_heads", "2"},
                                  {"tied_head", tied}});
      write_llama2c(folder / "x.bin", run, second);
      const ImportReport report = imported(folder / "x.bin", folder / "run");
      CHECK(report.unused.size() == (second ? 0 : 2));
      CHECK(largest_difference(logits(*run.model), logits(*read_run(folder / "run").model)) == 0);
      const std::string bytes = read_file(folder / "x.bin");
      write_file_atomically(folder / "short.bin", bytes.substr(0, bytes.size() - 4));
      expect_error([&] { imported(folder / "short.bin", folder / "out"); })
          .names(folder / "short.bin")
          .value(bytes.size() - 4)
          .value(2)
          .offers(bytes.size());
    }
  const Folder folder;
  write_file_atomically(folder / "x.bin", std::string(1000, 'x'));
  expect_error([&] { imported(folder / "x.bin", folder / "out"); }).names(folder / "x.bin").value("llama2.c");
}
