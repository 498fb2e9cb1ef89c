// Formats of texts: which format a path has, and the documents that JSONL, CSV and TSV hold.
#include "models/data/text_format.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "engine/system/files.h"
#include "engine/system/hash.h"
#include "models/data/prepared.h"
#include "models/data/text.h"
#include "models/formats/csv.h"
#include "models/training/run_folder.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

std::unique_ptr<Tokenizer> gpt2() { return make_tokenizer(ORRERY_SOURCE_DIR "/tests/models/byte_pair/gpt2", ""); }

// Returns the text of the tokens: <|endoftext|> ends each document.
std::string read_with_gpt2(const TextSource& source) {
  const auto tokenizer = gpt2();
  return tokenizer->decode(Text(source, *tokenizer, 0).train().to_vector());
}
std::string read_with_bytes(const TextSource& source) {
  const auto tokenizer = make_tokenizer("byte", source);
  return tokenizer->decode(Text(source, *tokenizer, 0).train().to_vector());
}
Message refused(const TextSource& source) {
  return expect_error([&] { read_with_bytes(source); });
}

}  // namespace

TEST_CASE("text formats: the files decide the format, and an empty field means plain text") {
  const Folder folder;
  const auto name_of = [](const TextSource& source) { return document_format_of(source).name; };
  for (const std::string name : {"a.txt", "b.jsonl", "c.ndjson", "d.csv", "e.tsv", "f"}) write(folder / name, "x\n");
  CHECK(name_of(folder / "a.txt") == "text");
  CHECK(name_of(folder / "b.jsonl") == "jsonl");
  CHECK(name_of(folder / "c.ndjson") == "jsonl");
  CHECK(name_of(folder / "d.csv") == "csv");
  CHECK(name_of(folder / "e.tsv") == "tsv");
  CHECK(name_of({folder / "e.tsv", ""}) == "text");
  CHECK(name_of(folder / "f") == "text");
  write(folder / "lines/1.jsonl", "{}"), write(folder / "lines/2.jsonl", "{}"), write(folder / "lines/3.png", "");
  CHECK(name_of(folder / "B.JSONL.GZ") == "jsonl");
  CHECK(has_many_documents(TextPath(folder / "lines")));
  CHECK_FALSE(has_tokens(folder / "lines"));
  write(folder / "tokens/train.bin", "aa");
  CHECK(has_tokens(folder / "tokens"));
  CHECK(token_format_of(TextPath(folder / "tokens"))->name == "prepared");
  const std::string empty = folder / "empty";
  make_folders(empty);
  expect_error([&] { const TextFiles none(empty); }).names(empty).offers("csv").offers("jsonl").offers("tsv");
}

TEST_CASE("text formats: the field of each line of JSONL is a document") {
  const Folder folder;
  const std::string path = folder / "a.jsonl";
  write(path, "{\"id\": 1, \"text\": \"one\"}\n\n{\"text\": \"tw\\u00f6\", \"more\": {\"text\": 3}, \"x\": NaN}\r\n"
              "{\"text\": \"\"}\n{\"body\": null, \"text\": \"a\\nb\"}");
  CHECK(read_with_gpt2(path) == "one<|endoftext|>tw\xC3\xB6<|endoftext|><|endoftext|>a\nb<|endoftext|>");
  CHECK(read_with_bytes(path) == "one\ntw\xC3\xB6\n\na\nb\n");  // no token ends a document, so a line break does
  const std::string plain = read_file(path);
  CHECK(read_with_bytes({path, ""}) == plain);
  // The documents are hashed, not the file. A line break may follow each, unlike in a folder of texts:
  // there the division differs.
  const std::string documents[] = {"one", "tw\xC3\xB6", "", "a\nb"};
  for (size_t i = 0; i < std::size(documents); ++i) write(folder / ("texts/" + std::to_string(i)), documents[i]);
  const TextFiles files(path), texts(folder / "texts");
  CHECK(files.fingerprints().text == texts.fingerprints().text);
  CHECK(files.fingerprints().division != texts.fingerprints().division);
  const auto tokenizer = gpt2();
  CHECK(Text(path, *tokenizer, 0).train().to_vector() == Text(folder / "texts", *tokenizer, 0).train().to_vector());
  REQUIRE(std::system(("gzip -k '" + path + "'").c_str()) == 0);
  CHECK(TextFiles(path + ".gz").fingerprints().text == files.fingerprints().text);
  CHECK(read_with_gpt2(path + ".gz") == read_with_gpt2(path));
  // Several files: the tokens of each are known as its own data.
  write(folder / "lines/1.jsonl", plain), write(folder / "lines/2.jsonl", "{\"text\": \"end\"}\n");
  const Text both(folder / "lines", *tokenizer, 0), first(folder / "lines/1.jsonl", *tokenizer, 0);
  REQUIRE(both.parts().size() == 3);
  CHECK(both.parts()[1].fingerprint == first.fingerprint());
  CHECK(both.parts()[1].end == first.train().size());
  CHECK(both.parts()[2].end == both.train().size());
}

