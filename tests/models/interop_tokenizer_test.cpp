// Tokenizers of imported and exported models, and the tokens that begin and end a text.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "models/data/tokenizer.h"
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

TEST_CASE("interop: a missing tokenizer becomes token_ids, a damaged one is an error") {
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

TEST_CASE("interop: the tokens that begin and end a text are exported as they were imported") {
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

TEST_CASE("interop: documents end with the tokenizer's eos_token, and generation with the ids of config.json") {
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
