#include "models/data/token_sequence.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "engine/types/check.h"
#include "models/data/lines.h"
#include "models/data/text_format.h"
#include "models/data/token_fingerprint.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers in files are as in memory");
constexpr int64_t at_once = int64_t{1} << 18;  // tokens per read or write
constexpr int64_t max_16_bit = int64_t{1} << 16;

constexpr const char* unpack_it = "unpack it with gunzip, so that its tokens stay in the file";

// Returns the layout of a file that begins with these bytes. Throws Error if it has 16 bits and the
// vocabulary needs more: tokens that 16 bits truncated cannot be detected.
TokenLayout layout_of(const std::string& path, std::span<const std::byte> begin, int64_t vocabulary) {
  const TokenLayout found = token_layout(path, begin);
  check(found.width > static_cast<int64_t>(sizeof(uint16_t)) || vocabulary <= max_16_bit, "tokens: ", path,
        " has tokens of 16 bits, 0 to ", max_16_bit - 1, ", but the vocabulary size is ", vocabulary,
        "; use the tokenizer that made it, or run `orrery prepare` again, which then writes 32 bits");
  return found;
}
// Returns the number of tokens of a file of `size` bytes.
int64_t count_of(const std::string& path, const TokenLayout& layout, uint64_t size) {
  const auto bytes = static_cast<int64_t>(size);
  const int64_t count = (bytes - layout.first) / layout.width;
  check((bytes - layout.first) % layout.width == 0, "tokens: ", path, " has ", bytes, " bytes, but a token has ",
        layout.width, " bytes; it is not a file of tokens, or it is damaged");
  check(!layout.count || count == *layout.count, "tokens: number of tokens in ", path, " is ", count,
        ", but its header states ", layout.count.value_or(0), "; it is damaged");
  check(count > 0, "tokens: ", path, " is empty");
  return count;
}

void check_tokens(std::span<const int32_t> some, int64_t before, const std::string& path, int64_t vocabulary) {
  for (size_t i = 0; i < some.size(); ++i)
    check(some[i] >= 0 && some[i] < vocabulary, "tokens: ", path, ": token ", before + static_cast<int64_t>(i), " is ",
          some[i], ", but the vocabulary is 0 to ", vocabulary - 1, "; use the tokenizer that made this file");
}

// Reads a compressed file. Its name marks it, because a first token may look like a gzip header.
// Unpacking stops at the first error.
std::vector<int32_t> unpacked_tokens(const std::string& path, int64_t vocabulary) {
  DataReader reader(path);
  const std::string what = "tokens: " + path;
  std::vector<std::byte> chunk(static_cast<size_t>(at_once) * sizeof(int32_t));
  size_t got = reader.read_up_to(chunk);
  const TokenLayout layout = layout_of(path, std::span(chunk).first(got), vocabulary);
  const auto width = static_cast<size_t>(layout.width);
  std::vector<int32_t> tokens;
  uint64_t bytes = got;
  for (auto at = static_cast<size_t>(layout.first); got > 0; at = 0, got = reader.read_up_to(chunk), bytes += got) {
    const size_t before = tokens.size();
    for (; at + width <= got; at += width) {
      uint32_t number = 0;
      std::copy_n(chunk.begin() + static_cast<std::ptrdiff_t>(at), width,
                  std::as_writable_bytes(std::span(&number, 1)).begin());
      add_checked(tokens, static_cast<int32_t>(number), what, unpack_it);
    }
    check(!layout.count || static_cast<int64_t>(tokens.size()) <= *layout.count, "tokens: ", path,
          " has more tokens than its header states, ", layout.count.value_or(0), "; it is damaged");
    check_tokens(std::span(tokens).subspan(before), static_cast<int64_t>(before), path, vocabulary);
  }
  count_of(path, layout, bytes);
  return tokens;
}

}  // namespace

struct TokenSequence::Source {
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t at, std::span<int32_t> to) const = 0;
  virtual int64_t bytes_in_memory() const = 0;
};

struct TokenSequence::MemorySource final : Source {
  std::vector<int32_t> tokens;
  explicit MemorySource(std::vector<int32_t> given) : tokens(std::move(given)) {}
  int64_t size() const override { return static_cast<int64_t>(tokens.size()); }
  void read(int64_t at, std::span<int32_t> to) const override {
    std::copy_n(tokens.begin() + at, to.size(), to.begin());
  }
  int64_t bytes_in_memory() const override { return static_cast<int64_t>(tokens.size() * sizeof(int32_t)); }
};