TEST_CASE("text formats: the characters of each document are those of its tokens") {
  const Folder folder;
  const auto pieces = make_tokenizer(ORRERY_SOURCE_DIR "/tests/models/sentence_piece/small.model", "");
  write(folder / "a.jsonl", "{\"text\": \"one  two   \"}\n{\"text\": \"three \"}\n{\"text\": \"  four\"}\n");
  const TokenSequence tokens = Text(folder / "a.jsonl", *pieces, 0).train();
  REQUIRE(tokens.has_characters());
  std::vector<int32_t> counts(static_cast<size_t>(tokens.size()));
  tokens.read_characters(0, counts);
  const int64_t breaks = pieces->end_of_text() ? 0 : 3;  // line breaks end documents without a token for it
  CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == 11 + 6 + 6 + breaks);
}

TEST_CASE("text formats: a document longer than a chunk is read whole") {
  const Folder folder;
  std::string text;
  while (text.size() < 2 * TextFiles::chunk_size) text += "\xE2\x82\xAC,\"\n";
  write(folder / "a.jsonl", nlohmann::json{{"text", text}}.dump() + "\n");
  write(folder / "a.csv", csv_line({"id", "text"}) + csv_line({"1", text}));
  CHECK(read_with_bytes(folder / "a.jsonl") == text + "\n");
  CHECK(read_with_bytes(folder / "a.csv") == text + "\n");
}

TEST_CASE("text formats: a column of CSV and TSV has the documents, with quotes as in RFC 4180") {
  const Folder folder;
  write(folder / "a.csv", "\xEF\xBB\xBFid,text\r\n1,\"one, \"\"two\"\"\nthree\"\r\n2,four\r\n3,");
  CHECK(read_with_gpt2(folder / "a.csv") == "one, \"two\"\nthree<|endoftext|>four<|endoftext|><|endoftext|>");
  CHECK(read_with_bytes({folder / "a.csv", "id"}) == "1\n2\n3\n");
  write(folder / "a.tsv", "text\tn\none, two\t1\n\"a\tb\"\t2\n");
  CHECK(read_with_bytes(folder / "a.tsv") == "one, two\na\tb\n");
}

TEST_CASE("text formats: a byte order mark at the start of a file is dropped, elsewhere it is text") {
  const Folder folder;
  const std::string mark = "\xEF\xBB\xBF", text = "one\ntwo" + mark + "\n";
  write(folder / "plain/1.txt", text), write(folder / "plain/2.txt", text);
  write(folder / "marked/1.txt", mark + text), write(folder / "marked/2.txt", mark + text);
  CHECK(read_with_bytes(folder / "marked/1.txt") == text);
  for (const std::string name : {"", "/1.txt"}) {
    const TextFiles plain(folder / ("plain" + name)), marked(folder / ("marked" + name));
    CHECK(marked.fingerprints().text == plain.fingerprints().text);
    CHECK(marked.fingerprints().files == plain.fingerprints().files);
    CHECK(marked.fingerprints().division == plain.fingerprints().division);
  }
  const auto size = [&](const std::string& content) {
    write(folder / "a.txt", content);
    return make_tokenizer("character", folder / "a.txt")->size();
  };
  CHECK(size(mark + "abc") == 3);
  CHECK(size("abc" + mark) == 4);
  CHECK(size(mark + mark + "abc") == 4);
  write(folder / "bad.txt", mark + "a\xE9");  // the offset is that of the file
  expect_error([&] { make_tokenizer("character", folder / "bad.txt"); }).value("byte 4");
}

