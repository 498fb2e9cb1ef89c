// Pairs of sentences: reading, batches of similar lengths, padding, and errors.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "engine/system/files.h"
#include "models/data/data_format.h"
#include "models/data/sentence_pairs.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;

namespace {

const SentenceMarks marks{.begin = 98, .end = 99, .vocabulary = 100};

std::vector<int32_t> numbers(const Tensor& x) { return {x.data<int32_t>(), x.data<int32_t>() + x.numel()}; }
// Makes pairs of many lengths; the first token of a source is the index of its pair.
std::vector<Pair> some_pairs(int count) {
  std::vector<Pair> pairs;
  for (int i = 0; i < count; ++i) {
    Pair pair{{i}, {}};
    for (int k = 0; k < i * 7 % 5; ++k) pair.source.push_back(1);
    for (int k = 0; k < i * 3 % 4; ++k) pair.target.push_back(2);
    pair.source.push_back(marks.end), pair.target.push_back(marks.end);
    pairs.push_back(pair);
  }
  return pairs;
}
std::vector<int32_t> first_tokens(const PairBatch& batch) {
  std::vector<int32_t> first;
  for (int64_t i = 0; i < batch.sources.size(0); ++i)
    first.push_back(batch.sources.data<int32_t>()[i * batch.sources.size(1)]);
  return first;
}

}  // namespace

TEST_CASE("pairs: aligned files and columns, lines or documents") {
  const Folder folder;
  write_file_atomically(folder / "a", "eins\r\nzwei\n\ndrei");
  write_file_atomically(folder / "b", "one\ntwo\n\nthree\n");
  const std::vector<TextPair> lines = {{"eins", "one"}, {"zwei", "two"}, {"", ""}, {"drei", "three"}};
  CHECK(read_pairs({.source = folder / "a", .target = folder / "b"}) == lines);
  write_file_atomically(folder / "c", "D1\t1\tone\teins\nD1\t2\ttwo\tzwei\nD2\t1\tthree\tdrei\n");
  const auto columns = [&](int64_t document) {
    return read_pairs({.source = folder / "c", .source_column = 4, .target_column = 3, .document_column = document});
  };
  CHECK(columns(0) == std::vector<TextPair>{{"eins", "one"}, {"zwei", "two"}, {"drei", "three"}});
  CHECK(columns(1) == std::vector<TextPair>{{"eins zwei", "one two"}, {"drei", "three"}});
  CHECK(fingerprint_of(columns(0)).sha256 != fingerprint_of(columns(1)).sha256);
  write_file_atomically(folder / "d", "D1\ta\tA\nD1\tb\tB\nD1\tc\tC\nD2\td\tD\nD2\te\tE\n");
  const auto passages = [&](int64_t lines) {
    return read_pairs({.source = folder / "d",
                       .source_column = 2,
                       .target_column = 3,
                       .document_column = 1,
                       .document_lines = lines});
  };
  CHECK(passages(0) == std::vector<TextPair>{{"a b c", "A B C"}, {"d e", "D E"}});
  CHECK(passages(2) == std::vector<TextPair>{{"a b", "A B"}, {"c", "C"}, {"d e", "D E"}});
  CHECK(passages(1).size() == 5);
  CHECK(text_of(columns(1)) == "eins zwei\ndrei\none two\nthree\n");
}

