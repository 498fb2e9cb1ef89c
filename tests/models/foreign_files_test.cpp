// Files of other programs: the memory that reading takes, and checks before a parser runs.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/tensor/safetensors.h"
#include "models/data/sentence_piece.h"
#include "models/data/text.h"
#include "models/formats/json.h"
#include "models/formats/unicode.h"
#include "models/settings/settings_file.h"
#include "models/settings/toml.h"
#include "models/training/settings.h"
#include "tests/support/message.h"
#include "tests/support/sanitizers.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;
using orrery::testing::expect_error;
using orrery::testing::Message;

class File {
 public:
  explicit File(const std::string& bytes)
      : path_((fs::temp_directory_path() / text("orrery_foreign_", ::getpid())).string()) {
    write_file_atomically(path_, bytes);
  }
  ~File() { fs::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Returns the peak bytes of a child process that calls `work`; an Error is allowed.
int64_t memory_of(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work();
    } catch (const Error&) {
    }
    ::_exit(0);
  }
  rusage use = {};
  int status = 0;
  REQUIRE(::wait4(child, &status, 0, &use) == child);
  CHECK(status == 0);
  return use.ru_maxrss * 1024;
}
// Returns bytes of memory per byte of the file. AddressSanitizer's red zones count too.
double memory_of_reading(const std::string& bytes, const std::function<void(const std::string& path)>& read) {
  const File file(bytes);
  const int64_t without = memory_of([] {});
  constexpr double overhead = address_sanitizer ? 2 : 1;
  const auto more = static_cast<double>(memory_of([&] { read(file.path()); }) - without);
  return more / overhead / static_cast<double>(bytes.size());
}

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string safetensors(std::string header, size_t data) {
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\0');
}

Message toml_error(const std::string& toml) {
  return expect_error([&] { check_toml(toml, "f"); });
}
Message json_error(const std::string& json) {
  return expect_error([&] { parse_json(json, "f"); });
}

}  // namespace

TEST_CASE("foreign files: a safetensors file takes at most 16 times its size of memory") {
  const auto read = [](const std::string& path) { read_safetensors(path); };
  std::string header = "{";
  constexpr size_t tensors = 100'000;
  for (size_t i = 0; i < tensors; ++i)
    header += text(i ? "," : "", "\"", i, "\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[", 2 * i, ",",
                   2 * i + 2, "]}");
  CHECK(memory_of_reading(safetensors(header + "}", 2 * tensors), read) < 16);
  std::string empty = "{";
  for (size_t i = 0; i < tensors; ++i)
    empty += text(i ? "," : "", "\"", i, "\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]}");
  CHECK(memory_of_reading(safetensors(empty + "}", 0), read) < 16);
  CHECK(memory_of_reading(safetensors("{\"a\":{\"shape\":[1" + repeated(",1", 3'000'000), 0), read) < 16);
  CHECK(memory_of_reading(safetensors("{\"" + repeated("\\n", 3'000'000), 0), read) < 16);
  std::string metadata = "{\"__metadata__\":{";
  for (size_t i = 0; i < tensors; ++i) metadata += text(i ? "," : "", "\"", i, "\":\"\"");
  CHECK(memory_of_reading(safetensors(metadata + "}}", 0), read) < 16);
}

