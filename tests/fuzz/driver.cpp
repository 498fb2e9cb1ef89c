// The formats' own driver, for compilers without libFuzzer and for the tests:
//   orrery_fuzz --list                            names, each with the files that read the format
//   orrery_fuzz FORMAT [--inputs=N] [--seconds=N] [--seed=N] [--corpus=DIR] [--keep=DIR] [--all]
//   orrery_fuzz FORMAT FILE...                    these inputs alone, as they are
//   orrery_fuzz FORMAT --overflow FILE...         and reads the byte behind each, for AddressSanitizer
// Tries the corpus, then mutations of it. An input that breaks a promise, crashes or hangs is
// written to --keep; the exit code is 1 or the signal's. --all continues after a failure.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tests/fuzz/mutation.h"
#include "tests/support/contents.h"
#include "tests/support/sanitizers.h"

#if ORRERY_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

namespace fs = std::filesystem;
using namespace fuzz;
using orrery::testing::contents;

constexpr size_t max_input = 1 << 16;
constexpr unsigned seconds_of_one = 10;

// State of the signal handler, to save the current input: plain memory, no allocation.
std::string_view current;
char kept_path[4096];

void keep_current() {
  const int file = ::open(kept_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(file, current.data(), current.size());
  ::close(file);
  const char before[] = "\ncrash or hang; the input is kept in ";
  [[maybe_unused]] ssize_t ignored = ::write(2, before, sizeof before - 1);
  ignored = ::write(2, kept_path, std::strlen(kept_path));
  ignored = ::write(2, "\n", 1);
}
void on_signal(int number) {
  keep_current();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void watch_signals() {
  static char stack[1 << 16];  // unbounded recursion leaves no other stack
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  ::sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
#if ORRERY_ADDRESS_SANITIZER
  __sanitizer_set_death_callback(keep_current);
  for (const int number : {SIGALRM, SIGABRT}) ::sigaction(number, &action, nullptr);
#else
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) ::sigaction(number, &action, nullptr);
#endif
}

struct Options {
  uint64_t inputs = 0, seconds = 0, seed = 1;
  std::string corpus, keep = ".";
  std::vector<std::string> files;
  bool all = false, overflow = false;
};

class Search {
 public:
  Search(const Format& format, const Options& options) : format_(format), options_(options) {
    std::vector<fs::path> paths(options.files.begin(), options.files.end());
    if (!options.corpus.empty())
      for (const auto& entry : fs::directory_iterator(options.corpus)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      const std::string bytes = contents(path);
      corpus_.push_back(format.prepare ? format.prepare(bytes) : bytes);
    }
  }

  int run() {
    for (const std::string& bytes : corpus_)
      if (!accept(bytes)) return 1;
    const auto start = std::chrono::steady_clock::now();
    const auto time_is_up = [&] {
      return options_.seconds > 0 && std::chrono::steady_clock::now() - start > std::chrono::seconds(options_.seconds);
    };
    const uint64_t max_inputs = options_.inputs == 0 && options_.seconds > 0 ? UINT64_MAX : options_.inputs;
    std::vector<std::string> inputs = corpus_;
    if (inputs.empty()) inputs.push_back("");
    for (uint64_t i = 0; i < max_inputs && !time_is_up(); ++i) {
      Random random(options_.seed * 0x9e3779b97f4a7c15 + i);
      std::string& from = inputs[random.below(inputs.size())];
      std::string bytes = mutated(format_, from, corpus_, max_input, random);
      const uint64_t read_before = read_;
      if (!accept(bytes)) return 1;
      // Accepted inputs are starting points for further mutations, if they are short.
      if (read_ > read_before && bytes.size() < 4096 && random.one_in(8))
        inputs.size() < 4096 ? inputs.push_back(std::move(bytes)) : void(from = std::move(bytes));
    }
    std::cout << format_.name << ": " << tried_ << " inputs, " << read_ << " read, " << tried_ - read_ - failed_
              << " refused, " << failed_ << " failed" << std::endl;
    return failed_ > 0;
  }

 private:
  bool accept(const std::string& bytes) {
    const std::string path = (fs::path(options_.keep) / (format_.name + "_" + std::to_string(tried_))).string();
    std::strncpy(kept_path, path.c_str(), sizeof kept_path - 1);
    current = bytes;
    ++tried_;
    ::alarm(seconds_of_one);
    if (options_.overflow) {
      const std::vector<char> copy(bytes.begin(), bytes.end());
      [[maybe_unused]] const volatile char behind = copy.data()[copy.size()];
    }
    const Verdict verdict = try_input(format_, bytes);
    ::alarm(0);
    if (verdict.failure.empty()) {
      read_ += verdict.read;
      return true;
    }
    ++failed_;
    std::ofstream(path, std::ios::binary) << bytes;
    std::cerr << format_.name << ": " << path << ": " << verdict.failure << std::endl;
    return options_.all;
  }

  const Format& format_;
  const Options& options_;
  std::vector<std::string> corpus_;
  uint64_t tried_ = 0, read_ = 0, failed_ = 0;
};

int list() {
  for (const auto& [name, format] : formats()) {
    std::cout << name;
    for (const std::string& reader : format.readers) std::cout << ' ' << reader;
    std::cout << "\n";
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> all(words + 1, words + count);
  if (all.size() == 1 && all[0] == "--list") return list();
  const auto format = formats().find(all.empty() ? "" : all[0]);
  if (format == formats().end()) {
    std::cerr << "orrery_fuzz: the first word is a format; --list names them\n";
    return 2;
  }
  Options options;
  for (size_t i = 1; i < all.size(); ++i) {
    const auto value = [&](const std::string& key) -> const char* {
      return all[i].starts_with(key) ? all[i].c_str() + key.size() : nullptr;
    };
    if (const char* text = value("--inputs="))
      options.inputs = std::strtoull(text, nullptr, 10);
    else if (const char* text = value("--seconds="))
      options.seconds = std::strtoull(text, nullptr, 10);
    else if (const char* text = value("--seed="))
      options.seed = std::strtoull(text, nullptr, 10);
    else if (const char* text = value("--corpus="))
      options.corpus = text;
    else if (const char* text = value("--keep="))
      options.keep = text;
    else if (all[i] == "--all")
      options.all = true;
    else if (all[i] == "--overflow")
      options.overflow = true;
    else
      options.files.push_back(all[i]);
  }
  watch_signals();
  return Search(format->second, options).run();
}
