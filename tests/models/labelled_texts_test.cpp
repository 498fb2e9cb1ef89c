// Tables of labelled texts: CSV, TSV and JSON lines.
#include <doctest/doctest.h>

#include "engine/system/files.h"
#include "models/data/labelled_texts.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;

namespace {

const std::string csv = "id,text,label\n1,\"a, \"\"b\"\"\",no\n2,second,yes\n3,third,no\n",
                  tsv = "label\ttext\nno\ta, \"b\"\nyes\tsecond\nno\tthird\n",
                  jsonl = "{\"text\": \"a, \\\"b\\\"\", \"label\": \"no\"}\n\n"
                          "{\"label\": \"yes\", \"text\": \"second\"}\n"
                          "{\"text\": \"third\", \"label\": \"no\", \"more\": [1]}\n";

}  // namespace

TEST_CASE("labelled texts: each format gives the same texts, labels and classes") {
  const Folder folder;
  for (const auto& [name, content] : {std::pair{"a.csv", csv}, std::pair{"a.tsv", tsv}, std::pair{"a.jsonl", jsonl}}) {
    const std::string file = name;
    CAPTURE(file);
    write_file_atomically(folder / name, content);
    const LabelledTexts found = read_labelled_texts(folder / name, "text", "label");
    CHECK(found.texts == std::vector<std::string>{"a, \"b\"", "second", "third"});
    CHECK(found.labels == std::vector<int32_t>{0, 1, 0});
    CHECK(found.classes == std::vector<std::string>{"no", "yes"});
  }
  write_file_atomically(folder / "b.jsonl", "{\"label\": true, \"text\": \"a\"}\n \t\n"
                                            "{\"text\": \"b\", \"label\": -12}\n"
                                            "{\"text\": \"c\", \"label\": 18446744073709551615}\n");
  CHECK(read_labelled_texts(folder / "b.jsonl", "text", "label").classes ==
        std::vector<std::string>{"-12", "18446744073709551615", "true"});
}

TEST_CASE("labelled texts: numbers are sorted by value, and other data may lack classes but add none") {
  const Folder folder;
  write_file_atomically(folder / "a.jsonl", "{\"t\":\"x\",\"l\":10}\n{\"t\":\"y\",\"l\":9}\n{\"t\":\"z\",\"l\":-1}\n");
  const LabelledTexts all = read_labelled_texts(folder / "a.jsonl", "t", "l");
  CHECK(all.classes == std::vector<std::string>{"-1", "10", "9"});  // not all are numbers from 0: by name
  write_file_atomically(folder / "b.csv", "t,l\nx,10\ny,9\n");
  LabelledTexts some = read_labelled_texts(folder / "b.csv", "t", "l");
  CHECK(some.classes == std::vector<std::string>{"9", "10"});
  some.relabel(all.classes, all.path);
  CHECK(some.labels == std::vector<int32_t>{1, 2});
  // Numbers are classes by value, as in folders of images, and blank lines are skipped.
  write_file_atomically(folder / "C.CSV", "t,l\nx,009\n\ny,LABEL_10\nz,9\n\n");
  const LabelledTexts zeros = read_labelled_texts(folder / "C.CSV", "t", "l");
  CHECK(zeros.classes == std::vector<std::string>{"9", "10"});
  CHECK(zeros.labels == std::vector<int32_t>{0, 1, 0});
  LabelledTexts more = all;
  expect_error([&] { more.relabel({"9", "10"}, folder / "b.csv"); })
      .names("evaluate")
      .names(folder / "a.jsonl")
      .value("-1")
      .names(folder / "b.csv")
      .offers("9, 10");
}

TEST_CASE("labelled texts: errors name the file and the row") {
  const Folder folder;
  const auto refused = [&](const std::string& name, const std::string& content, const std::string& column = "text") {
    write_file_atomically(folder / name, content);
    return expect_error([&] { read_labelled_texts(folder / name, column, "label"); });
  };
  refused("a.csv", csv, "tex").names(folder / "a.csv").value("tex").names("text_column").offers("id, text, label");
  refused("a.tsv", "text\tlabel\na\n").names(folder / "a.tsv").value(2).value(1).offers(2);
  refused("b.tsv", "text\tlabel\na\t\n").names(folder / "b.tsv").value(2).names("label");
  refused("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\"\n").names("a.jsonl: line 2").value("JSON");
  refused("b.jsonl", "{\"text\": \"a\"}\n").names(folder / "b.jsonl: line 1").value("label").offers("text");
  refused("c.jsonl", "{\"text\": \"a\", \"label\": [1]}\n").names("c.jsonl: line 1").value("label").offers("number");
  refused("d.jsonl", "[1]\n").names(folder / "d.jsonl: line 1").value("not an object");
  refused("e.jsonl", "{\"text\": 1, \"label\": 1}\n").names("line 1").value("'text'").offers("text in quotes");
  refused("f.jsonl", "{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"a\", \"label\": 1e999}\n")
      .names("f.jsonl: line 3, column")
      .value("too large");
  refused("g.jsonl", "{\"text\": \"a\", \"label\": \"\"}\n").names(folder / "g.jsonl: line 1").value("label is empty");
  refused("a.txt", "text").names(folder / "a.txt").offers(".csv");
  refused("b.csv", "text,label\n").names(folder / "b.csv").value("texts");
  refused("c.csv", "text,label\n\xff,a\n").names(folder / "c.csv").value("UTF-8").value(11);
}
