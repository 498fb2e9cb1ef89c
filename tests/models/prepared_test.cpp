// Texts as token files: they hold the tokens that encoding gives; invalid files are refused.
#include "models/data/prepared.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "models/data/sentence_piece_model.h"
#include "models/data/text.h"
#include "models/training/run_folder.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

const std::string byte_pairs = ORRERY_SOURCE_DIR "/tests/models/byte_pair/";
const std::string sentence_piece = ORRERY_SOURCE_DIR "/tests/models/sentence_piece/small.model";
const std::string shakespeare = ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt";

// Returns the tokens of encode_beginning for a text in chunks, then those of the rest.
std::vector<int32_t> encoded_in_chunks(const Tokenizer& tokenizer, const std::string& text, size_t chunk) {
  std::vector<int32_t> all, some;
  std::string waiting;
  for (size_t at = 0; at < text.size(); at += chunk) {
    waiting += text.substr(at, chunk);
    some.clear();
    waiting.erase(0, tokenizer.encode_beginning(waiting, some));
    all.insert(all.end(), some.begin(), some.end());
  }
  some = tokenizer.encode(waiting);
  all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::string bytes_of(const std::vector<uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint16_t)};
}
std::string with_header(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  return std::string(reinterpret_cast<const char*>(header.data()), header.size() * sizeof(int32_t)) + tokens;
}

}  // namespace

TEST_CASE("prepared: a text in chunks of any size has the tokens of the whole text") {
  const auto cases = nlohmann::json::parse(read_file(byte_pairs + "cases.json"));
  for (const auto& [name, texts] : cases.items()) {
    const auto tokenizer = make_tokenizer(byte_pairs + name, "");
    for (const auto& one : texts)
      for (const size_t chunk : {1, 2, 7, 50}) {
        CAPTURE(chunk);
        const std::string text = one["text"].get<std::string>() + "\xC3 \xE2\x82";
        CHECK(encoded_in_chunks(*tokenizer, text, chunk) == tokenizer->encode(text));
      }
  }
  const std::string text = "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80 end";
  for (const char* name : {"character", "byte"}) {
    const auto tokenizer = tokenizers().at(name).make(text);
    for (const size_t chunk : {1, 2, 3, 5})
      CHECK(encoded_in_chunks(*tokenizer, text, chunk) == tokenizer->encode(text));
  }
}

