#include "tests/support/message.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <utility>
#include <vector>

#include "models/formats/replaced.h"

namespace orrery::testing {
namespace {

const std::string sources = ORRERY_SOURCE_DIR "/", golden_file = sources + "tests/golden/messages.txt";

using Lines = std::set<std::string>;
using Sections = std::map<std::string, Lines>;  // by test file

Sections read_sections() {
  Sections sections;
  std::ifstream in(golden_file);
  Lines* section = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("  "))
      section->insert(line.substr(2));
    else if (line.ends_with(".cpp"))
      section = &sections[line];
  }
  return sections;
}

void write_sections(const Sections& sections) {
  std::ofstream out(golden_file);
  out << "The errors that the tests expect, below the test file: tests/support/message.h.\n"
         "Written by sh tests/messages.sh\n";
  for (const auto& [file, lines] : sections) {
    out << "\n" << file << "\n";
    for (const std::string& line : lines) out << "  " << line << "\n";
  }
}

// Replaces text that depends on the machine or on any change of the sources: line numbers, process
// ids, run ids, hashes, amounts of memory and lists of names.
std::string without_numbers_of_a_machine(const std::string& text) {
  static const std::vector<std::pair<std::regex, std::string>> forms = {
      {std::regex("(\\.cpp|\\.cu):[0-9]+"), "$1:LINE"},
      {std::regex("process [0-9]+"), "process ID"},
      {std::regex("[0-9a-f]{16}-[0-9a-f]{12}"), "RUN"},
      {std::regex("[0-9a-f]{64}|SHA-256 [0-9a-f]{12}"), "SHA-256"},
      {std::regex("[0-9][0-9,.]* (KB|MB|GB)"), "N $1"},
      {std::regex("[a-z][a-z0-9_()=|.]*(, [a-z][a-z0-9_()=|.]*){3,}"), "NAMES"},  // of a family that may grow
  };
  std::string result = text;
  for (const auto& [form, name] : forms) result = std::regex_replace(result, form, name);
  return result;
}

// Returns the message as one line of ASCII without the folders of this machine.
std::string as_line(std::string message) {
  constexpr size_t max_length = 800, random_letters = 6;
  const std::string folder = (std::filesystem::temp_directory_path() / "orrery_").string();
  for (size_t at = message.find(folder); at != message.npos; at = message.find(folder, at))
    message.replace(at, folder.size() + random_letters, "TMP");
  message = models::replaced(std::move(message), sources, "SOURCES/");
  message = without_numbers_of_a_machine(message);
  std::string line;
  for (const char c : message) {
    constexpr const char* digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f)
      line += c;
    else if (c == '\n')
      line += "\\n";
    else
      line += {'\\', 'x', digits[byte / 16], digits[byte % 16]};
  }
  return line.size() > max_length ? line.substr(0, max_length) + " ..." : line;
}

// Returns whether `line` matches `golden`, in which * stands for any characters.
bool fits(std::string_view line, std::string_view golden) {
  const size_t star = golden.find('*');
  if (star == golden.npos) return line == golden;
  if (!line.starts_with(golden.substr(0, star))) return false;
  for (size_t begin = star; begin <= line.size(); ++begin)
    if (fits(line.substr(begin), golden.substr(star + 1))) return true;
  return false;
}

const Sections golden = read_sections();  // read before a test drops privileges

// Collects this process's messages and writes them to the golden file at exit.
class Update {
 public:
  ~Update() {
    if (owner_ != ::getpid() || met_.empty()) return;
    Sections all = read_sections();
    for (auto& [file, lines] : met_) all[file] = std::move(lines);
    write_sections(all);
  }
  static bool update_requested() { return std::getenv("ORRERY_UPDATE_MESSAGES") != nullptr; }
  void add(const std::string& file, const std::string& line) { met_[file].insert(line); }

 private:
  Sections met_;
  pid_t owner_ = ::getpid();  // a forked child does not write
};

}  // namespace

void check_golden(const std::string& message) {
#if defined(ORRERY_CUDA_BUILD)
  return;  // messages of a GPU differ
#endif
  static Update update;
  const doctest::TestCaseData* const test = doctest::getContextOptions()->currentTest;
  const std::string path = test->m_file.c_str(), folder = "/tests/";  // the sources may have been copied
  const std::string file = path.substr(path.rfind(folder) + 1);
  const std::string line = as_line(message);
  const auto section = golden.find(file);
  if (section != golden.end())
    for (const std::string& known : section->second)
      if (fits(line, known)) return Update::update_requested() ? update.add(file, known) : void();
  if (Update::update_requested()) return update.add(file, line);
  FAIL_CHECK("the wording of an error is not in tests/golden/messages.txt, which sh tests/messages.sh writes: ", line);
}

}  // namespace orrery::testing
