// Sentence pairs, and the vocabularies of tokenizers that other programs trained.
#include "models/data/sentence_pairs.h"

#include "models/data/tokenizer.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using namespace orrery::models;

// Reads the bytes as lines paired with themselves, then as columns.
void read_columns(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/pairs.tsv";
  put(path, bytes);
  const std::vector<TextPair> lines = read_pairs({.source = path, .target = path});
  for (const auto& [source, target] : lines) promise(source == target, "a line differs from its pair");
  const auto tokenizer = make_tokenizer("byte", path);
  const SentenceMarks marks = sentence_marks(*tokenizer);
  const std::vector<Pair> pairs = encode(lines, *tokenizer, marks);
  const PairBatches batches(pairs, marks, 100, 1);
  int64_t rows = 0;
  for (int64_t i = 0; i < batches.batches_per_epoch(); ++i) rows += batches.at(i).sources.size(0);
  promise(rows == static_cast<int64_t>(lines.size()), "the pairs of an epoch differ from those of the file");
  const auto documents = [&](int64_t max_lines) {
    const PairFiles files{
        .source = path, .source_column = 2, .target_column = 3, .document_column = 1, .document_lines = max_lines};
    return read_pairs(files).size();
  };
  promise(documents(0) >= 1 && documents(0) <= lines.size(), "more documents than lines");
  promise(documents(1) == lines.size() && documents(2) >= documents(0), "passages do not add up to their documents");
}

REGISTER_FORMAT(pairs, {.name = "pairs",
                        .readers = {"models/data/pair_format.cpp", "models/data/pairs/aligned_files.cpp",
                                    "models/data/pairs/columns.cpp", "models/data/lines.cpp",
                                    "examples/orrery/commands/translate.cpp"},
                        .read = read_columns,
                        .memory_multiple = 2048,
                        .memory_base = 1 << 22,
                        .words = {"\t", "\n", "\r\n", "\t\t", "\n\n", "GEN.1\t", std::string(1, '\0'), "\xff"}});

void read_pieces(const std::string& path, std::string_view bytes) {
  put(path, bytes);
  const auto tokenizer = make_tokenizer(path, "");
  const std::string text = "It's 12 o'clock,  na\xc3\xafve";
  const std::vector<int32_t> tokens = tokenizer->encode(text);
  for (const int32_t token : tokens) promise(token >= 0 && token < tokenizer->size(), "an id without a token");
  promise(restore_tokenizer(tokenizer->save())->decode(tokens) == tokenizer->decode(tokens),
          "a restored tokenizer decodes to another text");
}

void read_model(const std::string& folder, std::string_view bytes) { read_pieces(folder + "/pieces.model", bytes); }
void read_tokenizer_bin(const std::string& folder, std::string_view bytes) {
  read_pieces(folder + "/tokenizer.bin", bytes);
}

REGISTER_FORMAT(tokenizer_bin, {.name = "tokenizer_bin",
                                .readers = {"models/data/tokenizers/llama2c.cpp"},
                                .read = read_tokenizer_bin,
                                .memory_multiple = 512,
                                .memory_base = 1 << 22,
                                .words = {"\n<s>\n", "<0x41>", " ", std::string("\1\0\0\0", 4), std::string(4, '\0'),
                                          "\xff\xff\xff\x7f", std::string("\0\0\xc0\x7f", 4)}});
REGISTER_FORMAT(sentence_piece, {.name = "sentence_piece",
                                 .readers = {"models/data/tokenizers/sentence_piece.cpp", "models/formats/base64.cpp"},
                                 .read = read_model,
                                 .memory_multiple = 256,
                                 .memory_base = 1 << 22,
                                 .words = {"<unk>", "<s>", "</s>", "<0x41>", "\xe2\x96\x81", "identity", "\x0a\x0b",
                                           "\x12\x04", std::string("\x15\0\0\0\0", 5), "\x18\x02", "\x18\x06"}});

}  // namespace
