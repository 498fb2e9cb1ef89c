// Folders of vision transformers and related models as trainers write them: extra or missing files,
// sizes as lists, and files that do not hold the weights.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/tensor/safetensors.h"
#include "models/data/decoded_image.h"
#include "models/interop/base/weight_format.h"
#include "models/model.h"
#include "models/settings/settings_file.h"
#include "models/training/run_folder.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::find_word;
using orrery::testing::Folder;
namespace fs = std::filesystem;

namespace {

const std::string cases = ORRERY_SOURCE_DIR "/tests/cases/", golden = ORRERY_SOURCE_DIR "/tests/golden/hugging_face/",
                  numeric = cases + "numeric_classes/model";

// Copies a folder and changes its JSON file `name`.
std::string changed(const Folder& folder, const std::string& from, const std::string& name,
                    const std::function<void(nlohmann::json&)>& change) {
  const std::string copy = folder / "theirs";
  fs::remove_all(copy);
  fs::copy(from, copy);
  auto json = nlohmann::json::parse(read_file(copy + "/" + name));
  change(json);
  write_file_atomically(copy + "/" + name, json.dump());
  return copy;
}
ImportReport imported(const Folder& folder, const std::string& from) {
  fs::remove_all(folder / "run");
  return import_model(from, folder / "run", "", "");
}
template <class T>
T task_setting(const Folder& folder, const char* key) {
  const CheckpointState state = read_state(latest_checkpoint(folder / "run"));
  return setting_of<T>(make_settings(state.settings).task_settings, key);
}
bool has_note(const ImportReport& report, std::initializer_list<const char*> words) {
  return std::any_of(report.notes.begin(), report.notes.end(), [&](const std::string& note) {
    return std::all_of(words.begin(), words.end(),
                       [&](const char* word) { return find_word(note, word) != std::string::npos; });
  });
}

}  // namespace

TEST_CASE("vision interop: sizes may be lists of two equal numbers, and only squares are read") {
  const Folder folder;
  const auto sized = [&](const char* key, const nlohmann::json& value) {
    return changed(folder, numeric, "config.json", [&](nlohmann::json& config) { config[key] = value; });
  };
  const std::string bytes = [&] {
    imported(folder, numeric);
    return read_file(latest_checkpoint(folder / "run") + "/weights.safetensors");
  }();
  for (const auto& each : {std::pair{"image_size", 16}, {"patch_size", 8}}) {
    const auto& key = each.first;
    const auto& side = each.second;
    imported(folder, sized(key, {side, side}));
    CHECK(read_file(latest_checkpoint(folder / "run") + "/weights.safetensors") == bytes);
    expect_error([&] { imported(folder, sized(key, {side, 2 * side})); }).names(key).value(side).offers("equal");
    expect_error([&] { imported(folder, sized(key, {side})); }).names(key).offers("two equal ones");
  }
}

TEST_CASE("vision interop: pixels are scaled as in transformers, from the file or by its default, which is logged") {
  using Numbers = std::vector<double>;
  const Folder folder;
  const auto scaled = [&](const std::function<void(nlohmann::json&)>& change) {
    return imported(folder, changed(folder, numeric, "preprocessor_config.json", change));
  };
  scaled([](nlohmann::json& pixels) { pixels["image_mean"] = 0.25, pixels["image_std"] = 2; });
  CHECK(task_setting<Numbers>(folder, "pixel_mean") == Numbers{0.25});
  CHECK(task_setting<Numbers>(folder, "pixel_std") == Numbers{2});
  const ImportReport half = scaled([](nlohmann::json& pixels) { pixels.erase("image_mean"); });
  CHECK(task_setting<Numbers>(folder, "pixel_mean") == Numbers{0.5});
  CHECK(has_note(half, {"image_mean", "0.5"}));
  for (const nlohmann::json& wrong : {nlohmann::json{0.5, 0.5}, nlohmann::json("grey"), nlohmann::json{0.5, "x", 0.5}})
    expect_error([&] { scaled([&](nlohmann::json& pixels) { pixels["image_mean"] = wrong; }); })
        .names("image_mean")
        .value(wrong.dump())
        .offers(3);

  // As in transformers, an image processor in processor_config.json takes precedence.
  for (const bool has_both : {true, false}) {
    const std::string theirs = changed(folder, numeric, "preprocessor_config.json", [](nlohmann::json&) {});
    if (!has_both) fs::remove(theirs + "/preprocessor_config.json");
    const nlohmann::json numbers = {{"image_mean", {0.1, 0.2, 0.3}}, {"image_std", 0.25}};
    write_file_atomically(theirs + "/processor_config.json", nlohmann::json{{"image_processor", numbers}}.dump());
    const ImportReport processed = imported(folder, theirs);
    CHECK(task_setting<Numbers>(folder, "pixel_mean") == Numbers{0.1, 0.2, 0.3});
    CHECK(task_setting<Numbers>(folder, "pixel_std") == Numbers{0.25});
    CHECK(has_note(processed, {"processor_config.json", "a square of 224 pixels", "16"}));  // no size is given
    write_file_atomically(theirs + "/processor_config.json", R"({"image_processor": 7})");
    expect_error([&] { imported(folder, theirs); }).names("image_processor").value(7).offers("object");
    write_file_atomically(theirs + "/processor_config.json", R"({"other": 7})");
    CHECK(has_note(imported(folder, theirs), {"processor_config.json", "pixel_mean=0.5"}) == !has_both);
  }

  const ImportReport without = imported(folder, cases + "vit_without_preprocessor/model");
  CHECK(task_setting<Numbers>(folder, "pixel_mean") == Numbers{0.5});
  CHECK(task_setting<Numbers>(folder, "pixel_std") == Numbers{0.5});
  CHECK(has_note(without, {"preprocessor_config.json", "pixel_mean=0.5", "pixel_std=0.5"}));
}