struct TokenSequence::FileSource final : Source {
  std::shared_ptr<const FileReader> file;
  int64_t count, width, first;  // tokens; bytes per token; offset of the first token
  std::string path = {};        // of a file whose tokens are checked when they are read
  int64_t vocabulary = 0;
  FileSource(std::shared_ptr<const FileReader> from, int64_t tokens, int64_t bytes_of_one, int64_t first_byte)
      : file(std::move(from)), count(tokens), width(bytes_of_one), first(first_byte) {}
  int64_t size() const override { return count; }
  void read(int64_t at, std::span<int32_t> to) const override {
    const auto offset = static_cast<uint64_t>(first + at * width);
    if (width == sizeof(int32_t)) {
      file->read_at(offset, std::as_writable_bytes(to));
    } else {
      std::vector<uint16_t> narrow(to.size());
      file->read_at(offset, std::as_writable_bytes(std::span(narrow)));
      std::copy(narrow.begin(), narrow.end(), to.begin());
    }
    if (!path.empty()) check_tokens(to, at, path, vocabulary);
  }
  int64_t bytes_in_memory() const override { return 0; }

  static std::shared_ptr<FileSource> open(const std::string& path, int64_t vocabulary) {
    auto file = std::make_shared<const FileReader>(path);
    std::array<std::byte, sizeof(TokenHeader)> begin = {};
    const std::span<std::byte> known = std::span(begin).first(std::min<uint64_t>(begin.size(), file->size()));
    file->read_at(0, known);
    const TokenLayout found = layout_of(path, known, vocabulary);
    const int64_t count = count_of(path, found, file->size());
    return std::make_shared<FileSource>(std::move(file), count, found.width, found.first);
  }
};

struct TokenSequence::JoinedSource final : Source {
  std::vector<std::shared_ptr<const Source>> files;
  std::vector<int64_t> ends;  // tokens up to the end of each
  int64_t size() const override { return ends.empty() ? 0 : ends.back(); }
  void read(int64_t at, std::span<int32_t> to) const override {
    const auto first = std::upper_bound(ends.begin(), ends.end(), at);
    for (auto i = static_cast<size_t>(first - ends.begin()); !to.empty(); ++i) {
      const std::span<int32_t> here = to.first(std::min(to.size(), static_cast<size_t>(ends[i] - at)));
      files[i]->read(at - (ends[i] - files[i]->size()), here);
      at += static_cast<int64_t>(here.size()), to = to.subspan(here.size());
    }
  }
  int64_t bytes_in_memory() const override {
    int64_t bytes = 0;
    for (const auto& file : files) bytes += file->bytes_in_memory();
    return bytes;
  }
};

TokenSequence::TokenSequence(std::shared_ptr<const Source> source)
    : source_(std::move(source)), end_(source_->size()) {}
TokenSequence::TokenSequence(std::vector<int32_t> tokens)
    : TokenSequence(std::static_pointer_cast<const Source>(std::make_shared<const MemorySource>(std::move(tokens)))) {}

TokenSequence TokenSequence::from_file(const std::string& path, int64_t vocabulary, bool unread) {
  if (is_named_packed(path)) return {unpacked_tokens(path, vocabulary)};
  const std::shared_ptr<FileSource> file = FileSource::open(path, vocabulary);
  if (unread) file->path = path, file->vocabulary = vocabulary;
  const TokenSequence all(std::static_pointer_cast<const Source>(file));
  if (unread) return all;
  std::vector<int32_t> some;
  for (int64_t at = 0; at < all.size(); at += at_once) {
    some.resize(static_cast<size_t>(std::min(at_once, all.size() - at)));
    all.read(at, some);
    check_tokens(some, at, path, vocabulary);
  }
  return all;
}

TokenSequence TokenSequence::joined(std::span<const TokenSequence> files) {
  const auto all = std::make_shared<JoinedSource>();
  for (const TokenSequence& each : files) {
    all->files.push_back(each.source_);
    all->ends.push_back(all->size() + each.source_->size());
  }
  return TokenSequence(std::static_pointer_cast<const Source>(all));
}