TEST_CASE("text formats: errors of JSONL, CSV and TSV name the file, the place and what is there") {
  const Folder folder;
  const std::string lines = folder / "a.jsonl", table = folder / "a.csv";
  const auto refused_line = [&](const std::string& line) {
    write(lines, "{\"text\": \"a\"}\n" + line + "\n{\"text\": \"b\"}\n");
    return refused(lines).names(lines).names("line 2");
  };
  refused_line("{\"text\": \"b\"").names("column").value("invalid JSON");
  refused_line("{\"text\": \"b\", \"x\": 1e999}").names("column").value("too large").offers("1.797e308");
  refused_line("plain text").names("column 1").value("invalid JSON");
  refused_line("{\"id\": 1, \"body\": \"b\"}").names("text").value("missing").offers("id, body");
  refused_line("{}").names("text").value("missing").offers("no members");
  refused_line("{\"text\": [\"b\"]}").names("text").value("text in quotes");
  refused_line("{\"text\": null}").names("text").value("text in quotes");
  refused_line("[1]").value("not an object");
  refused_line(std::string(100'000, '[')).names("column").value("invalid JSON");  // needs no stack
  write(lines, "{\"text\": \"\xE9\"}");
  refused(lines).names(lines).value("UTF-8").value(10);
  write(table, "id,body\n1,a\n");
  refused(table).names(table).names("text").value("id, body").offers("--text_field=COLUMN");
  write(table, "id,text\n1,a\n2\n");
  refused(table).names(table).names("row 3").value(1).offers(2);
  write(table, "id,text\n1,\"a\n");
  refused(table).names(table).names("row 2").value("closing quote");
  write(folder / "a.tsv", "id\ttext\n1\t\"a\"b\n");
  refused(folder / "a.tsv").names("row 2").value("closing quote").offers("tab");
  write(lines, "{\"text\": \"abc\"}\n{\"text\": \"xyz\"}\n"), write(folder / "abc", "abc\n");
  const auto tokenizer = make_tokenizer("character", folder / "abc");
  expect_error([&] { Text(lines, *tokenizer, 0); }).names(lines).names("document 2").value("x");
}

TEST_CASE("text formats: CSV in chunks of any size has the rows of the whole") {
  const std::string csv = "a,b\r\n\"x \"\"y\"\"\r\nz\",\r\n,\"\"\n1,\"2\"\r\nend,\r";
  const std::vector<CsvRow> expected = {{"a", "b"}, {"x \"y\"\r\nz", ""}, {"", ""}, {"1", "2"}, {"end", "\r"}};
  CHECK(parse_csv(csv, "t") == expected);
  for (const size_t chunk : {1, 2, 3, 7}) {
    std::vector<CsvRow> rows;
    CsvParser parser("t", [&](const CsvRow& row) { rows.push_back(row); });
    for (size_t at = 0; at < csv.size(); at += chunk) parser.add(std::string_view(csv).substr(at, chunk));
    parser.finish();
    CHECK(rows == expected);
  }
}

TEST_CASE("text formats: runs and prepare read JSONL, and another field is other data") {
  const Run run;
  const std::string path = run.folder / "a.jsonl";
  const std::string text = read_file(run.text);
  std::string lines;
  for (size_t at = 0; at < text.size(); at += 50)
    lines += nlohmann::json{{"text", text.substr(at, 50)}, {"body", "b" + text.substr(at, 50)}}.dump() + "\n";
  write(path, lines);
  const Assignments of_lines = {{"data", path}, {"tokenizer", "byte"}};
  run.train(of_lines);
  CHECK(run.resume(of_lines).steps_done == 8);
  Assignments of_body = of_lines;
  of_body.insert(of_body.end(), {{"text_field", "body"}, {"steps", "9"}});
  expect_error([&] { run.resume(of_body); }).names("data").value(path).offers("--allow_new_text=yes");
  of_body.emplace_back("allow_new_text", "yes");
  CHECK(run.resume(of_body).steps_done == 9);
  const Prepared made = prepare({.input = path, .out = run.folder / "tokens", .tokenizer = "byte"});
  CHECK(made.train + made.validation == Text(path, *make_tokenizer("byte", path), 0).train().size());
}

TEST_CASE("text formats: a run of a version without text_field continues with JSONL as plain text") {
  const Run run;
  const std::string path = run.folder / "a.jsonl";
  write(path, read_file(run.text));  // not JSON
  run.train({{"data", path}, {"text_field", ""}});
  const std::string last = latest_checkpoint(run.out);
  const auto field = [&] { return setting_of(make_settings(read_state(last).settings), "text_field"); };
  CHECK(field().empty());
  CheckpointState state = read_state(last);
  std::erase_if(state.settings, [](const auto& setting) { return setting.first == "text_field"; });
  write_state(last, state);
  CHECK(field().empty());
  for (auto& [key, value] : state.settings)
    if (key == "data") value = run.text;
  write_state(last, state);
  CHECK(field() == "text");
}

TEST_CASE("text formats: each file of a folder has its own format, by an ending in any case") {
  const Folder folder;
  write(folder / "mixed/a.JSONL", "{\"text\": \"one\"}\n");
  write(folder / "mixed/b.Csv", "id,text\n1,two\n\n2,three\n");
  write(folder / "mixed/c.md", "four");
  CHECK(read_with_gpt2(folder / "mixed") == "one<|endoftext|>two<|endoftext|>three<|endoftext|>four<|endoftext|>");
  CHECK(read_with_bytes(folder / "mixed") == "one\ntwo\nthree\nfour\n");
  refused({folder / "mixed/c.md", "body"}).names("text_field").value("body").names(folder / "mixed/c.md");
  write(folder / "latin.csv", "id,text\n1,\xe4\n");
  refused(folder / "latin.csv").names(folder / "latin.csv").value("UTF-8").value(10);
}

TEST_CASE("text formats: the limit of a row's bytes counts that row alone") {
  int64_t rows = 0;
  CsvParser parser("text: a", [&](const CsvRow&) { ++rows; });
  const std::string row(size_t{40} << 20, 'x'), blank(size_t{70} << 20, '\n');
  parser.add(row + "\n" + row + "\n" + blank + row + "\n");
  parser.finish();
  CHECK(rows == 3);
  const auto add_long = [&] {
    CsvParser other("text: a", [](const CsvRow&) {});
    for (int i = 0; i < 2; ++i) other.add(row);
  };
  expect_error(add_long).names("a").value(1).value(size_t{64} << 20);
}
