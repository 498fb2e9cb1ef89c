// The formats that the program reads, and requirements for any bytes that a reader receives:
//   - it reads them or throws orrery::Error with our message, not a parser's;
//   - accepted bytes keep the format's promise, such as "equal when written and read again";
//   - it takes no more memory than the format states, as a multiple of the input's size.
// A format is a file here with REGISTER_FORMAT. fuzz_test.cpp fails if a file of the tree reads
// foreign bytes and no format names it, or if a format has no corpus.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/random.h"

namespace fuzz {

// Returns the punctuation of JSON and difficult values, then the format's own terms.
inline std::vector<std::string> json_words(std::vector<std::string> own) {
  own.insert(own.begin(), {"{", "}", "[", "]", ",", ":", "\"", "null", "true", "1e300", "-1"});
  return own;
}

using Mutate = std::string (*)(std::string_view bytes, Random& random);

struct Format {
  std::string name;
  std::vector<std::string> readers;  // files of the tree that read this format
  // Passes the bytes to the reader; `folder` is empty. Throws Broken if a promise does not hold.
  void (*read)(const std::string& folder, std::string_view bytes);
  size_t memory_multiple, memory_base;  // bytes taken <= multiple * size + base
  std::vector<std::string> words = {};  // terms of the format; mutations insert them
  Mutate mutate = nullptr;              // mutates by the format's structure; applied to half of the inputs
  std::string (*prepare)(std::string_view bytes) = nullptr;  // applied first to each file of the corpus
};

struct Broken {  // a promise that did not hold
  std::string what;
};
void promise(bool holds, const std::string& what);
// Writes a file for a reader, without safeguards: tests read millions of files.
void put(const std::string& path, std::string_view bytes);

std::map<std::string, Format>& formats();
bool add_format(Format format);
// `name` has only letters, digits and _.
#define REGISTER_FORMAT(name, ...) [[maybe_unused]] static const bool registered_##name = fuzz::add_format(__VA_ARGS__)

struct Verdict {
  bool read = false;    // false: refused
  std::string failure;  // empty: no failure
};
Verdict try_input(const Format& format, std::string_view bytes);

}  // namespace fuzz
