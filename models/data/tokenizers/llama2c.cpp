// The tokenizer.bin of llama2.c, https://github.com/karpathy/llama2.c: SentencePiece's pieces and
// scores, exported by its tokenizer.py. Little-endian: bytes of the longest piece (i32), then for
// each piece its score (f32), size in bytes (i32) and bytes. Spaces replace U+2581; tokens 1 and 2
// are "\n<s>\n" and "\n</s>\n". It becomes a SentencePiece model that merges pairs.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "models/data/sentence_piece_model.h"
#include "models/data/tokenizer.h"
#include "models/formats/base64.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

constexpr uint64_t max_file_bytes = uint64_t{6} << 20;
constexpr int32_t max_piece_bytes = 1 << 16;

std::string with_marked_spaces(std::string_view text) {
  std::string marked;
  for (const char c : text) c == ' ' ? marked += "\u2581" : marked += c;
  return marked;
}

bool is_byte(std::string_view piece) {  // <0x0A>
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with(">");
}

std::vector<SentencePieceEntry> pieces_in(const std::string& path) {
  const std::string whole = read_data_file(path, max_file_bytes);
  std::string_view left = whole;
  const auto take = [&](auto& into) {
    const auto bytes = std::as_writable_bytes(std::span(into));
    check(bytes.size() <= left.size(), "tokenizer: ", path, " is damaged: it ends within a piece");
    std::copy_n(std::as_bytes(std::span(left)).begin(), bytes.size(), bytes.begin());
    left.remove_prefix(bytes.size());
  };
  std::array<int32_t, 1> longest{};
  take(longest);
  check(longest[0] >= 1 && longest[0] <= max_piece_bytes, "tokenizer: ", path,
        " is damaged, or not a tokenizer of llama2.c: its longest piece has ", longest[0], " bytes");
  std::vector<SentencePieceEntry> all;
  while (!left.empty()) {
    std::array<float, 1> score{};
    std::array<int32_t, 1> bytes{};
    take(score), take(bytes);
    check(bytes[0] >= 0 && bytes[0] <= longest[0] && std::isfinite(score[0]), "tokenizer: ", path,
          " is damaged: token ", all.size(), " has ", bytes[0], " bytes (at most ", longest[0], ") and a score of ",
          score[0]);
    std::string piece(static_cast<size_t>(bytes[0]), '\0');
    take(piece);
    all.push_back({with_marked_spaces(piece), score[0], SentencePieceEntry::Kind::normal});
    if (is_byte(piece)) all.back().kind = SentencePieceEntry::Kind::byte;
  }
  check(all.size() > 3, "tokenizer: ", path, ": number of pieces is ", all.size(), "; it must be more than 3");
  all[0] = {"<unk>", 0, SentencePieceEntry::Kind::unknown};
  all[1] = {"<s>", 0, SentencePieceEntry::Kind::control}, all[2] = {"</s>", 0, SentencePieceEntry::Kind::control};
  return all;
}

std::unique_ptr<Tokenizer> read(const std::string& path) {
  const std::string model = base64(sentence_piece_model(pieces_in(path)));
  try {
    return restore_tokenizer(text(R"({"name":"sentence_piece","model":")", model, R"("})"));
  } catch (const Error& error) {
    fail("tokenizer: ", path,
         " is damaged, or not a tokenizer of llama2.c: its pieces do not form a SentencePiece model (", error.what(),
         "); export it again with llama2.c's tokenizer.py");
  }
}

bool reads(const std::string& path) { return ends_with_or_packed(path, ".bin") && !folder_exists(path); }

REGISTER_TOKENIZER(llama2c, {.name = "llama2c",
                             .description = "the pieces of llama2.c's tokenizer.bin: --tokenizer=FILE",
                             .read = read,
                             .reads = reads});

}  // namespace
}  // namespace orrery::models
