// The tokenizer.bin of llama2.c against its algorithm, implemented here.
#include <doctest/doctest.h>

#include <cstring>
#include <map>

#include "engine/system/files.h"
#include "models/data/tokenizer.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;

namespace {

using Pieces = std::vector<std::pair<std::string, float>>;

template <class T>
void append(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}
std::string file_of(const Pieces& pieces) {
  std::string bytes;
  append(bytes, int32_t{8});
  for (const auto& [piece, score] : pieces) {
    append(bytes, score), append(bytes, static_cast<int32_t>(piece.size()));
    bytes += piece;
  }
  return bytes;
}

std::string written(const Folder& folder, const std::string& bytes) {
  write_file_atomically(folder / "tokenizer.bin", bytes);
  return folder / "tokenizer.bin";
}

// Returns control tokens, all bytes, and merges; " h" has a higher score than "he".
Pieces small_pieces() {
  Pieces all = {{"<unk>", 0}, {"\n<s>\n", 0}, {"\n</s>\n", 0}};
  for (int byte = 0; byte < 256; ++byte) {
    const char* const digits = "0123456789ABCDEF";
    all.emplace_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", 0);
  }
  float score = 0;
  for (const char* merged :
       {" h", "ll", "he", " he", "llo", " hello", "or", " w", " wor", "\u00e9", "e", "h", "l", "o", "r", "w", "d", " "})
    all.emplace_back(merged, score -= 1);
  return all;
}

// run.c's encode: a space in front, characters or bytes, then merges by the highest score.
std::vector<int32_t> encode(const Pieces& pieces, const std::string& text) {
  std::map<std::string, int32_t> number;
  for (size_t i = 0; i < pieces.size(); ++i) number.emplace(pieces[i].first, static_cast<int32_t>(i));
  std::vector<int32_t> tokens = {number.at(" ")};
  for (size_t at = 0, next; at < text.size(); at = next) {
    next = at + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0) == 0x80) ++next;
    const auto found = number.find(text.substr(at, next - at));
    if (found != number.end())
      tokens.push_back(found->second);
    else
      for (size_t i = at; i < next; ++i) tokens.push_back(static_cast<unsigned char>(text[i]) + 3);
  }
  for (;;) {
    float best = -1e10f;
    size_t best_index = tokens.size();
    int32_t merged = -1;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto text_of = [&](size_t k) { return pieces[static_cast<size_t>(tokens[k])].first; };
      const auto found = number.find(text_of(i) + text_of(i + 1));
      if (found == number.end() || pieces[static_cast<size_t>(found->second)].second <= best) continue;
      best = pieces[static_cast<size_t>(found->second)].second, best_index = i, merged = found->second;
    }
    if (best_index == tokens.size()) return tokens;
    tokens[best_index] = merged;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best_index) + 1);
  }
}

}  // namespace

TEST_CASE("llama2c's tokenizer: tokens equal those of run.c's algorithm, and decoding restores the text") {
  const Folder folder;
  const Pieces pieces = small_pieces();
  const auto tokenizer = make_tokenizer(written(folder, file_of(pieces)), "");
  CHECK(tokenizer->size() == static_cast<int64_t>(pieces.size()));
  CHECK(tokenizer->begin() == 1);
  CHECK(tokenizer->end() == 2);
  for (const std::string text : {"hello world", "hello  hell", "he he", " w", "l\u00e9o \u4e2d", "line\nnext", "x"}) {
    INFO(text);
    CHECK(tokenizer->encode(text) == encode(pieces, text));
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
  CHECK(restore_tokenizer(tokenizer->save())->encode("hello") == tokenizer->encode("hello"));
  REQUIRE(std::system(("gzip '" + (folder / "tokenizer.bin") + "'").c_str()) == 0);
  CHECK(make_tokenizer(folder / "tokenizer.bin.gz", "")->save() == tokenizer->save());
}

TEST_CASE("llama2c's tokenizer: a damaged file is an error") {
  const Folder folder;
  const std::string whole = file_of(small_pieces());
  const auto message = [&](const std::string& bytes) {
    return expect_error([&] { make_tokenizer(written(folder, bytes), ""); }).names(folder / "tokenizer.bin");
  };
  message(whole.substr(0, whole.size() - 1)).value("ends").names("piece");
  message(whole.substr(0, 4)).value(0).offers(3);
  std::string changed = whole;
  changed[0] = '\0';
  message(changed).value("llama2.c").value("0 bytes");
  Pieces twice = small_pieces();
  twice.emplace_back("ll", -30);
  message(file_of(twice)).value("llama2.c").offers("tokenizer.py");
  changed = whole;
  changed[8] = '\x7f';  // the first piece's length
  message(changed).names("token 0").value("127 bytes");
}
