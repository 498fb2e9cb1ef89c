// The formats that the program reads, and what must hold for any bytes given to the reader of one:
//   - it reads them or throws orrery::Error, whose sentence is ours and not a parser's;
//   - what it read keeps the format's promise, such as "written and read again it is the same";
//   - it takes no more memory than the format states, as a multiple of the input's size.
// A format is a file here with REGISTER_FORMAT.  fuzz_test.cpp fails if a file of the tree reads foreign bytes and no
// format names it, or if a format has no corpus.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/random.h"

namespace fuzz {

// The signs of JSON and values that are hard, then the format's own words.
inline std::vector<std::string> json_words(std::vector<std::string> own) {
  own.insert(own.begin(), {"{", "}", "[", "]", ",", ":", "\"", "null", "true", "1e300", "-1"});
  return own;
}

using Mutate = std::string (*)(std::string_view bytes, Random& random);

struct Format {
  std::string name;
  std::vector<std::string> readers;  // files of the tree that read this format
  // Gives the bytes to the reader; `folder` is there for files and empty.  Throws Broken if a promise does not hold.
  void (*read)(const std::string& folder, std::string_view bytes);
  size_t memory_multiple, memory_base;  // bytes taken <= multiple * size + base
  std::vector<std::string> words = {};  // what the format is made of: mutations put them in
  Mutate mutate = nullptr;              // one that knows the structure; used for half of the inputs
  std::string (*prepare)(std::string_view bytes) = nullptr;  // of a file of the corpus, before anything else
};

struct Broken {  // a promise that did not hold
  std::string what;
};
void promise(bool holds, const std::string& what);
// Writes a file for a reader, plainly: what is tested is the reading, some million times.
void put(const std::string& path, std::string_view bytes);

std::map<std::string, Format>& formats();
bool add_format(Format format);
// In an input's name only letters, digits and _.
#define REGISTER_FORMAT(name, ...) [[maybe_unused]] static const bool registered_##name = fuzz::add_format(__VA_ARGS__)

struct Verdict {
  bool read = false;    // else refused
  std::string failure;  // empty: all is as it must be
};
Verdict try_input(const Format& format, std::string_view bytes);

}  // namespace fuzz
