// Tests every format on its corpus and thousands of mutations, in a separate program: a crash ends
// only that program, and its input is kept. sh tests/fuzz.sh SECONDS runs for longer.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/types/ascii.h"
#include "tests/support/contents.h"
#include "tests/support/folder.h"
#include "tests/support/sanitizers.h"

namespace {

namespace fs = std::filesystem;
using orrery::testing::contents;
using orrery::testing::Folder;

const fs::path root = ORRERY_SOURCE_DIR;
const fs::path corpus = root / "tests" / "fuzz" / "corpus";

struct RunResult {
  int code;
  std::string output;  // stdout and stderr
};
RunResult run_fuzz(const Folder& folder, const std::string& words) {
  const std::string output = folder / "output";
  const int status = std::system(("'" ORRERY_FUZZ_PROGRAM "' " + words + " > '" + output + "' 2>&1").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(output)};
}

std::map<std::string, std::set<std::string>> readers_by_format() {
  const Folder folder;
  const RunResult ran = run_fuzz(folder, "--list");
  REQUIRE(ran.code == 0);
  std::map<std::string, std::set<std::string>> all;
  std::istringstream lines(ran.output);
  for (std::string line, name, reader; std::getline(lines, line);) {
    std::istringstream words(line);
    words >> name;
    while (words >> reader) all[name].insert(reader);
  }
  return all;
}

// Returns whether a file reads bytes or text from outside and interprets them.
bool reads_foreign_bytes(const std::string& code) {
  const auto holds = [&](const std::string& word) {
    for (size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1))
      if (at == 0 || !(orrery::is_letter_or_digit(code[at - 1]) || code[at - 1] == '_')) return true;
    return false;
  };
  for (const char* word : {"read_file(", "FileReader",  "parse_json(",  "read_text(",   "ifstream",    "fopen(",
                           "::open(",    "mmap(",       "Json::parse(", "json::parse(", "toml::parse", "dlopen(",
                           "std::regex", "std::sregex", "from_chars(",  "sscanf(",      "stoi(",       "stol(",
                           "stoll(",     "stoul(",      "stoull(",      "stof(",        "stod(",       "strto"})
    if (holds(word)) return true;
  return false;
}

// Files that do so without a format, each with the reason.
const std::map<std::string, std::string> no_formats = {
    {"engine/system/files.h", "declares functions that return the bytes of a file"},
    {"engine/system/files.cpp", "returns the bytes of a file and parses none"},
    {"engine/system/hash.h", "declares functions that hash the bytes of a file"},
    {"engine/system/hash.cpp", "hashes the bytes of a file"},
    {"engine/system/machine_memory.cpp", "reads the memory limits of the system"},
    {"examples/orrery/terminal/process_io.cpp", "opens only /dev/null"},
    {"models/formats/json.h", "declares the functions of json.cpp"},
    {"engine/system/folder_lock.cpp", "shows the number in a lock file; only the lock itself matters"},
    {"examples/orrery/commands/bench.cpp", "parses its own output"},
    {"engine/system/subprocess.cpp", "shows the last error message of a run"},
    {"engine/distributed/launcher.cpp", "opens the library that the build made for an MPI"},
    {"examples/orrery/commands/train_ranks.cpp", "opens only /dev/null"},
    {"examples/orrery/commands/verify_resume.cpp", "shows the error message of a run"},
    {"engine/system/compiler.cpp", "shows the output of a compiler"},
    {"examples/orrery/commands/metrics.cpp",
     "passes the header of a table to csv.cpp and compares the rest with its own rows"},
    {"examples/orrery/commands/example_argument.cpp", "converts the number of an example, which was read as a setting"},
    {"examples/orrery/commands/sweep.cpp", "converts seeds that were read as settings"},
    {"examples/orrery/commands/run_pool.cpp", "opens files only to lock them"},
    {"examples/orrery/commands/try.cpp", "passes a formula's source to formula_source.cpp and to the compiler"},
};

}  // namespace

TEST_CASE("fuzz: every source file that reads external bytes belongs to a format") {
  std::set<std::string> known;
  for (const auto& format : readers_by_format()) {
    CHECK_MESSAGE(!format.second.empty(), format.first, " has no reader");
    for (const std::string& reader : format.second) {
      CHECK_MESSAGE(fs::exists(root / reader), format.first, " names ", reader, ", which does not exist");
      known.insert(reader);
    }
  }
  for (const auto& file : no_formats)
    CHECK_MESSAGE(fs::exists(root / file.first), file.first, " is listed here, but does not exist");
  for (const char* layer : {"engine", "nn", "models", "cuda", "examples/orrery"})
    for (const auto& entry : fs::recursive_directory_iterator(root / layer)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (!entry.is_regular_file() || no_formats.contains(path) || !reads_foreign_bytes(contents(entry.path())))
        continue;
      CHECK_MESSAGE(known.contains(path), path, " reads external bytes; add it to a format in tests/fuzz");
    }
  CHECK(reads_foreign_bytes("const auto j = Json::parse(in);"));
  CHECK(reads_foreign_bytes("return std::stoll(name);"));
  CHECK(!reads_foreign_bytes("reopen(file)"));
}

TEST_CASE("fuzz: every format has a corpus, and every corpus has a format") {
  std::set<std::string> formats, folders;
  for (const auto& [format, readers] : readers_by_format()) formats.insert(format);
  for (const auto& entry : fs::directory_iterator(corpus)) {
    folders.insert(entry.path().filename().string());
    const auto files = std::distance(fs::directory_iterator(entry.path()), fs::directory_iterator());
    CHECK_MESSAGE(files >= 5, entry.path().filename().string(), " has ", files, " inputs; at least 5 are required");
  }
  CHECK(formats.size() >= 9);
  CHECK(formats == folders);
}

TEST_CASE("fuzz: an input at which AddressSanitizer ends the program is kept") {
  if (!orrery::address_sanitizer) return;
  const Folder folder;
  std::ofstream(folder / "input") << "twenty bytes of text";
  const RunResult ran =
      run_fuzz(folder, "text --overflow --keep='" + folder.path.string() + "' '" + folder / "input" + "'");
  CHECK(ran.output.find("heap-buffer-overflow") != std::string::npos);
  CHECK(contents(folder / "text_0") == "twenty bytes of text");
}

TEST_CASE("fuzz: the corpus and thousands of mutations are read or have an error message") {
  const Folder folder;
  for (const auto& each : readers_by_format()) {
    const std::string& format = each.first;
    CAPTURE(format);
    const RunResult ran =
        run_fuzz(folder, format + " --inputs=3000 --seconds=5 --seed=13 --corpus='" + (corpus / format).string() +
                             "' --keep='" + fs::temp_directory_path().string() + "'");
    INFO(ran.output);
    CHECK(ran.code == 0);
    CHECK(ran.output.find(" 0 failed") != std::string::npos);
    // A target that refuses every input tests only its first check. No plug-in is ever read.
    CHECK((format == "plugin" || ran.output.find(" 0 read") == std::string::npos));
  }
}
