// Files that state, unpack to or have absurd sizes are refused before they cost memory or time.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/examples/program.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"
#include "tests/support/sanitizers.h"

namespace fs = std::filesystem;
using orrery::testing::expect_error;
using orrery::testing::Message;
using Words = std::vector<std::string>;

namespace {

constexpr uint64_t terabyte = 1'000'000'000'000;
constexpr int64_t max_memory = 150'000'000;  // bytes; the program and its libraries use 60 MB

// Expects an error within seconds that needs no more memory than the program has anyway.
Message expect_quick_error(const Words& words) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run_orrery(words);
  CAPTURE(words);
  CHECK(outcome.peak < max_memory);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  CHECK_FALSE(contains(outcome.err, "smaller batch"));  // it would not help
  return expect_error(outcome);
}

// Makes a file with holes, which takes no disk space; returns its path.
std::string grow(const std::string& path, uint64_t bytes) {
  fs::resize_file(path, bytes);
  return path;
}

// Writes the output of a shell command, packed by gzip.
void write_packed(const std::string& path, const std::string& command) {
  REQUIRE(run_shell("{ " + command + "; } | gzip -1 > '" + path + "'").code == 0);
}
// Returns a command that prints `line` repeatedly, `bytes` in all; "," may separate words below.
std::string repeated(const std::string& line, int64_t bytes) {
  return "yes \"$(printf '" + line + "')\" | head -c " + std::to_string(bytes);
}
std::string repeated_without_ends(const std::string& word, int64_t bytes) {
  return repeated(word, bytes) + " | tr -d '\\n'";
}
// Writes a packed IDX file of images: this header, then `bytes` zeros.
void write_images(const std::string& path, const std::string& header, int64_t bytes) {
  write_packed(path, "printf '" + header + "'; head -c " + std::to_string(bytes) + " /dev/zero");
}

// Returns the error in a limited address space: memory must be counted before it is allocated.
Message expect_refusal_within(int64_t kilobytes, const std::string& words) {
  CAPTURE(words);
  // AddressSanitizer needs terabytes of addresses.
  const std::string limit = orrery::address_sanitizer ? "" : "ulimit -v " + std::to_string(kilobytes) + "; ";
  const Outcome outcome = run_shell(limit + "timeout 60 $ORRERY " + words);
  CHECK_FALSE(contains(outcome.err, "out of memory"));
  return expect_error(outcome);
}

// Writes a safetensors file with this header and a hole in place of its numbers.
void write_tensors(const std::string& path, const nlohmann::json& header, uint64_t bytes) {
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), sizeof length) << text;
  grow(path, sizeof length + length + bytes);
}
nlohmann::json tensor(const std::string& dtype, const std::vector<uint64_t>& shape, uint64_t begin, uint64_t end) {
  return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end}}};
}
// Copies a small model of another program, whose weights may be changed.
std::string copied_model(const Folder& folder) {
  const std::string model = folder / "model";
  fs::remove_all(model);
  fs::copy(ORRERY_SOURCE_DIR "/tests/cases/tokenizer_larger", model, fs::copy_options::recursive);
  return model;
}

}  // namespace

TEST_CASE("file sizes: packed images that unpack to more bytes than their header states are refused") {
  const Folder folder, other;
  const auto expect_refusal = [&](const std::string& header, int64_t bytes) {
    write_images(folder / "train-images-idx3-ubyte.gz", header, bytes);
    write_images(folder / "train-labels-idx1-ubyte.gz", "\\0\\0\\010\\001\\0\\0\\0\\012", 10);
    expect_quick_error(Words{"train", "--model=vit-fashion", "--data=" + folder.path(), "--out=" + (other / "run")})
        .names("train-images-idx3-ubyte.gz");
  };
  expect_refusal("\\0\\0\\010\\003\\0\\0\\0\\012\\0\\0\\0\\034\\0\\0\\0\\034", 400'000'000);        // states 7,840
  expect_refusal("\\0\\0\\010\\003\\377\\377\\377\\377\\0\\0\\0\\034\\0\\0\\0\\034", 400'000'000);  // states 3.4 TB
}