void TokenSequence::read(int64_t at, std::span<int32_t> to) const { source_->read(begin_ + at, to); }
TokenSequence TokenSequence::slice(int64_t begin, int64_t end) const {
  TokenSequence some = *this;
  some.begin_ = begin_ + begin, some.end_ = begin_ + end;
  if (some.size() < size()) some.recorded_.reset();
  return some;
}
std::vector<int32_t> TokenSequence::to_vector() const {
  std::vector<int32_t> all(static_cast<size_t>(size()));
  read(0, all);
  return all;
}
int64_t TokenSequence::bytes_in_memory() const {
  return source_->bytes_in_memory() + (characters_ ? characters_->bytes_in_memory() : 0);
}

TokenSequence TokenSequence::with_characters(const TokenSequence& by_token) const {
  check(by_token.source_->size() == source_->size(), "tokens: ", source_->size(), " tokens, and the characters of ",
        by_token.source_->size());
  TokenSequence all = *this;
  all.characters_ = by_token.source_;
  return all;
}
TokenSequence TokenSequence::with_characters_recorded(std::optional<int64_t> of_targets) const {
  TokenSequence all = *this;
  all.recorded_ = of_targets;
  return all;
}
void TokenSequence::read_characters(int64_t at, std::span<int32_t> to) const { characters_->read(begin_ + at, to); }

TokenSpool::TokenSpool(const std::string& folder) {
  const std::string path = folder + "/tokens." + std::to_string(::getpid()) + ".partial";
  file_ = std::make_unique<FileAppender>(path);
  reader_ = std::make_shared<const FileReader>(path);
  remove_with_contents(path);
}
TokenSpool::~TokenSpool() = default;
void TokenSpool::add(std::span<const int32_t> tokens) {
  file_->write({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  count_ += static_cast<int64_t>(tokens.size());
}
TokenSequence TokenSpool::sequence() const {
  return TokenSequence(std::make_shared<const TokenSequence::FileSource>(reader_, count_, sizeof(int32_t), 0));
}

namespace {

// Passes the bytes of such a file to `take`, chunk by chunk.
template <class Take>
void each_chunk(const TokenSequence& tokens, int64_t vocabulary, const Take& take) {
  const bool wide = vocabulary > max_16_bit;
  check(!wide || tokens.size() <= INT32_MAX, "tokens: ", tokens.size(),
        " tokens of 32 bits are too many for one file (at most ", INT32_MAX, "); prepare the text in parts");
  if (wide) {
    const TokenHeader header = {llm_c_32_bit.magic, llm_c_32_bit.version, static_cast<int32_t>(tokens.size())};
    take(std::as_bytes(std::span(header)));
  }
  std::vector<int32_t> some;
  std::vector<uint16_t> narrow;
  for (int64_t at = 0; at < tokens.size(); at += at_once) {
    some.resize(static_cast<size_t>(std::min(at_once, tokens.size() - at)));
    tokens.read(at, some);
    narrow.assign(some.begin(), some.end());
    take(wide ? std::as_bytes(std::span(some)) : std::as_bytes(std::span(narrow)));
  }
}

}  // namespace

void write_token_file(const std::string& path, const TokenSequence& tokens, int64_t vocabulary) {
  write_file_atomically(path, [&](FileWriter& file) {
    each_chunk(tokens, vocabulary, [&](std::span<const std::byte> chunk) { file.write(chunk); });
  });
}
TokenFileHashes hashes_of_token_file(const TokenSequence& tokens, int64_t vocabulary) {
  const auto count = static_cast<uint64_t>(tokens.size());
  const uint64_t bytes =
      vocabulary > max_16_bit ? sizeof(TokenHeader) + count * sizeof(int32_t) : count * sizeof(uint16_t);
  Sha256 whole;
  TokenFingerprint sample(bytes);
  each_chunk(tokens, vocabulary, [&](std::span<const std::byte> chunk) {
    whole.add(chunk);
    if (sample.is_sample()) sample.add(chunk);
  });
  const Fingerprint print{bytes, whole.digits()};
  return {print, sample.is_sample() ? sample.take() : print};
}

TokenLayout layout_of_token_file(const std::string& path) {
  std::array<std::byte, sizeof(TokenHeader)> begin = {};
  const auto read = [&](auto reader) { return token_layout(path, std::span(begin).first(reader.read_up_to(begin))); };
  return is_named_packed(path) ? read(DataReader(path)) : read(FileReader(path));
}

}  // namespace orrery::models
