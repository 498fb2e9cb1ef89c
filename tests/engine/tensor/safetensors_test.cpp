#include "engine/tensor/safetensors.h"

#include <doctest/doctest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>

#include "engine/system/files.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

namespace orrery {
namespace {

using testing::expect_error;
using testing::Folder;

namespace fs = std::filesystem;

size_t files_in(const Folder& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()));
}

void put(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
// Returns a file with this header and `bytes` zero bytes of data.
std::string file_of(std::string_view header, size_t bytes) {
  const uint64_t length = header.size();
  std::string all(8, '\0');
  std::memcpy(all.data(), &length, 8);
  return all + std::string(header) + std::string(bytes, '\0');
}

std::vector<NamedTensor> some_tensors() {
  return {{"weight", Tensor::from(Shape{2, 3}, {1, -2.5, 3, 4, 5, std::numeric_limits<double>::quiet_NaN()})},
          {"a \"quoted\\name\"\n é", Tensor::from(Shape{2}, {0.1, -0.2}, Dtype::f64)},
          {"half", Tensor::from(Shape{3, 1}, {1, 2, 3.14159}, Dtype::bf16)},
          {"indices", Tensor::from(Shape{4}, std::vector<int32_t>{-1, 0, 7, 2147483647})},
          {"number", Tensor::from(Shape{}, {42})},
          {"empty", Tensor::zeros(Shape{0, 5})}};
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
}

TEST_CASE("tensors are unchanged after writing and reading") {
  const Folder folder;
  const std::vector<NamedTensor> tensors = some_tensors();
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"note", "tab\there"}};
  write_safetensors(folder / "x.safetensors", tensors, metadata);
  const SafetensorsFile read = read_safetensors(folder / "x.safetensors");
  CHECK(read.metadata == metadata);
  REQUIRE(read.tensors.size() == tensors.size());
  for (const NamedTensor& written : tensors) {
    bool found = false;
    for (const NamedTensor& each : read.tensors)
      if (each.name == written.name) {
        found = true;
        CHECK(same_bytes(each.tensor, written.tensor));
      }
    CHECK(found);
  }
  CHECK(files_in(folder) == 1);
}

TEST_CASE("the bytes of a file") {
  const Folder folder;
  const std::vector<NamedTensor> tensors = {{"b", Tensor::from(Shape{1, 2}, {1, 2})},
                                            {"a", Tensor::zeros(Shape{1}, Dtype::f64)}};
  write_safetensors(folder / "x", tensors, {{"format", "pt"}});
  std::string header = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"F64","shape":[1],"data_offsets":[8,16]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string expected = file_of(header, 16);
  const float two[] = {1, 2};
  std::memcpy(expected.data() + 8 + header.size(), two, 8);
  CHECK(read_file(folder / "x") == expected);
  write_safetensors(folder / "y", tensors, {{"format", "pt"}});
  CHECK(read_file(folder / "y") == expected);

  write_safetensors(folder / "none", {});
  CHECK(read_file(folder / "none") == file_of("{}      ", 0));
  CHECK(read_safetensors(folder / "none").tensors.empty());
  const std::vector<NamedTensor> one = {{"a", Tensor::zeros(Shape{1})}};
  write_safetensors(folder / "one", one);
  CHECK(read_safetensors(folder / "one").metadata.empty());
}

TEST_CASE("tensors that other programs wrote") {
  const SafetensorsFile golden = read_safetensors(ORRERY_SOURCE_DIR "/tests/golden/layers.safetensors");
  CHECK(golden.tensors.size() > 50);

  const Folder folder;  // F16, spaces, escapes, reordered fields
  std::string bytes =
      file_of("{ \"\\u0061\\ud83d\\ude00\" : {\"data_offsets\":[0,14],\n\"shape\":[7], \"dtype\":\"F16\"} }", 14);
  const uint16_t halves[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0x7C00, 0x3555};
  std::memcpy(bytes.data() + bytes.size() - 14, halves, 14);
  put(folder / "x", bytes);
  const SafetensorsFile file = read_safetensors(folder / "x");
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors[0].name == "a\xF0\x9F\x98\x80");
  CHECK(file.tensors[0].tensor.dtype() == Dtype::f32);
  const std::vector<double> expected = {
      1, -2, 65504, 0x1p-24, -0.0, std::numeric_limits<double>::infinity(), 0.333251953125};
  CHECK(file.tensors[0].tensor.to_vector() == expected);
  CHECK(std::signbit(file.tensors[0].tensor.to_vector()[4]));
}