TEST_CASE("file sizes: packed labels that unpack to more bytes than their header states are refused") {
  const Folder folder, other;
  write_images(folder / "train-images-idx3-ubyte.gz", "\\0\\0\\010\\003\\0\\0\\0\\012\\0\\0\\0\\034\\0\\0\\0\\034",
               7840);
  write_images(folder / "train-labels-idx1-ubyte.gz", "\\0\\0\\010\\001\\0\\0\\0\\012", 400'000'000);
  expect_quick_error(Words{"train", "--model=vit-fashion", "--data=" + folder.path(), "--out=" + (other / "run")})
      .names("train-labels-idx1-ubyte.gz")
      .offers("the right file");
}

TEST_CASE("file sizes: a text that unpacks to gigabytes is refused with the memory that it needs" *
          doctest::skip(orrery::address_sanitizer)) {
  const Folder folder;
  const std::string text = folder / "text.txt.gz";
  REQUIRE(run_shell("head -c 400000000 /dev/zero | tr '\\0' a | gzip -1 > '" + text + "'").code == 0);
  const Outcome outcome = run_shell("ulimit -v 400000; $ORRERY train --data='" + text + "' --out='" + (folder / "run") +
                                    "' --tokenizer=byte --layers=1 --heads=1 --width=8 --steps=1 --threads=1");
  expect_error(outcome).names("text").names(text).names("MB of tokens").names("MB of memory");
}

TEST_CASE("file sizes: tokens that do not match their description are refused before they are read") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), tokens = folder / "tokens";
  const Outcome made = run_orrery({"prepare", "--input=" + text, "--out=" + tokens});
  REQUIRE_MESSAGE(made.code == 0, made.err);
  const Words train = Words{"train", "--data=" + tokens, "--out=" + (folder / "run")} + tiny;
  REQUIRE(run_orrery(train).code == 0);
  grow(tokens + "/train.bin", terabyte);
  expect_quick_error(train + Words{"--out=" + (folder / "other")}).names("tokens").names("train.bin");
}

TEST_CASE("file sizes: each kind of file in an imported folder has a size limit") {
  const Folder folder;
  const std::string model = folder / "model", config = "config.json", weights = "model.safetensors";
  const auto expect_refusal = [&](const std::string& file) {
    copied_model(folder);
    if (file == "tokenizer.model") fs::remove(model + "/tokenizer.json");  // else it takes precedence
    std::ofstream(model + "/" + file, std::ios::app).flush();
    grow(model + "/" + file, terabyte);
    CAPTURE(file);
    expect_quick_error({"import", model, "--out=" + (folder / "run")}).names(file);
    CHECK_FALSE(fs::exists(folder / "run"));
  };
  for (const char* const file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                 "added_tokens.json", "tokenizer.model", "generation_config.json"})
    expect_refusal(file);
}

TEST_CASE("file sizes: pairs, settings and logs of a terabyte are refused") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text());
  const std::string pairs = grow(folder.write("pairs.tsv", "a\tb\n"), terabyte);
  expect_quick_error({"train", "--model=translation-small", "--data=" + pairs, "--out=" + (folder / "run")})
      .names("pairs.tsv");
  const std::string settings = grow(folder.write("settings.toml", "layers = 1\n"), terabyte);
  expect_quick_error({"train", "--config=" + settings, "--data=" + text, "--out=" + (folder / "run")})
      .names("settings.toml");
  REQUIRE(run_orrery(train_tiny(folder, "run")).code == 0);
  grow(folder / "run/metrics.jsonl", terabyte);
  expect_quick_error({"report", folder / "run", "--out=" + (folder / "report.html")}).names("metrics.jsonl");
}