TEST_CASE("prepared: SentencePiece encodes a text in chunks, up to the last space if spaces separate its tokens") {
  const Folder folder;
  const std::string learned = write_small_text(folder);
  std::string text = read_file(learned).substr(0, 3000);
  text += "  two  spaces\n\n a line\r\n\tna\xC3\xAFve  \xE2\x82\xAC \xCC\x88 a \xCC\x88 (\xE4\xB8\xAD) end \n";
  const auto beginning = [&](const Tokenizer& tokenizer, std::string_view of) {
    std::vector<int32_t> some;
    return tokenizer.encode_beginning(of, some);
  };
  const std::string unigram = "sentence_piece(50, kind=unigram)";
  for (const std::string& name : {std::string("sentence_piece(vocabulary=60)"), unigram, sentence_piece}) {
    const auto tokenizer = make_tokenizer(name, learned);
    for (const size_t chunk : {1, 2, 7, 50, 100'000}) {
      CAPTURE(chunk);
      CHECK(encoded_in_chunks(*tokenizer, text, chunk) == tokenizer->encode(text));
    }
    CHECK(beginning(*tokenizer, "the quick fox") == 10);
    CHECK(beginning(*tokenizer, "the  \xE4\xB8\xAD fox") == 9);
    CHECK(beginning(*tokenizer, "the\nfox") == (name == sentence_piece ? 0 : 4));  // small.model does not normalize
  }
}

TEST_CASE("prepared: training reads the same tokens from the text and from its files") {
  const Folder folder;
  const std::string out = folder / "tokens";
  for (const std::string& tokenizer : {std::string("character"), byte_pairs + "gpt2"}) {
    std::vector<double> fractions;
    const Prepared made =
        prepare({.input = shakespeare, .out = out, .tokenizer = tokenizer, .validation_fraction = 0.2},
                [&](const std::string&, double fraction) { fractions.push_back(fraction); });
    CHECK(fractions.back() == 1);
    const auto its = tokenizer_of_prepared(out), direct = make_tokenizer(tokenizer, shakespeare);
    CHECK(its->save() == direct->save());
    const Text from_text(shakespeare, *direct, 0.2), from_files(out, *its, 0.5);
    CHECK(from_files.train().to_vector() == from_text.train().to_vector());
    CHECK(from_files.validation().to_vector() == from_text.validation().to_vector());
    CHECK(made.train == from_text.train().size());
    CHECK(made.validation == from_text.validation().size());
    CHECK(from_files.train().bytes_in_memory() == 0);
    CHECK(names_in(out) == std::set<std::string>{"tokens.json", "train.bin", "val.bin"});
    expect_error([&] { prepare({.input = shakespeare, .out = out}); }).names(out + "/train.bin").offers("--out");
    std::filesystem::remove_all(out);
  }
}

TEST_CASE("prepared: a run on prepared data, and its error when they have changed") {
  const Run run;
  const std::string out = run.folder / "tokens";
  prepare({.input = run.text, .out = out, .tokenizer = "byte"});
  const double loss = run.train({{"data", out}}).validation_loss;
  const Run again;
  CHECK(again.train({{"tokenizer", "byte"}}).validation_loss == loss);
  const Run apart;  // the validation split of a prepared folder as validation_data
  CHECK(apart.train({{"data", out}, {"validation_data", out}}).validation_loss == loss);
  CHECK(run.resume({{"data", out}}).steps_done == 8);
  write(out + "/val.bin", bytes_of({1, 2, 3}));
  const auto train = [&] { run.train({{"data", out}, {"out", run.folder / "other"}}); };
  expect_error(train).names(out + "/val.bin").names(out + "/tokens.json").offers("prepare");
  for (const char* incomplete :
       {"{}", R"({"format": "orrery tokens 1", "files": {}})", R"({"format": "orrery tokens 1", "tokenizer": {}})",
        R"({"format": "orrery tokens 9", "tokenizer": {}, "files": {}})"}) {
    write(out + "/tokens.json", incomplete);
    expect_error([&] { tokenizer_of_prepared(out); }).names("tokens.json").offers("orrery prepare");
  }
}

TEST_CASE("prepared: the settings name the tokenizer that made the tokens, and runs that named the default resume") {
  const Run run;
  const std::string out = run.folder / "tokens";
  prepare({.input = run.text, .out = out, .tokenizer = "byte"});
  run.train({{"data", out}});
  const auto has_byte_tokenizer = [&] {
    return contains(read_file(run.out + "/settings.toml"), "\ntokenizer = \"byte\"\n");
  };
  CHECK(has_byte_tokenizer());
  CHECK(run.resume({{"data", out}, {"steps", "8"}}).steps_done == 8);
  CHECK(has_byte_tokenizer());
  // The setting as an older version recorded it.
  const std::string last = latest_checkpoint(run.out);
  CheckpointState state = read_state(last);
  for (auto& [key, value] : state.settings)
    if (key == "tokenizer") value = "character";
  write_state(last, state);
  CHECK(run.resume({{"data", out}, {"steps", "9"}}).steps_done == 9);
  CHECK(has_byte_tokenizer());
}

TEST_CASE("prepared: files of nanoGPT and llm.c are read; damaged and other files are errors") {
  const Folder folder;
  const std::string path = folder / "a.bin", tokens = bytes_of({0, 5, 300, 7});
  const auto read = [&](const std::string& content, int64_t vocabulary = 301) {
    write(path, content);
    return read_prepared(path, vocabulary).train.to_vector();
  };
  const std::vector<int32_t> expected = {0, 5, 300, 7};
  CHECK(read(tokens) == expected);
  CHECK(read(with_header(20240520, 1, 4, tokens)) == expected);
  CHECK(read(with_header(20240801, 7, 2, bytes_of({5, 1, 6, 0})), 70'000) == std::vector<int32_t>{65541, 6});
  const auto refused = [&](const std::string& content, int64_t vocabulary) {
    return expect_error([&] { read(content, vocabulary); }).names(path);
  };
  refused(tokens, 300).names(2).value(300).offers("0 to 299");
  refused(with_header(20240801, 7, 1, bytes_of({5, 0xFFFF})), 70'000).names(0).value(-65531).offers("0 to 69999");
  refused("abc", 300).value("3 bytes").offers("2 bytes").value("damaged");
  refused(with_header(20240520, 1, 5, tokens), 301).value(4).names("header").value(5).value("damaged");
  refused(with_header(20240520, 2, 4, tokens), 301).names("version").value(2).offers(1);
  refused("", 301).value("empty");
  write(folder / "bin/train.bin", tokens);
  CHECK(tokenizer_of_prepared(folder / "bin") == nullptr);
  const Run run;
  expect_error([&] { run.train({{"data", folder / "bin"}}); }).names(folder / "bin").offers("--tokenizer=byte");
  write(folder / "bin/train.bin", bytes_of(std::vector<uint16_t>(200, 97)));
  CHECK(run.train({{"data", folder / "bin"}, {"tokenizer", "byte"}}).steps_done == 6);
}

TEST_CASE("prepared: token files packed by gzip are read like unpacked ones") {
  const Folder folder;
  const std::string out = folder / "tokens";
  prepare({.input = shakespeare, .out = out, .tokenizer = "character"});
  const auto tokenizer = tokenizer_of_prepared(out);
  const Text plain(out, *tokenizer);
  const auto train = plain.train().to_vector(), validation = plain.validation().to_vector();
  REQUIRE(std::system(("gzip '" + out + "/train.bin' '" + out + "/val.bin'").c_str()) == 0);
  REQUIRE(is_prepared(out));
  CHECK(tokenizer_of_prepared(out)->save() == tokenizer->save());
  const Text packed(out, *tokenizer);
  CHECK(packed.train().to_vector() == train);
  CHECK(packed.validation().to_vector() == validation);
  CHECK(packed.fingerprint() == plain.fingerprint());
  REQUIRE(std::system(("gzip '" + out + "/tokens.json'").c_str()) == 0);
  REQUIRE(tokenizer_of_prepared(out) != nullptr);
  CHECK(tokenizer_of_prepared(out)->save() == tokenizer->save());
  write(out + "/val.bin", bytes_of({1, 2}));  // read instead of val.bin.gz; contradicts tokens.json.gz
  expect_error([&] { read_prepared(out, 65536); }).names("val.bin").names("tokens.json").offers("prepare");
  const std::string one = folder / "a.bin", begins_as_gzip = bytes_of({0x8b1f, 1, 2});
  write(one, begins_as_gzip);
  CHECK(read_prepared(one, 65536).train.to_vector() == std::vector<int32_t>{0x8b1f, 1, 2});
  write(one, with_header(20240801, 7, 2, bytes_of({5, 1, 6, 0})));
  REQUIRE(std::system(("gzip '" + one + "'").c_str()) == 0);
  CHECK(is_prepared(one + ".gz"));
  CHECK(read_prepared(one + ".gz", 70'000).train.to_vector() == std::vector<int32_t>{65541, 6});
  write(one + ".gz", read_file(one + ".gz").substr(0, 20));
  expect_error([&] { read_prepared(one + ".gz", 70'000); }).names(one + ".gz").value("gzip");
}

TEST_CASE("prepared: a missing file, another tokenizer and a failed preparation are reported") {
  const Run run;
  const std::string out = run.folder / "tokens";
  prepare({.input = run.text, .out = out, .tokenizer = "byte"});
  CHECK(run.train({{"data", out}, {"tokenizer", "byte"}}).steps_done == 6);
  const std::string gpt2 = byte_pairs + "gpt2";
  const std::string other = run.folder / "other";
  const auto trained_with_gpt2 = [&] { run.train({{"data", out}, {"tokenizer", gpt2}, {"out", other}}); };
  expect_error(trained_with_gpt2).names(out).value("byte").names("--tokenizer=" + gpt2).offers("leave that out");
  std::filesystem::remove(out + "/val.bin");
  const auto lost = [&] { run.train({{"data", out}, {"out", other}}); };
  expect_error(lost).names(out + "/val.bin").value("missing").names(out + "/tokens.json").offers("prepare");
  const std::string failed = run.folder / "failed", abc = run.folder / "abc", xyz = run.folder / "xyz";
  write(abc, "abc"), write(xyz, "xyz");
  expect_error([&] { prepare({.input = abc, .validation_input = xyz, .out = failed, .tokenizer = "character"}); })
      .value("byte 0")
      .offers("leave it out");
  CHECK_FALSE(file_exists(failed));
  const std::string spaces = run.folder / "spaces", of_model = "tokenizer=" + sentence_piece;
  write(spaces, "     ");
  expect_error([&] { prepare({.input = spaces, .out = failed, .tokenizer = sentence_piece}); })
      .names(spaces)
      .value("no tokens")
      .value(of_model)
      .offers("longer text");
  expect_error(
      [&] { prepare({.input = run.text, .validation_input = spaces, .out = failed, .tokenizer = sentence_piece}); })
      .names(spaces)
      .value("validation")
      .offers("longer text");
  CHECK_FALSE(file_exists(failed));
}

TEST_CASE("prepared: tokens of another known tokenizer are an error, and a single file is read unchecked") {
  const Run run;
  const std::string pairs = "byte_pair(vocabulary=258)", pp = run.folder / "pp", pb = run.folder / "pb";
  prepare({.input = run.text, .out = pp, .tokenizer = pairs});
  prepare({.input = run.text, .out = pb, .tokenizer = "byte"});
  const std::string other = run.folder / "other";
  const auto refused = [&](const std::string& path, const Assignments& more) {
    Assignments all = more;
    all.emplace_back("out", other);
    expect_error([&] { run.train(all); }).names(path).value("byte").value("byte_pair").offers("text");
  };
  for (const std::string& path : {pb, pb + "/train.bin", pb + "/val.bin"}) {
    refused(path, {{"data", pp}, {"validation_data", path}});
    refused(path, {{"tokenizer", pairs}, {"validation_data", path}});
  }
  CHECK(run.train({{"data", pp}}).steps_done == 6);
  refused(pb, {{"init_from", run.out}, {"data", pb}});
  expect_error([&] {
    run.resume({{"data", pb}, {"allow_new_text", "yes"}});
  })
      .names(pb)
      .value("byte")
      .value("byte_pair");
  CHECK(Run("same").train({{"tokenizer", pairs}, {"validation_data", pp}}).steps_done == 6);

  const auto own = tokenizer_of_prepared(pp), bytes = tokenizer_of_prepared(pb + "/train.bin");
  CHECK(bytes->name() == "byte");
  const int64_t size = Text(pb + "/train.bin", *bytes, 0).train().size();
  std::filesystem::copy(pb + "/train.bin", run.folder / "lone.bin");
  CHECK(tokenizer_of_prepared(run.folder / "lone.bin") == nullptr);
  CHECK(Text(run.folder / "lone.bin", *own, 0).train().size() == size);
  CHECK(Text(pb, *restore_tokenizer(R"({"name": "numbers", "size": 256})")).train().size() == size);  // not known
  const auto used = with_overrides(tokenizer_of_prepared(pp), {.begin = 1, .end = 2, .ends = std::vector<int32_t>{3}});
  CHECK(Text(pp, *used).train().to_vector() == Text(pp, *own).train().to_vector());
  const std::string linked = run.folder / "linked";
  std::filesystem::create_directory(linked);
  std::filesystem::create_symlink(pb + "/val.bin", linked + "/val.bin");
  std::filesystem::create_symlink(pb + "/train.bin", linked + ".bin");
  refused(linked + "/val.bin", {{"data", pp}, {"validation_data", linked + "/val.bin"}});
  refused(linked + ".bin", {{"data", pp}, {"validation_data", linked + ".bin"}});
  std::filesystem::create_symlink(pb + "/train.bin", linked + "/train.bin");
  refused(linked, {{"data", pp}, {"validation_data", linked}});
  std::filesystem::create_symlink(pb + "/val.bin", linked + ".txt");
  expect_error([&] { TextFiles(linked + ".txt"); }).names(pb + "/val.bin").value("tokens").offers("--data=");
  REQUIRE(std::system(("gzip '" + pb + "/train.bin'").c_str()) == 0);
  expect_error([&] { const Text text(pb + "/train.bin.gz", *own); }).names(pb + "/train.bin.gz").value("byte");

  write(run.folder / "ab", "abab"), write(run.folder / "cd", "cdcd");
  for (const char* const name : {"ab", "cd"})
    prepare(
        {.input = run.folder / name, .out = run.folder / (std::string("tokens_") + name), .tokenizer = "character"});
  const std::string ab = run.folder / "tokens_ab";
  expect_error([&] { const Text text(ab, *tokenizer_of_prepared(run.folder / "tokens_cd")); })
      .names(ab)
      .value("character, 2")
      .value("character, 2");

  nlohmann::json description = nlohmann::json::parse(read_file(pp + "/tokens.json"));
  description["tokenizer"]["end_token"] = 5;
  std::filesystem::copy(pp, run.folder / "ended");
  write(run.folder / "ended/tokens.json", description.dump());
  expect_error([&] {
    run.train({{"data", pp}, {"validation_data", run.folder / "ended"}, {"documents", "yes"}, {"out", other}});
  })
      .names("documents=yes")
      .names(run.folder / "ended")
      .value("token 5")
      .value("token 257")
      .offers("documents=no");
}

TEST_CASE("prepared: vocabularies beyond 16 bits have files of 32") {
  const Folder folder;
  const std::vector<int32_t> tokens = {0, 65'536, 99'999};
  const std::string path = folder / "wide.bin";
  for (const int64_t vocabulary : {65'536, 65'537, 100'000}) {
    const std::vector<int32_t> some = vocabulary == 100'000 ? tokens : std::vector<int32_t>{0, 65'535};
    write_token_file(path, some, vocabulary);
    CHECK(TokenSequence::from_file(path, vocabulary).to_vector() == some);
    CHECK(FileReader(path).size() == (vocabulary == 65'536 ? 0 : 1024) + some.size() * (vocabulary == 65'536 ? 2 : 4));
    const TokenFileHashes found = hashes_of_token_file(some, vocabulary);
    CHECK(found.whole.sha256 == sha256_of_file(path));
    CHECK(found.whole.bytes == FileReader(path).size());
    CHECK(found.sample == found.whole);
  }
  write_token_file(path, std::vector<int32_t>{0, 1}, 65'536);
  expect_error([&] { TokenSequence::from_file(path, 65'537); }).value("16 bits").value("0 to 65535").offers(65'537);
}

TEST_CASE("prepared: a text packed by gzip is read like an unpacked one") {
  const Folder folder;
  const std::string plain = folder / "text", packed = folder / "text.gz";
  std::string text;
  while (text.size() < 4 * TextFiles::chunk_size) text += "\xE2\x82\xAC and some more\n";
  write(plain, text);
  REQUIRE(std::system(("gzip -c '" + plain + "' > '" + packed + "'").c_str()) == 0);
  std::string all;
  TextFiles::each_chunk(packed, [&](std::string_view chunk, uint64_t before) {
    CHECK(before == all.size());
    all += chunk;
  });
  CHECK(all == text);
  CHECK(TextFiles(packed).fingerprints().text == TextFiles(plain).fingerprints().text);
  CHECK(TextFiles(packed).fingerprints().division == TextFiles(plain).fingerprints().division);
  const auto tokenizer = make_tokenizer("character", packed);
  CHECK(Text(packed, *tokenizer).train().to_vector() == Text(plain, *tokenizer).train().to_vector());
  const std::string bytes = read_file(packed);
  write(packed, bytes.substr(0, bytes.size() / 2));
  expect_error([&] { make_tokenizer("character", packed); }).names(packed).value("gzip");
  std::string begin;  // the text before the error: the whole is never in memory
  const auto add = [&](std::string_view chunk, uint64_t) { begin += chunk; };
  expect_error([&] { TextFiles::each_chunk(packed, add); }).names(packed).value("gzip");
  CHECK(begin.size() >= TextFiles::chunk_size - 8);
  CHECK(text.starts_with(begin));
}

TEST_CASE("prepared: chunks of a file do not split characters") {
  const Folder folder;
  std::string text;
  while (text.size() < 2 * TextFiles::chunk_size) text += "\xE2\x82\xAC";
  text += "\xF0\x9F";
  write(folder / "text", text);
  std::string all;
  int chunks = 0;
  TextFiles::each_chunk(folder / "text", [&](std::string_view chunk, uint64_t before) {
    CHECK(before == all.size());
    CHECK((chunk.size() % 3 == 0 || chunk == "\xF0\x9F"));
    all += chunk, ++chunks;
  });
  CHECK(all == text);
  CHECK(chunks == 4);
  write(folder / "latin", std::string(TextFiles::chunk_size, 'a') + "\xE9x");
  expect_error([&] { make_tokenizer("character", folder / "latin"); })
      .names(folder / "latin")
      .names("UTF-8")
      .value(1048576)
      .offers("tokenizer=byte");
}