// As in transformers 5.23, stored biases of a layer without biases are not read.
TEST_CASE("vision interop: stored biases of queries, keys and values count only if the config has them") {
  const Folder folder;
  const auto biases = [&] {
    double largest = 0;
    for (const NamedTensor& each : read_safetensors(latest_checkpoint(folder / "run") + "/weights.safetensors").tensors)
      if (each.name.ends_with("query_key_value.bias"))
        for (const double x : each.tensor.to_vector()) largest = std::max(largest, std::fabs(x));
    return largest;
  };
  CHECK(!has_note(imported(folder, numeric), {"qkv_bias"}));
  CHECK(biases() > 0);
  const auto without =
      changed(folder, numeric, "config.json", [](nlohmann::json& config) { config["qkv_bias"] = false; });
  CHECK(has_note(imported(folder, without), {"qkv_bias", "false"}));
  CHECK(biases() == 0);
}

TEST_CASE("vision interop: preprocessing that orrery does not support is logged by the import") {
  const Folder folder;
  const auto imported_with = [&](const nlohmann::json& more) {
    return imported(folder, changed(folder, numeric, "preprocessor_config.json",
                                    [&](nlohmann::json& pixels) { pixels.update(more); }));
  };
  using Json = nlohmann::json;
  CHECK(has_note(imported_with(nlohmann::json::object()), {"images to a square", "center square", "16"}));
  CHECK(imported_with({{"size", {{"shortest_edge", 16}}}}).notes.empty());
  CHECK(imported_with({{"size", {{"shortest_edge", 16}}}, {"do_center_crop", true}, {"crop_size", 16}}).notes.empty());
  const Json cropped = {
      {"size", {{"shortest_edge", 18}}}, {"do_center_crop", true}, {"crop_size", {{"height", 16}, {"width", 16}}}};
  CHECK(has_note(imported_with(cropped), {"shortest edge", "18", "center to 16", "16"}));
  CHECK(has_note(imported_with({{"do_resize", false}}), {"not resize", "16"}));
  CHECK(has_note(imported_with({{"resample", 3}}), {"resample", "3", "bilinear"}));
  CHECK(has_note(imported_with({{"do_pad", true}}), {"do_pad"}));
  CHECK(!has_note(imported_with({{"do_pad", false}, {"do_convert_rgb", true}}), {"do_pad"}));
  expect_error([&] { imported_with({{"do_rescale", false}}); }).names("do_rescale").value("false").offers("image_mean");
  expect_error([&] { imported_with({{"rescale_factor", 1}}); }).names("rescale_factor").offers("1 / 255");
}

TEST_CASE("vision interop: multi-label models have the sigmoid loss, and class names may be numbers") {
  const Folder folder;
  const auto typed = [&](const std::function<void(nlohmann::json&)>& change) {
    return imported(folder, changed(folder, numeric, "config.json", change));
  };
  typed([](nlohmann::json& config) { config["problem_type"] = "multi_label_classification"; });
  CHECK(task_setting<std::string>(folder, "loss") == "sigmoid");
  typed([](nlohmann::json& config) { config["problem_type"] = nullptr; });
  CHECK(task_setting<std::string>(folder, "loss") == "softmax");
  expect_error([&] { typed([](nlohmann::json& config) { config["problem_type"] = "regression"; }); })
      .names("problem_type")
      .value("regression");
  typed([](nlohmann::json& config) { config["id2label"]["3"] = 7; });
  const std::string classes = read_state(latest_checkpoint(folder / "run")).tokenizer;
  CHECK(nlohmann::json::parse(classes)["classes"][3] == "7");
}

TEST_CASE("vision interop: the number of names must equal the number of classes") {
  const Folder folder;
  const auto named = [&](const std::function<void(nlohmann::json&)>& change) {
    imported(folder, changed(folder, numeric, "config.json", [&](nlohmann::json& all) { change(all["id2label"]); }));
  };
  expect_error([&] { named([](nlohmann::json& names) { names["12"] = "more"; }); })
      .names("id2label")
      .value(13)
      .offers(12);
  expect_error([&] { named([](nlohmann::json& names) { names.erase("11"); }); }).names("id2label").value(11).offers(12);
}