TEST_CASE("a damaged file has an error message") {
  const Folder folder;
  const std::string path = folder / "x";
  const auto error = [&](const std::string& bytes) {
    put(path, bytes);
    return expect_error([&] { read_safetensors(path); }).names("safetensors").names(path);
  };
  const auto damaged = [&](const std::string& header, size_t bytes) {
    return error(file_of(header, bytes)).names("damaged");
  };
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  put(path, file_of(good, 8));
  CHECK(read_safetensors(path).tensors.size() == 1);
  error("").names("cut short").value("0 bytes").names("header");
  error("1234567").names("cut short").value("7 bytes").names("header");
  error("some text in another format").names("header").value(8675467939688574835);
  error(file_of(good, 8).substr(0, 20)).names("cut short").value(20).names("header").value(62).offers("copied");
  error(file_of(good, 5)).names("cut short").value(8).value(5).offers("copied");
  damaged(good, 9).value(9).value(8).offers("download");
  const struct {
    std::string header;
    size_t bytes;
    const char *what, *where;
  } headers[] = {{"", 0, "'{'", "byte 0"},
                 {" " + good, 8, "'{'", "byte 0"},
                 {"{\"a\":", 0, "'{'", "byte 5"},
                 {good + "}", 8, "end", "byte 54"},
                 {"{\"\\x\":{}}", 0, "escape", "byte 4"},
                 {"{\"\\u00g0\":{}}", 0, "escape", "byte 7"},
                 {"{\"\\ud800\":{}}", 0, "surrogate pair", "byte 8"},
                 {"{\"\\ud800\\u0041\":{}}", 0, "surrogate pair", "byte 14"},
                 {"{\"a\nb\":{}}", 0, "control character", "byte 3"},
                 {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "whole number", "byte 29"}};
  for (const auto& [header, bytes, what, where] : headers)
    damaged(header, bytes).names("header").names(what).value(where).offers("download");
  damaged("{\"a", 0).names("header").names("ends").names("string");
  damaged(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})", 8)
      .value("byte 29")
      .names("header")
      .names("too large");
  for (const char* tensor : {R"({"dtype":"F32","shape":[2]})", R"({"dtype":"F32","shape":[2],"data_offsets":[8]})"})
    damaged(text("{\"a\":", tensor, "}"), 8).names("'a'").offers("dtype").offers("shape").offers("two data_offsets");
  damaged(R"({"a":{"dtype":"F32","shape":[2],"shape":[2]}})", 8).names("'a'").value("two").names("shape");
  damaged(R"({"a":{"size":[2]}})", 8).names("'a'").names("field").value("'size'");
  const std::pair<const char*, size_t> displaced[] = {
      {R"("F32","shape":[3],"data_offsets":[0,8])", 8},
      {R"("F32","shape":[2],"data_offsets":[8,0])", 8},
      {R"("F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0])", 0},
      {R"("F32","shape":[0,18446744073709551615],"data_offsets":[0,0])", 0},
      {R"("I64","shape":[1],"data_offsets":[0,4])", 4},
      {R"("F4","shape":[3],"data_offsets":[0,1])", 1}};
  for (const auto& [tensor, bytes] : displaced)
    damaged(text(R"({"a":{"dtype":)", tensor, "}}"), bytes).names("data_offsets").names("'a'").names("shape");
  error(file_of(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4))
      .names("'a'")
      .value("7 axes")
      .offers(6);
  error(file_of(R"({"a":{"dtype":"U9","shape":[4],"data_offsets":[0,4]}})", 4)).names("'a'").names("dtype").value("U9");
  damaged(R"({"__metadata__":{"a":"1","a":"2"}})", 0).names("metadata").value("'a'").names("twice");
  const std::string one = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  damaged("{\"a\":" + one + ",\"a\":" + one + "}", 4).names("'a'").names("twice");
  damaged("{\"a\":" + one + ",\"b\":" + one + "}", 4).names("'b'").value("byte 0").offers(4);
  damaged(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8).names("'a'").value("byte 4").offers(0);
}

TEST_CASE("tensors of unsupported dtypes are returned as bytes, and the others are read") {
  const Folder folder;
  std::string bytes = file_of(R"({"ids":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                              R"("mask":{"dtype":"BOOL","shape":[1,1,1,1,1,1,1,3],"data_offsets":[16,19]},)"
                              R"("four":{"dtype":"F4","shape":[2],"data_offsets":[19,20]},)"
                              R"("x":{"dtype":"F32","shape":[1],"data_offsets":[20,24]}})",
                              24);
  bytes[bytes.size() - 24] = 7;
  put(folder / "x", bytes);
  const SafetensorsFile file = read_safetensors(folder / "x");
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors[0].name == "x");
  REQUIRE(file.others.size() == 3);
  CHECK(file.others[0].dtype == "I64");
  CHECK(file.others[0].shape == std::vector<int64_t>{2});
  CHECK(file.others[0].bytes.size() == 16);
  CHECK(file.others[0].bytes[0] == std::byte{7});
  CHECK(file.others[1].shape.size() == 8);
  CHECK(file.others[2].bytes.size() == 1);
}