TEST_CASE("file sizes: JSON that does not fit in memory is refused before it is parsed" *
          doctest::skip(orrery::address_sanitizer)) {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text());
  const auto expect_refusal = [&](const std::string& path, const std::string& tokenizer, const std::string& value) {
    write_packed(path, "printf '[0'; " + repeated_without_ends("," + value, 24'000'000) + "; printf ']'");
    expect_refusal_within(
        500'000, "prepare --input='" + text + "' --out='" + (folder / "tokens") + "' --tokenizer='" + tokenizer + "'")
        .names(path)
        .names("MB");
    fs::remove(path);
  };
  for (const char* const value : {"{}", "[0]", "{\"\":{}}"})
    expect_refusal(folder / "tokenizer.json.gz", folder / "tokenizer.json.gz", value);
  fs::create_directory(folder / "pairs");
  std::ofstream(folder / "pairs/merges.txt") << "a b\n";
  expect_refusal(folder / "pairs/vocab.json.gz", folder / "pairs", "{}");
}

TEST_CASE("file sizes: the vocabulary limits the merges, and each settings file of a model has a limit") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text());
  std::ofstream(folder / "vocab.json") << R"({"a": 0, "b": 1})";
  write_packed(folder / "merges.txt.gz", repeated("a b", 60'000'000));
  expect_quick_error({"prepare", "--input=" + text, "--out=" + (folder / "tokens"), "--tokenizer=" + folder.path()})
      .names("merges.txt.gz");
  for (const char* const file :
       {"config.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"}) {
    const std::string path = copied_model(folder) + "/" + file;
    fs::remove(path);
    write_packed(path + ".gz", "printf '{\"x\":[0'; " + repeated_without_ends(",{}", 30'000'000) + "; printf ']}'");
    expect_quick_error({"import", folder / "model", "--out=" + (folder / "run")}).names(std::string(file) + ".gz");
  }
}