TEST_CASE("vision interop: classes with equal names are logged") {
  const Folder folder;
  const auto named = [&](const char* first, const char* third) {
    return imported(folder, changed(folder, numeric, "config.json", [&](nlohmann::json& config) {
                      config["id2label"]["0"] = first, config["id2label"]["2"] = third;
                    }));
  };
  CHECK(has_note(named("crane", "crane"), {"config.json", "crane", "0", "2"}));
  CHECK(!has_note(named("crane", "owl"), {"crane"}));
}

TEST_CASE("interop: Infinity in a configuration is read, and is an error for a needed number") {
  const Folder folder;
  const auto with = [&](const std::string& key) {
    const std::string from =
        changed(folder, numeric, "config.json", [&](nlohmann::json& config) { config[key] = "?"; });
    std::string config = read_file(from + "/config.json");
    config.replace(config.find("\"?\""), 3, "-Infinity");
    write_file_atomically(from + "/config.json", config);
    return imported(folder, from);
  };
  CHECK(with("initializer_range").classes == 12);
  expect_error([&] { with("layer_norm_eps"); })
      .names("config.json")
      .names("layer_norm_eps")
      .value("-Infinity")
      .offers("number");
}

TEST_CASE("interop: an index may name a tied head; any other tensor that it names must be present") {
  const Folder folder;
  const auto indexed = [&](const std::string& name, bool tied) {
    const std::string from = changed(folder, golden + "llama_tied", "config.json",
                                     [&](nlohmann::json& config) { config["tie_word_embeddings"] = tied; });
    nlohmann::json map;
    for (const NamedTensor& each : read_safetensors(from + "/model.safetensors").tensors)
      map[each.name] = "w.safetensors";
    map[name] = "w.safetensors";
    fs::rename(from + "/model.safetensors", from + "/w.safetensors");
    write_file_atomically(from + "/model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
    return imported(folder, from);
  };
  CHECK(*indexed("lm_head.weight", true).largest_difference <= 1e-5);
  expect_error([&] { indexed("lm_head.weight", false); }).names("tie_word_embeddings").value("false");
  expect_error([&] { indexed("model.more.weight", true); }).names("model.more.weight").names("w.safetensors");
}

TEST_CASE("interop: the error for an absent tie_word_embeddings states that it is absent") {
  const Folder folder;
  const std::string from = changed(folder, golden + "llama_tied", "config.json",
                                   [](nlohmann::json& config) { config.erase("tie_word_embeddings"); });
  expect_error([&] { imported(folder, from); })
      .names("tie_word_embeddings")
      .value("absent")
      .names("lm_head.weight")
      .offers("true");
}

TEST_CASE("interop: the error for PyTorch's own files has the way to convert them") {
  const Folder folder;
  const std::string from = changed(folder, numeric, "config.json", [](nlohmann::json&) {});
  fs::rename(from + "/model.safetensors", folder / "model.safetensors");
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "last.ckpt"}) {
    write_file_atomically(from + "/" + name, std::string("PK\3\4 archive"));
    expect_error([&] { imported(folder, from); }).names(name).offers("model.safetensors").offers("save_pretrained");
    expect_error([&] { stored_tensors(from); }).names(name).offers("save_pretrained");
    fs::remove(from + "/" + name);
  }
  for (const std::string& bytes : {std::string("PK\3\4 archive"), std::string("\x80\2}q", 4)}) {
    const std::string file = folder / "pytorch_model.bin";
    write_file_atomically(file, bytes);
    for (const auto& read :
         {std::function([&] { imported(folder, file); }), std::function([&] { stored_tensors(file); })})
      expect_error(read).names("pytorch_model.bin").offers("save_pretrained");
  }
  fs::remove(from + "/config.json");  // like nanoGPT's folders, which hold only a checkpoint
  write_file_atomically(from + "/ckpt.pt", std::string("PK\3\4 archive"));
  expect_error([&] { imported(folder, from); }).names("ckpt.pt").offers("save_pretrained");
}

TEST_CASE("files: errors identify a git-lfs pointer in place of any file of a model, an image or settings") {
  const Folder folder;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 987654321\n";
  for (const std::string name : {"config.json", "tokenizer.model", "tokenizer_config.json", "model.safetensors"}) {
    const std::string from = changed(folder, cases + "llama_bos", "config.json", [](nlohmann::json&) {});
    write_file_atomically(from + "/" + name, pointer);
    expect_error([&] { imported(folder, from); }).names(name).value("git-lfs").offers("git lfs pull");
  }
  const std::string image = folder / "a.png", settings = folder / "a.toml";
  for (const std::string& file : {image, settings}) write_file_atomically(file, pointer);
  expect_error([&] { read_image(image, 3); }).names("a.png").value("git-lfs").offers("git lfs pull");
  expect_error([&] { value_in_settings_file(settings, "data"); })
      .names("a.toml")
      .value("git-lfs")
      .offers("git lfs pull");
}