TEST_CASE("reading never crashes if any byte of the header is changed or missing") {
  const Folder folder;
  write_safetensors(folder / "x", some_tensors(), {{"format", "pt"}});
  const std::string whole = read_file(folder / "x");
  for (size_t length = 0; length < whole.size(); ++length) {
    put(folder / "y", std::string_view(whole).substr(0, length));
    CHECK_THROWS_AS(read_safetensors(folder / "y"), Error);
  }
  for (size_t at = 0; at < whole.size(); ++at)
    for (const char replacement : {'\0', '9', '"', '}', '\xff'}) {
      std::string changed = whole;
      changed[at] = replacement;
      put(folder / "y", changed);
      try {
        read_safetensors(folder / "y");
      } catch (const Error&) {
      }
    }
}

TEST_CASE("files that cannot be read or written") {
  const Folder folder;
  const std::string none = folder / "none", here = folder.path.string(), missing = "No such file or directory";
  expect_error([&] { read_safetensors(none); }).names("read").names(none).value(missing);
  expect_error([&] { read_safetensors(here); }).names("read").names(here).value("folder").offers("regular files");
  expect_error([&] { read_file(none); }).names("read").names(none).value(missing);
  expect_error([&] { read_file(here); }).names("read").names(here).value("folder").offers("regular files");
  expect_error([&] { write_file_atomically(none + "/x", "text"); }).names("write").names(none + "/x").value(missing);
  expect_error([&] { sync_folder(none); }).names("write").names("folder " + none).value(missing);
  const std::vector<NamedTensor> twice = {{"a", Tensor::zeros(Shape{1})}, {"a", Tensor::zeros(Shape{1})}},
                                 nothing = {{"a", Tensor()}};
  expect_error([&] { write_safetensors(folder / "x", twice); }).names("safetensors").value("'a'").offers("differ");
  expect_error([&] { write_safetensors(folder / "x", nothing); }).names("safetensors").names("'a'").value("undefined");
  CHECK(files_in(folder) == 0);
}

TEST_CASE("a failed write leaves the old file unchanged and no other file") {
  const Folder folder;
  const std::string path = folder / "state.json";
  write_file_atomically(path, "before");
  CHECK(read_file(path) == "before");
  CHECK_THROWS_AS(write_file_atomically(path,
                                        [](FileWriter& file) {
                                          file.write("half");
                                          fail("thought better of it");
                                        }),
                  Error);
  CHECK(read_file(path) == "before");
  CHECK(files_in(folder) == 1);

  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  const rlimit small = {1000, old.rlim_max};
  const auto write_much = [&] {
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const std::shared_ptr<void> at_end(nullptr, [&](void*) { CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0); });
    write_file_atomically(path, std::string(5000, 'x'));
  };
  expect_error(write_much).names("write").names(path).value("File too large");
  std::signal(SIGXFSZ, before);
  CHECK(read_file(path) == "before");
  CHECK(files_in(folder) == 1);
  write_file_atomically(path, "after");
  CHECK(read_file(path) == "after");
}

TEST_CASE("a file that differs from what was written is an error") {
  const Folder folder;
  const std::string path = folder / "x";
  const std::vector<NamedTensor> tensors = {{"a", Tensor::full(Shape{2}, 1)}};
  write_safetensors(path, tensors);
  check_written(path, tensors);
  const std::string written = read_file(path);
  const auto read_back = [&](const std::string& content) {
    write_file_atomically(path, content);
    return expect_error([&] { check_written(path, tensors); }).names("safetensors").names(path);
  };
  read_back(written + "x").value("longer").offers("check the disk");
  read_back(written.substr(0, written.size() - 1) + "x").value("differs").offers("check the disk");
}

TEST_CASE("a full disk") {
  const Folder folder;
  if (::mount("tmpfs", folder.path.string().c_str(), "tmpfs", 0, "size=64k") != 0) {
    MESSAGE("left out: no right to mount a small disk");
    return;
  }
  const std::vector<NamedTensor> small = {{"a", Tensor::full(Shape{1000}, 1)}},
                                 large = {{"a", Tensor::full(Shape{100000}, 2)}};
  write_safetensors(folder / "x", small);
  expect_error([&] { write_safetensors(folder / "x", large); })
      .names("write")
      .names(folder / "x")
      .value("No space left on device");
  CHECK(read_safetensors(folder / "x").tensors[0].tensor.to_vector()[999] == 1);
  CHECK(files_in(folder) == 1);
  CHECK(::umount(folder.path.string().c_str()) == 0);
}

}  // namespace
}  // namespace orrery