TEST_CASE("foreign files: JSON takes at most 64 times its size of memory, TOML 256, a text 8") {
  const auto json = [](const std::string& path) { parse_json(read_file(path, max_json_bytes), path); };
  CHECK(memory_of_reading("[" + repeated("[],", 900'000) + "[]]", json) < 64);
  CHECK(memory_of_reading("[" + repeated("{\"\":{}},", 900'000) + "1]", json) < 64);
  CHECK(memory_of_reading("[" + repeated("1,", 999'000) + "1]", json) < 64);
  const auto toml = [](const std::string& path) {
    TrainSettings known;
    read_settings_file(path, settings_of(known));
  };
  std::string settings;
  for (int i = 0; i < 1'900; ++i) settings += text("a", i, "={}\n") + repeated(" ", 90) + "\n";
  CHECK(memory_of_reading(settings + repeated("\n", 800'000), toml) < 256);
  const auto words = [](const std::string& path) { Text(path, *make_tokenizer("character", path)); };
  CHECK(memory_of_reading(repeated("some text\n", 1'000'000), words) < 8);
}

TEST_CASE("foreign files: the memory of JSON is limited by its number of bytes") {
  std::string many = "{\"a\": 1";
  for (int i = 0; i < 30'000; ++i) many += text(", \"", i, "\": ", i);
  const Json json = parse_json(many + "}", "f");
  CHECK(json.size() == 30'001);
  CHECK(whole_number_member(json, "29999", "f") == 29'999);
  CHECK(parse_large_json("[" + repeated("[\"a\",\"b\"],", 700'000) + "1]", "f").size() == 700'001);
  CHECK(parse_json(R"({"b": 1, "a": 2})", "f").dump() == R"({"b":1,"a":2})");  // keeps the file's order
}

TEST_CASE("foreign files: SentencePiece needs few bytes of memory per byte of a Chinese text") {
  std::string text, word;
  for (uint32_t i = 0, drawn = 1; text.size() < 4'000'000; ++i) {
    drawn = drawn * 1664525 + 1013904223;
    text += utf8(0x4e00 + (drawn >> 16) % 300);
    if (i % 30 == 29) text += i % 60 == 29 ? "\xe3\x80\x82\n" : " ";
  }
  const auto tokenizer = train_sentence_piece(text.substr(0, 60'000), {.vocabulary = 600});
  std::string one_word = text;
  std::erase_if(one_word, [](char c) { return c == ' ' || c == '\n'; });
  std::string lines = text;  // without spaces, as in tests/cases/sentence_piece_memory
  std::erase(lines, ' ');
  for (const std::string& one : {text, one_word, lines}) {
    const auto encode = [&](const std::string& path) { tokenizer->encode(read_file(path)); };
    CHECK(memory_of_reading(one, encode) < 15);  // 75 if the library gets the text at once
  }
}

TEST_CASE("foreign files: preconditions of the TOML parser are checked before it runs") {
  toml_error("[ = 1]").names("f:1").names("table").value("name");
  toml_error("a = 1\n  [[ ]]").names("f:2").names("table").value("name");
  for (const char* missing : {"a = \nb = 1", "a =", "a = ,", "a = # 1", "a = { b = }", "a = [1,,2]", "a = [,]"}) {
    CAPTURE(missing);
    toml_error(missing).names("f:1").names("value").value("missing");
  }
  for (const char* odd : {"a = 1979-05-27TT07:32:00", "a = 07:32", "a = 0x", "a = 1__0", "a = 1_", "a = .5", "a = 5.",
                          "a = 1e", "a = truely", "a = 01", "a = [1, -]"}) {
    CAPTURE(odd);
    toml_error(odd).names("f:1").offers("number").offers("true").offers("false").offers("quotes");
  }
  toml_error("a = 'b\n'").names("f:1").names("quotes").value("closing quote");
  toml_error("a = \"\"\"b\\\n c\"\"\"").names("f:1").names("escape").value("backslash");
  toml_error("a = 1\rb = 2").names("f:1").names("control character");
  toml_error("a = 1 ; b").names("f:1").names("character").value("outside of quotes");
  for (const char* closed : {"a = [1, }", "a = 1 }"}) toml_error(closed).names("f:1").names("bracket").value("opening");
  for (const char* right :
       {"",
        "\xEF\xBB\xBF"
        "a = 1\r\n",
        "a.b.c = -1_000.5e+3 # [\n[t.'u.v']\nx = [ 1, 2,\n 3, ]\n[[s]]\n", "a = { b = \"}\", c = [], d = {} }",
        "a = \"\"\"one\n\"two\" \\\"\"\"\"", "a = '''it's'''\nb = inf\nc = -nan",
        "a = [0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3]"})
    CHECK_NOTHROW_MESSAGE(check_toml(right, "f"), right);
}

TEST_CASE("foreign files: invalid JSON is reported with line and column, a wrong member with its key") {
  json_error("{\"a\": 1,\n \"b\" 2}").names("f: line 2, column 6").value("invalid JSON");
  json_error("").names("f: line 1, column 1").value("JSON ends");
  json_error("\xff").names("f: line 1, column 1").value("invalid JSON");
  json_error("[1e999]").names("f").names("number").value("large");
  CHECK_NOTHROW(parse_json(repeated("[", 64) + repeated("]", 64), "f"));
  json_error("\n" + repeated("[", 65)).names("f: line 2").offers(64);
  CHECK_NOTHROW(parse_json("[\"" + repeated("[", 1000) + "\\\"" + repeated("{", 1000) + "\"]", "f"));
  const Json json = parse_json("{\"a\": 1, \"b\": \"x\", \"c\": 1.5, \"d\": 18446744073709551615}", "f");
  CHECK(whole_number_member(json, "a", "f") == 1);
  CHECK(number_member(json, "a", "f") == 1);
  CHECK(text_member(json, "b", "f") == "x");
  for (const auto& [key, value] : {std::pair("b", "\"x\""), {"c", "1.5"}, {"d", "18446744073709551615"}})
    expect_error([&, key = key] { whole_number_member(json, key, "f"); })
        .names("f")
        .names(key)
        .value(value)
        .offers("whole")
        .offers("2^63");
  expect_error([&] { number_member(json, "e", "f"); }).names("f").names("'e'").value("missing");
}

TEST_CASE("foreign files: Infinity and NaN, which Python writes, are not numbers and do not hide other members") {
  const Json json = parse_json(R"({"a": Infinity, "b": [-Infinity, 1, NaN], "c": "NaN \" Infinity", "d": 2})", "f");
  CHECK(json["a"] == "Infinity");
  CHECK(json["b"] == Json::array({"-Infinity", 1, "NaN"}));
  CHECK(json["c"] == "NaN \" Infinity");
  CHECK(number_member(json, "d", "f") == 2);
  json_error(R"({"a": Infinity, "b": Inf})").names("f: line 1, column");
  expect_error([&] { number_member(json, "a", "f"); }).names("a").value("Infinity").offers("number");
}

}  // namespace orrery::models