TEST_CASE("pairs: lines of a file of several chunks, packed or not, and its hash") {
  const Folder folder;
  std::vector<TextPair> pairs = {{std::string(1'500'000, 'x') + "ä", "ö"}, {"", "y"}};
  for (int i = 0; i < 200'000; ++i) pairs.emplace_back(i % 7 ? "grün" : "", std::to_string(i));
  std::string lines;
  for (size_t i = 0; i < pairs.size(); ++i) lines += pairs[i].first + "\t" + pairs[i].second + (i % 3 ? "\n" : "\r\n");
  lines.pop_back();  // the last line has no end
  write_file_atomically(folder / "pairs.tsv", lines);
  CHECK(read_pairs({.source = folder / "pairs.tsv"}) == pairs);
  REQUIRE(std::system(("gzip '" + (folder / "pairs.tsv") + "'").c_str()) == 0);
  CHECK(read_pairs({.source = folder / "pairs.tsv.gz"}) == pairs);
  const std::string text = text_of(pairs);
  CHECK(fingerprint_of(pairs).sha256 == sha256(std::as_bytes(std::span(text))));
  CHECK(fingerprint_of(pairs).bytes == text.size());
}

TEST_CASE("pairs: the error for a line longer than any context has its number") {
  const Folder folder;
  write_file_atomically(folder / "a", "a\n" + std::string((64 << 20) + 1, 'x'));
  expect_error([&] { read_pairs({.source = folder / "a", .target = folder / "a"}); })
      .names(folder / "a")
      .value("2")
      .value("67108864");
}

TEST_CASE("pairs: the error for files that do not fit together has their line counts") {
  const Folder folder;
  const std::string a = folder / "a", b = folder / "b";
  write_file_atomically(a, "1\n2\n3\n"), write_file_atomically(b, "1\n2\n"), write_file_atomically(folder / "none", "");
  const auto refused = [](const PairFiles& files) { return expect_error([&] { read_pairs(files); }).names("pairs"); };
  refused({.source = a, .target = b}).names(a).value(3).names(b).value(2);
  refused({.source = a})
      .names("line 1")
      .names(a)
      .value(1)
      .value(2)
      .offers("--translations=FILE")
      .offers("--validation_translations=FILE");
  refused({.source = folder / "none"}).names(folder / "none").value("empty");
  refused({.source = a, .target = a, .document_column = 1}).names("documents").names(a);
  refused({.source = a, .target = a, .source_column = 3}).names("source_column").value(3).offers("leave them out");
  refused({.source = a, .document_lines = 2}).names("document_lines").value(2).offers("--document_column");
  expect_error([] { PairBatches({}, marks, 10, 0); }).names("pairs").names("batches");
}

TEST_CASE("pairs: what has no format is answered by every format, each in a line") {
  const Folder folder;
  const std::string path = folder / "file";
  const auto refused = [&] {
    return expect_error<UnknownFormat>([&] { read_pairs({.source = path}); })
        .names(path)
        .names("known formats:\n  aligned_files: ")
        .names("\n  columns: ")
        .names("\n  jsonl_pairs: ");
  };
  write_file_atomically(path, "a text\nwithout columns\n");
  refused();
  write_file_atomically(path, std::string("a\tb\n\0\xff", 6));
  refused();
  write_file_atomically(path, "a\tb\nc\n");
  expect_error([&] { read_pairs({.source = path}); }).names("line 2").value("1 column");
  std::filesystem::remove(path), make_folders(path);
  refused();
}

TEST_CASE("pairs: two fields of each line of JSONL are a pair; errors have the line") {
  const Folder folder;
  const std::string path = folder / "a.jsonl";
  write_file_atomically(path, "{\"source\": \"a\", \"target\": \"b\\n\", \"de\": \"c\"}\n\n"
                              "{\"target\": \"e\", \"x\": [{\"source\": 1}], \"source\": \"d\", \"de\": \"f\"}");
  CHECK(pair_format_of({.source = path}).name == "jsonl_pairs");
  CHECK(pair_format_of({.source = path, .target = path}).name == "aligned_files");
  CHECK(pair_format_of({.source = path, .source_field = ""}).name == "columns");
  CHECK(read_pairs({.source = path}) == std::vector<TextPair>{{"a", "b\n"}, {"d", "e"}});
  CHECK(read_pairs({.source = path, .source_field = "de"}) == std::vector<TextPair>{{"c", "b\n"}, {"f", "e"}});
  const auto refused = [](const PairFiles& files) { return expect_error([&] { read_pairs(files); }); };
  refused({.source = path, .target_field = "en"}).names(path).names("line 1").names("en").offers("source, target, de");
  refused({.source = path, .source_field = "de", .target_field = "de"})
      .names("source_field and target_field")
      .names(path)
      .value("'de'")
      .offers("two different fields");
  refused({.source = path, .document_column = 1}).names("documents").names(path).offers("--document_column");
  refused({.source = path, .target_column = 3}).names("target_column").value(3).names(path).offers("--target_field");
  write_file_atomically(path, "{\"source\": \"a\", \"target\": \"b\"}\nnone\n");
  refused({.source = path}).names(path).names("line 2").value("invalid JSON");
}

TEST_CASE("pairs: a batch is padded at its ends, and its inputs are the targets shifted by one token") {
  const Pair longer{{5, 6, 7, 99}, {8, 99}}, shorter{{9, 99}, {1, 2, 99}};
  const PairBatch batch = batch_of(std::vector<const Pair*>{&longer, &shorter}, marks);
  CHECK(numbers(batch.sources) == std::vector<int32_t>{5, 6, 7, 99, 9, 99, 0, 0});
  CHECK(numbers(batch.source_lengths) == std::vector<int32_t>{4, 2});
  CHECK(numbers(batch.inputs) == std::vector<int32_t>{98, 8, 0, 98, 1, 2});
  CHECK(numbers(batch.targets) == std::vector<int32_t>{8, 99, -1, 1, 2, 99});
  CHECK(numbers(batch.target_lengths) == std::vector<int32_t>{2, 3});
}

TEST_CASE("pairs: every epoch has each pair once, in batches within the budget, in another order each time") {
  const std::vector<Pair> pairs = some_pairs(97);
  const PairBatches batches(pairs, marks, 30, 5), again(pairs, marks, 30, 5), other(pairs, marks, 30, 6);
  std::vector<std::vector<std::vector<int32_t>>> epochs(2);
  for (int64_t i = 0; i < 2 * batches.batches_per_epoch(); ++i) {
    const PairBatch batch = batches.at(i);
    epochs[static_cast<size_t>(i / batches.batches_per_epoch())].push_back(first_tokens(batch));
    int64_t tokens = 0;
    for (const Tensor& lengths : {batch.source_lengths, batch.target_lengths})
      for (const int32_t length : numbers(lengths)) tokens += length;
    CHECK(tokens <= 30);
    CHECK(batch.sources.size(0) * std::max(batch.sources.size(1), batch.inputs.size(1)) <= batches.max_positions());
  }
  for (const auto& epoch : epochs) {
    std::multiset<int32_t> epoch_tokens;
    for (const auto& batch : epoch) epoch_tokens.insert(batch.begin(), batch.end());
    CHECK(epoch_tokens.size() == 97);
    CHECK(std::set<int32_t>(epoch_tokens.begin(), epoch_tokens.end()).size() == 97);
  }
  CHECK(epochs[0] != epochs[1]);
  // Batches can be requested in any order.
  CHECK(first_tokens(again.at(batches.batches_per_epoch() + 2)) == epochs[1][2]);
  CHECK(first_tokens(again.at(1)) == epochs[0][1]);
  CHECK((first_tokens(other.at(0)) != epochs[0][0] || first_tokens(other.at(1)) != epochs[0][1]));
  CHECK(batches.longest() == 6);
}

TEST_CASE("pairs: a pair beyond the budget is a separate batch") {
  const std::vector<Pair> pairs = {{{1, 99}, {1, 99}}, {{1, 2, 3, 4, 5, 6, 99}, {1, 2, 3, 99}}, {{2, 99}, {2, 99}}};
  const PairBatches batches(pairs, marks, 8, 0);
  CHECK(batches.batches_per_epoch() == 2);
  CHECK(batches.all_tokens() == 19);
}
