// Files of tokens beyond memory: several shards as one, samples as fingerprints, files that shrink.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/system/files.h"
#include "engine/system/hash.h"
#include "models/data/prepared.h"
#include "models/data/text.h"
#include "models/data/token_fingerprint.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

std::string bytes_of(const std::vector<uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint16_t)};
}

// Writes a file of zeros that takes no room on the disk. Returns false if the disk cannot hold such.
bool write_sparse(const std::string& path, uint64_t bytes) {
  write(path, "");
  std::error_code problem;
  std::filesystem::resize_file(path, bytes, problem);
  if (problem) MESSAGE("the disk holds no sparse file of ", bytes, " bytes: ", problem.message());
  return !problem;
}
void write_at(const std::string& path, uint64_t at, const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file << bytes;
}

// Returns the process's memory that no file backs, in bytes.
double private_memory() {
  std::istringstream status(read_file("/proc/self/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return 1024 * std::stod(line.substr(8));
  return 0;
}

Fingerprint fingerprint_of_file(const std::string& path) {
  return fingerprints_of_token_files({&path, 1}, [](size_t, uint64_t) {}).all;
}

std::string no_text() { return ""; }  // a tokenizer of bytes learns nothing

constexpr uint64_t gib = uint64_t{1} << 30, mib = uint64_t{1} << 20;

}  // namespace

TEST_CASE("token files: shards are read as one, in the order of their numbers") {
  const Folder folder;
  const std::string path = folder / "shards";
  write(path + "/part_2.bin", bytes_of({4, 5}));
  write(path + "/part_10.bin", bytes_of({6}));
  write(path + "/part_1.bin", bytes_of({1, 2, 3}));
  write(path + "/.part_3.bin", "none"), write(path + "/readme.txt", "none");
  CHECK(has_tokens(path));
  CHECK(tokenizer_of_tokens(path) == nullptr);
  const auto tokenizer = make_tokenizer("byte", no_text);
  const Text text(path, *tokenizer, 0.5);
  CHECK(text.train().to_vector() == std::vector<int32_t>{1, 2, 3});
  CHECK(text.validation().to_vector() == std::vector<int32_t>{4, 5, 6});
  CHECK(text.train().bytes_in_memory() == 0);
  const Text whole(path, *tokenizer, 0);
  std::vector<int32_t> some(4);
  whole.train().read(2, some);
  CHECK(some == std::vector<int32_t>{3, 4, 5, 6});
  // One file with these tokens is the same data, and so is each shard.
  write(folder / "one.bin", bytes_of({1, 2, 3, 4, 5, 6}));
  CHECK(whole.fingerprint() == Text(folder / "one.bin", *tokenizer, 0).fingerprint());
  REQUIRE(whole.parts().size() == 4);
  CHECK(whole.parts()[2].fingerprint == Text(path + "/part_2.bin", *tokenizer, 0).fingerprint());
  CHECK(whole.parts()[2].begin == 3);
  CHECK(whole.parts()[2].end == 5);
  write(folder / "v.bin", bytes_of({7, 8}));
  REQUIRE(std::system(("gzip -c '" + folder / "v.bin" + "' > '" + path + "/part_val_000.bin.gz'").c_str()) == 0);
  const Text split(path, *tokenizer, 0.5);
  CHECK(split.train().to_vector() == std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  CHECK(split.validation().to_vector() == std::vector<int32_t>{7, 8});
}

TEST_CASE("token files: names with the word val are for validation, and the others are the data of one file") {
  const Folder folder;
  for (const std::string held_out : {"part_VAL_0", "part val 0", "validation-0"}) {
    CAPTURE(held_out);
    const std::string path = folder / held_out;
    write(path + "/interval_1.bin", bytes_of({1, 2}));
    write(path + "/interval_3.bin", bytes_of({3}));
    write(path + "/" + held_out + ".BIN", bytes_of({7, 8}));
    const auto tokenizer = make_tokenizer("byte", no_text);
    const Text text(path, *tokenizer, 0.5);
    CHECK(text.train().to_vector() == std::vector<int32_t>{1, 2, 3});
    CHECK(text.validation().to_vector() == std::vector<int32_t>{7, 8});
    REQUIRE(text.notes().size() == 1);
    Message(text.notes()[0]).names(path).value("interval_1.bin").value("interval_3.bin");
    write(folder / "one.bin", bytes_of({1, 2, 3}));
    const Fingerprint one = Text(folder / "one.bin", *tokenizer, 0).fingerprint();
    CHECK(std::ranges::any_of(text.parts(), [&](const auto& part) { return part.fingerprint == one; }));
  }
}

TEST_CASE("token files: shards whose names differ before the number are read as one, with a note") {
  const Folder folder;
  const std::string path = folder / "shards";
  write(path + "/part_000.bin", bytes_of({1, 2}));
  write(path + "/part_001.bin", bytes_of({3}));
  write(path + "/val_000.bin", bytes_of({7, 8}));
  const auto tokenizer = make_tokenizer("byte", no_text);
  CHECK(Text(path, *tokenizer, 0.5).notes().empty());  // validation has its own name
  write(path + "/other_001.bin", bytes_of({9}));
  const Text text(path, *tokenizer, 0.5);
  CHECK(text.train().to_vector() == std::vector<int32_t>{9, 1, 2, 3});
  REQUIRE(text.notes().size() == 1);
  Message(text.notes()[0]).names(path).value("other_001.bin").value("part_000.bin").names("another name");
}

TEST_CASE("token files: shards of different formats, numbers and vocabularies are errors") {
  const Folder folder;
  const std::string path = folder / "shards", first = path + "/a_1.bin", second = path + "/a_2.bin";
  write(first, bytes_of({1, 2, 3}));
  const auto refused = [&] { return expect_error([&] { Text(path, *make_tokenizer("byte", no_text), 0); }); };
  write_token_file(second, std::vector<int32_t>{1, 2}, 100'000);
  refused().names(second).value("32 bits (llm_c_tokens)").names(first).value("16 bits (nanogpt_tokens)");
  write(second, bytes_of({1, 999}));
  refused().names(second).names(1).value(999).offers("0 to 255");
  std::filesystem::rename(second, path + "/a_01.bin");
  refused().names("a_1.bin").value("same number").names("a_01.bin").offers("remove");
  std::filesystem::rename(path + "/a_01.bin", path + "/tokens.bin");
  refused().names(path + "/tokens.bin").value("not a shard").offers("part_000.bin");
}

TEST_CASE("token files: above 1 GiB a fingerprint hashes the length and 256 blocks") {
  const Folder folder;
  const std::string path = folder / "large.bin";
  write(path, "abcd");
  CHECK(fingerprint_of_file(path).sha256 == sha256_of_file(path));
  constexpr uint64_t bytes = 2 * gib + 2;
  if (!write_sparse(path, bytes)) return;
  const Fingerprint found = fingerprint_of_file(path);
  CHECK(found.bytes == bytes);
  TokenFingerprint in_chunks(bytes);  // as prepare makes it
  const std::vector<std::byte> zeros(3 * mib);
  for (uint64_t left = bytes; left > 0; left -= std::min<uint64_t>(left, zeros.size()))
    in_chunks.add(std::span(zeros).first(std::min<uint64_t>(left, zeros.size())));
  CHECK(in_chunks.take() == found);
  Sha256 expected;
  expected.add(std::as_bytes(std::span(&bytes, 1)));
  for (int block = 0; block < 256; ++block) expected.add(std::span(zeros).first(mib));
  CHECK(expected.digits() == found.sha256);
  write_at(path, mib + 1, "x");  // between the blocks
  CHECK(fingerprint_of_file(path) == found);
  write_at(path, bytes - 1, "x");
  CHECK(fingerprint_of_file(path) != found);
  // Two files as one: a block may begin in the first and end in the second.
  const std::string a = folder / "a_0.bin", b = folder / "a_1.bin";
  if (!write_sparse(a, bytes - 5) || !write_sparse(b, 5)) return;
  write_at(b, 4, "x");
  const std::vector<std::string> both = {a, b};
  CHECK(fingerprints_of_token_files(both, [](size_t, uint64_t) {}).all == fingerprint_of_file(path));
}

TEST_CASE("token files: prepared tokens above 1 GiB are checked by their sample, or by their size") {
  const Run run;
  const std::string out = run.folder / "tokens", file = out + "/train.bin", description = out + "/tokens.json";
  prepare({.input = run.text, .out = out, .tokenizer = "byte", .validation_fraction = 0});
  constexpr uint64_t bytes = 2 * gib;
  if (!write_sparse(file, bytes)) return;
  nlohmann::json listed = nlohmann::json::parse(read_file(description));
  const auto read = [&] {
    write(description, listed.dump());
    return read_prepared(out, 256);
  };
  nlohmann::json& its = listed["files"]["train.bin"];
  expect_error(read).names(file).names(description).offers("prepare");  // the size
  its["bytes"] = bytes;
  const PreparedTokens by_size = read();  // as earlier versions listed it, with a hash of all bytes
  CHECK(by_size.fingerprint == fingerprint_of_file(file));
  CHECK(by_size.notes.size() == 1);
  its["sample_sha256"] = by_size.fingerprint.sha256;
  CHECK(read().train.size() == static_cast<int64_t>(bytes / 2));
  write_at(file, bytes - 1, "x");
  expect_error(read).names(file).names(description).offers("prepare");
}

TEST_CASE("token files: a run on 20 GB of tokens starts at once, in little memory, and its first lines say so") {
  const Run run;
  const std::string path = run.folder / "large.bin";
  if (!write_sparse(path, 20'000'000'000)) return;
  const double memory = private_memory();
  const std::clock_t begin = std::clock();
  const Trainer trainer(run.settings({{"data", path},
                                      {"tokenizer", "byte"},
                                      {"validation_tokens", "20"},
                                      {"training_loss_tokens", "20"}}));
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 5);
  CHECK(private_memory() - memory < 200e6);
  const std::vector<std::string> warnings = trainer.task().warnings();
  REQUIRE(!warnings.empty());
  Message(warnings[0]).names(path).value("20,000 MB").value("1 GiB").value("256 blocks").value("checked");
  // Tokens are checked when they are read, not before.
  write_at(path, 2'000'000, "\xFF\xFF");
  const Text text(path, *make_tokenizer("byte", no_text), 0);
  std::vector<int32_t> some(10);
  text.train().read(0, some);
  expect_error([&] { text.train().read(999'995, some); }).names(path).value(1'000'000).value(65535).offers("0 to 255");
}

TEST_CASE("token files: a file that shrinks under a run is an error in a sentence") {
  const Run run;
  const std::string path = run.folder / "tokens.bin";
  write(path, bytes_of(std::vector<uint16_t>(2000, 97)));
  const auto tokenizer = make_tokenizer("byte", no_text);
  const Text text(path, *tokenizer, 0);
  std::filesystem::resize_file(path, 100);
  std::vector<int32_t> some(10);
  text.train().read(0, some);
  expect_error([&] { text.train().read(45, some); }).names(path).value("ended").value(10).value(20);
  write(path, bytes_of(std::vector<uint16_t>(2000, 97)));
  TrainingEvents events;
  events.step = [&](const auto&...) { std::filesystem::resize_file(path, 2); };
  expect_error([&] {
    run.train({{"data", path}, {"tokenizer", "byte"}, {"steps", "50"}}, events);
  })
      .names(path)
      .value("ended")
      .offers("try again");
}
