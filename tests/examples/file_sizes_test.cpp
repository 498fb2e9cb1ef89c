// Files that say, unpack to or have sizes beyond all reason are refused before memory or time is spent on them.
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/examples/program.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using orrery::testing::ErrorMessage;
using orrery::testing::expect_error;
using Words = std::vector<std::string>;

namespace {

constexpr uint64_t terabyte = 1'000'000'000'000;
constexpr int64_t most_memory = 150'000'000;  // bytes: the program and its libraries have 60 MB

// An error within a few seconds and without more memory than the program has anyway.
ErrorMessage expect_quick_error(const Words& words) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run_orrery(words);
  CAPTURE(words);
  CHECK(outcome.peak < most_memory);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  CHECK_FALSE(contains(outcome.err, "batch"));  // a smaller one would not help
  return expect_error(outcome);
}

// A file with holes, which takes no place.
std::string grow(const std::string& path, uint64_t bytes) {
  fs::resize_file(path, bytes);
  return path;
}

// An IDX file of images, packed: what its header says, and so many bytes after it.
void write_images(const std::string& path, const std::string& header, int64_t bytes) {
  const std::string made =
      "{ printf '" + header + "'; head -c " + std::to_string(bytes) + " /dev/zero; } | gzip -1 > '" + path + "'";
  REQUIRE(run_shell(made).code == 0);
}

}  // namespace

TEST_CASE("file sizes: packed images that unpack to more than their header says are refused") {
  const Folder folder;
  const auto expect_refusal = [&](const std::string& header, int64_t bytes) {
    write_images(folder / "train-images-idx3-ubyte.gz", header, bytes);
    write_images(folder / "train-labels-idx1-ubyte.gz", "\\0\\0\\010\\001\\0\\0\\0\\012", 10);
    expect_quick_error(Words{"train", "--model=vit-fashion", "--data=" + folder.path(), "--out=" + (folder / "run")})
        .names("images")
        .names("train-images-idx3-ubyte.gz");
  };
  expect_refusal("\\0\\0\\010\\003\\0\\0\\0\\012\\0\\0\\0\\034\\0\\0\\0\\034", 400'000'000);        // of 7,840
  expect_refusal("\\0\\0\\010\\003\\377\\377\\377\\377\\0\\0\\0\\034\\0\\0\\0\\034", 400'000'000);  // of 3.4 TB
}

TEST_CASE("file sizes: labels that unpack to more than their header says are refused") {
  const Folder folder;
  write_images(folder / "train-images-idx3-ubyte.gz", "\\0\\0\\010\\003\\0\\0\\0\\012\\0\\0\\0\\034\\0\\0\\0\\034",
               7840);
  write_images(folder / "train-labels-idx1-ubyte.gz", "\\0\\0\\010\\001\\0\\0\\0\\012", 400'000'000);
  expect_quick_error(Words{"train", "--model=vit-fashion", "--data=" + folder.path(), "--out=" + (folder / "run")})
      .names("train-labels-idx1-ubyte.gz");
}

TEST_CASE("file sizes: a text that unpacks to gigabytes is refused by what it needs") {
  const Folder folder;
  const std::string text = folder / "text.txt.gz";
  REQUIRE(run_shell("head -c 400000000 /dev/zero | tr '\\0' a | gzip -1 > '" + text + "'").code == 0);
  const Outcome outcome = run_shell("ulimit -v 400000; $ORRERY train --data='" + text + "' --out='" + (folder / "run") +
                                    "' --tokenizer=byte --layers=1 --heads=1 --width=8 --steps=1 --threads=1");
  expect_error(outcome).names("text").names(text).names("MB");
}

TEST_CASE("file sizes: tokens that are not those of their description are refused before they are read") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), tokens = folder / "tokens";
  const Outcome made = run_orrery({"prepare", "--input=" + text, "--out=" + tokens});
  REQUIRE_MESSAGE(made.code == 0, made.err);
  const Words train = Words{"train", "--data=" + tokens, "--out=" + (folder / "run")} + tiny;
  REQUIRE(run_orrery(train).code == 0);
  grow(tokens + "/train.bin", terabyte);
  expect_quick_error(train + Words{"--out=" + (folder / "other")}).names("tokens").names("train.bin");
}

TEST_CASE("file sizes: what an imported folder holds is bounded by its kind") {
  const Folder folder;
  const std::string model = folder / "model", config = "config.json", weights = "model.safetensors";
  const auto expect_refusal = [&](const std::string& file) {
    fs::remove_all(model);
    fs::copy(ORRERY_SOURCE_DIR "/tests/cases/tokenizer_larger", model, fs::copy_options::recursive);
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
