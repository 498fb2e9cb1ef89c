#include "tests/fuzz/format.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>

#include "engine/tensor/storage.h"
#include "engine/types/check.h"
#include "tests/fuzz/memory.h"

namespace fuzz {
namespace {

namespace fs = std::filesystem;

// A folder emptied before each input; in /dev/shm if possible, because files take most of the time.
class Scratch {
 public:
  Scratch() {
    const fs::path ram_folder = "/dev/shm";
    std::error_code ignored;
    const fs::path parent = fs::is_directory(ram_folder, ignored) ? ram_folder : fs::temp_directory_path();
    std::string pattern = (parent / "orrery_fuzz_XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("no folder for files in " + parent.string());
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  const std::string& empty() const {
    for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
    return path_;
  }

 private:
  std::string path_;
};

// Returns a term of libraries or C++ that no message may contain unless the input does, or "".
std::string foreign_words(std::string_view sentence, std::string_view input) {
  for (const char* word : {"json.exception", "std::", "bad_alloc", "basic_", "filesystem error", "stoll", "stoi",
                           "vector::", "map::", "length_error"})
    if (sentence.find(word) != std::string_view::npos && input.find(word) == std::string_view::npos) return word;
  return {};
}

}  // namespace

void promise(bool holds, const std::string& what) {
  if (!holds) throw Broken{what};
}

void put(const std::string& path, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written = ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  if (::close(file) != 0 || !written) throw std::runtime_error("cannot write " + path);
}

std::map<std::string, Format>& formats() {
  static std::map<std::string, Format> all;
  return all;
}
bool add_format(Format format) {
  const std::string name = format.name;
  return formats().emplace(name, std::move(format)).second;
}

Verdict try_input(const Format& format, std::string_view bytes) {
  static const Scratch scratch;
  const std::string& folder = scratch.empty();
  orrery::release_cached(orrery::Device::cpu);
  Verdict verdict;
  reset_memory_peak();
  const size_t before = memory_held();
  try {
    format.read(folder, bytes);
    verdict.read = true;
  } catch (const orrery::Error& error) {
    if (const std::string word = foreign_words(error.what(), bytes); !word.empty())
      verdict.failure = "the error message contains '" + word + "': " + error.what();
    else if (*error.what() == '\0')
      verdict.failure = "an Error without a message";
  } catch (const Broken& broken) {
    verdict.failure = "a broken promise: " + broken.what;
  } catch (const std::exception& error) {
    verdict.failure = std::string("an exception that is not an Error: ") + error.what();
  } catch (...) {
    verdict.failure = "a thrown value that is not an exception";
  }
  const size_t taken = memory_peak() - before, allowed = format.memory_multiple * bytes.size() + format.memory_base;
  if (verdict.failure.empty() && taken > allowed)
    verdict.failure = "takes " + std::to_string(taken) + " bytes of memory for " + std::to_string(bytes.size()) +
                      "; at most " + std::to_string(allowed) + " are allowed";
  return verdict;
}

}  // namespace fuzz