TEST_CASE("file sizes: class names and image headers are checked before large files are read") {
  const Folder folder;
  folder.write("data_batch_1.bin", std::string(20 * 3073, '\0'));
  write_packed(folder / "batches.meta.txt.gz", repeated("a", 100'000'000));
  const Folder idx, other;
  expect_quick_error({"train", "--model=resnet8", "--data=" + folder.path(), "--out=" + (other / "run")})
      .names("batches.meta.txt.gz");
  // 400,000 images and 60 labels
  write_images(idx / "train-images-idx3-ubyte.gz", "\\0\\0\\010\\003\\0\\006\\032\\200\\0\\0\\0\\034\\0\\0\\0\\034",
               400'000 * 784);
  write_images(idx / "train-labels-idx1-ubyte.gz", "\\0\\0\\010\\001\\0\\0\\0\\074", 60);
  expect_quick_error({"train", "--model=vit-fashion", "--data=" + idx.path(), "--out=" + (other / "run")})
      .names("train-images-idx3-ubyte.gz")
      .value("400000")
      .names("train-labels-idx1-ubyte.gz")
      .value("60");
}

TEST_CASE("file sizes: pairs and sentences are refused at an invalid byte or if they need too much memory" *
          doctest::skip(orrery::address_sanitizer)) {
  const Folder folder;
  const std::string pairs = folder.write("pairs.tsv", "a b\tb a\nc d\td c\ne f\tf e\n");
  const std::string train =
      "train --model=translation-small --tokenizer=byte --layers=1 --heads=1 --width=8 --steps=1 "
      "--threads=1 --out='" +
      (folder / "run") + "' --validation_fraction=0.4 --data=";
  const std::string bytes = folder / "bytes.gz", lines = folder / "lines.gz", columns = folder / "columns.gz";
  write_packed(bytes, "head -c 300000000 /dev/zero | tr '\\0' '\\377'");
  write_packed(lines, repeated("a", 40'000'000));
  write_packed(columns, repeated("a\\tb", 40'000'000));
  expect_quick_error({"train", "--model=translation-small", "--data=" + bytes, "--out=" + (folder / "run")})
      .names(bytes)
      .names("UTF-8")
      .value("0");
  expect_refusal_within(500'000, train + "'" + columns + "'").names(columns).names("MB").offers("pairs");
  const Outcome trained = run_shell("$ORRERY " + train + "'" + pairs + "'");
  REQUIRE_MESSAGE(fs::exists(folder / "run/step_000001"), trained.err);
  const std::string translate = "translate --threads=1 --checkpoint='" + (folder / "run") + "' --input=";
  expect_quick_error({"translate", "--checkpoint=" + (folder / "run"), "--input=" + bytes}).names(bytes).names("UTF-8");
  expect_refusal_within(700'000, translate + "'" + lines + "'").names(lines).names("MB").offers("sentences");
  REQUIRE(run_shell("gzip -d < '" + lines + "' > '" + (folder / "lines") + "'").code == 0);
  expect_refusal_within(700'000, translate + "- < '" + (folder / "lines") + "'")
      .names("the standard input")
      .names("MB")
      .offers("sentences");
}

TEST_CASE("file sizes: packed tokens are unpacked only as far as their header or description allows") {
  const Folder folder;
  fs::create_directory(folder / "headed");
  const std::string of_100_tokens = "printf '\\210\\330\\064\\001\\001\\0\\0\\0\\144'; head -c ";
  write_packed(folder / "headed/train.bin.gz", of_100_tokens + "300000000 /dev/zero");
  expect_quick_error(Words{"train", "--data=" + (folder / "headed"), "--out=" + (folder / "run"), "--tokenizer=byte"} +
                     tiny)
      .names("train.bin.gz")
      .value("100");
  const std::string text = folder.write("text.txt", tiny_text()), tokens = folder / "tokens";
  REQUIRE(run_orrery({"prepare", "--input=" + text, "--out=" + tokens}).code == 0);
  fs::remove(tokens + "/train.bin");
  write_packed(tokens + "/train.bin.gz", "head -c 40000000 /dev/zero");
  fs::resize_file(tokens + "/train.bin.gz", 100'000);  // the cut end is never read
  expect_quick_error(Words{"train", "--data=" + tokens, "--out=" + (folder / "run")} + tiny)
      .names("train.bin")
      .names("tokens.json");
}

TEST_CASE("file sizes: weights are checked by their header, and weights that no module needs are not read") {
  const Folder folder;
  constexpr uint64_t gigabyte = uint64_t{1} << 30;
  const auto import_with = [&](const nlohmann::json& entry) {
    const std::string model = copied_model(folder);
    write_tensors(model + "/model.safetensors", {{"wte.weight", entry}}, gigabyte);
    return expect_quick_error({"import", model, "--out=" + (folder / "run")}).names("wte.weight");
  };
  import_with(tensor("F32", {262144, 1024}, 0, gigabyte)).names("shape").value("262144");
  import_with(tensor("U8", {gigabyte}, 0, gigabyte)).names("dtype").value("U8");
  import_with(tensor("F16", {gigabyte / 2}, 0, gigabyte)).names("shape");

  const std::string path = copied_model(folder) + "/model.safetensors", bytes = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  nlohmann::json header = nlohmann::json::parse(bytes.substr(sizeof length, length));
  const uint64_t numbers = bytes.size() - sizeof length - length;
  header["not_needed"] = tensor("F32", {gigabyte / 4}, numbers, numbers + gigabyte);
  write_tensors(path, header, 0);
  std::ofstream(path, std::ios::app | std::ios::binary) << bytes.substr(sizeof length + length);
  grow(path, fs::file_size(path) + gigabyte);
  const Outcome imported = run_orrery({"import", folder / "model", "--out=" + (folder / "run")});
  CHECK_MESSAGE(imported.code == 0, imported.err);
  CHECK(contains(imported.out, "not_needed"));
  CHECK(imported.peak < max_memory);
}

TEST_CASE("file sizes: show loads one tensor at a time, after a check of the memory") {
  const Folder folder;
  constexpr uint64_t one = 48'000'000;
  nlohmann::json header;
  for (uint64_t i = 0; i < 8; ++i) header["x" + std::to_string(i)] = tensor("F32", {one / 4}, i * one, (i + 1) * one);
  write_tensors(folder / "eight.safetensors", header, 8 * one);
  const Outcome shown = run_orrery({"show", folder / "eight.safetensors"});
  CHECK_MESSAGE(shown.code == 0, shown.err);
  CHECK(shown.peak < max_memory);
  write_tensors(folder / "huge.safetensors", {{"x", tensor("F32", {terabyte / 4}, 0, terabyte)}}, terabyte);
  expect_quick_error({"show", folder / "huge.safetensors"}).names("huge.safetensors").names("MB").offers("file");
}

TEST_CASE("file sizes: a text whose tokens do not fit in memory is refused before it is hashed") {
  const Folder folder;
  const std::string text = grow(folder.write("text.txt", tiny_text()), terabyte);
  for (const char* const tokenizer : {"byte", "character", "sentence_piece", "byte_pair"})
    expect_refusal_within(2'000'000, "train --layers=1 --heads=1 --width=8 --steps=1 --threads=1 --data='" + text +
                                         "' --out='" + (folder / "run") + "' --tokenizer=" + tokenizer)
        .names(text)
        .names("MB")
        .offers("prepare");
}

TEST_CASE("file sizes: a word whose merges do not fit in memory is refused with the needed memory" *
          doctest::skip(orrery::address_sanitizer)) {
  const Folder folder;
  const std::string text = folder / "text.txt", tokenizer = ORRERY_SOURCE_DIR "/tests/cases/gpt2_end_of_text";
  REQUIRE(run_shell(repeated_without_ends("ll", 12'000'000) + " > '" + text + "'").code == 0);  // 8 MB
  expect_refusal_within(640'000, "prepare --input='" + text + "' --out='" + (folder / "tokens") + "' --tokenizer='" +
                                     tokenizer + "'")
      .names("word")
      .value("8 MB")
      .names("648 MB")
      .offers("line breaks");
  expect_refusal_within(400'000, "prepare --input='" + text + "' --out='" + (folder / "tokens") +
                                     "' --tokenizer='byte_pair(vocabulary=258)'")
      .names("words")
      .value("8 MB")
      .names("328 MB")
      .offers("shorter text");
}

// tests/cases/sentence_piece_memory: texts whose parts no ASCII character ends. Encoding such a text
// at once took 75 bytes of memory for each of its bytes.
TEST_CASE("file sizes: the memory of prepare does not grow with a text in the letters of China" *
          doctest::skip(orrery::address_sanitizer)) {
  const Folder folder;
  const auto text_of = [&](const std::string& megabytes) {
    const std::string path = folder / megabytes,
                      script = ORRERY_SOURCE_DIR "/tests/cases/sentence_piece_memory/make.py";
    REQUIRE(run_shell("python3 '" + script + "' " + megabytes + " > '" + path + "'").code == 0);
    return path;
  };
  REQUIRE(is_complete(run_orrery(Words{"train", "--data=" + text_of("0.05"), "--out=" + (folder / "run"),
                                       "--tokenizer=sentence_piece(vocabulary=900)"} +
                                 tiny)));
  REQUIRE(run_orrery({"export", folder / "run", "--out=" + (folder / "theirs")}).code == 0);
  const auto peak_of = [&](const std::string& megabytes) {
    const Outcome prepared =
        run_orrery({"prepare", "--input=" + text_of(megabytes), "--out=" + (folder / ("tokens" + megabytes)),
                    "--tokenizer=" + (folder / "theirs/tokenizer.model")});
    CHECK_MESSAGE(prepared.code == 0, prepared.err);
    return prepared.peak;
  };
  const int64_t of_one = peak_of("1"), of_three = peak_of("3");
  CHECK(of_three - of_one < 20'000'000);
}
