// Text files of a folder: which are read, in which order, and which are left out.
#include "models/data/text_files.h"

#include <doctest/doctest.h>

#include <span>

#include "engine/system/files.h"
#include "engine/system/hash.h"
#include "models/data/data_format.h"
#include "models/data/prepared.h"
#include "models/data/text.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

TEST_CASE("text files: a folder's files are read by name, with a token between documents, without hidden files") {
  const Folder folder;
  const std::string path = folder / "texts";
  write(path + "/b.txt", "two");
  write(path + "/a/z.txt", "one");
  write(path + "/.hidden", "none");
  const TextFiles files(path);
  CHECK(files.bytes() == 6);
  CHECK(files.fingerprints().text.sha256 == sha256(std::as_bytes(std::span("onetwo", 6))));
  const auto tokenizer = make_tokenizer(ORRERY_SOURCE_DIR "/tests/models/byte_pair/gpt2", "");
  CHECK(tokenizer->decode(Text(path, *tokenizer, 0).train().to_vector()) == "one<|endoftext|>two<|endoftext|>");
  CHECK(Text(path, *make_tokenizer("byte", path), 0).train().size() == 6);
  const std::string empty = folder / "empty";
  make_folders(empty);
  expect_error([&] { const TextFiles none(empty); }).names(empty).value("without files");
  write(empty + "/x", "");
  expect_error([&] { const TextFiles none(empty); }).names(empty).value("empty files");
}

TEST_CASE("text files: a binary file is answered by every format, a text that is not UTF-8 by the way out alone") {
  const Folder folder;
  const auto refused = [](const std::string& path) {
    return expect_error([&] { make_tokenizer("character", path); }).names(path).value("not valid UTF-8");
  };
  const std::string binary = folder / "binary", latin = folder / "latin";
  write(binary, std::string("ab\0\xff", 4)), write(latin, "ab\xff");
  refused(binary).offers("tokenizer=byte").names("known formats:\n  csv: ").names("\n  jsonl: ").names("\n  text: ");
  try {
    make_tokenizer("character", latin);
    FAIL("it is not UTF-8");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("known formats") == std::string::npos);
  }
  // A line break in a name begins no new line of the message.
  expect_error<UnknownFormat>([&] { fail_unknown_format("text", "text: a\nb has none"); })
      .names("a\\x0ab")
      .names("\n  csv: ");
}

TEST_CASE("text files: backups, images and other compressed files of a folder are left out and counted") {
  const Folder folder;
  const std::string path = folder / "texts";
  for (const std::string name : {"k.txt~", "l.bak", "h.png", "i.JPG", "o.txt.xz", "p.txt.bz2", "q.tar.gz"})
    write(path + "/" + name, "none");
  expect_error<UnknownFormat>([&] { const TextFiles none(path); })
      .names(path)
      .value("without text files")
      .names("known formats:\n  csv: ")
      .names("\n  text: ");
  CHECK(TextFiles(path + "/l.bak").notes().empty());  // a file that is named is read
  write(path + "/a.txt", "one");
  write(path + "/b.log", "two");
  const TextFiles files(path);
  CHECK(files.bytes() == 6);
  REQUIRE(files.notes().size() == 1);
  Message(files.notes()[0])
      .names("7 files in " + path)
      .value("1 .bak, 1 .bz2, 1 .jpg, 1 .png, 1 .tar.gz, 1 .xz, 1 ~; first: " + path + "/h.png")
      .value("2 are read")
      .offers("gzip");
  const auto tokenizer = make_tokenizer("byte", path);
  const Text text(path, *tokenizer, 0);
  CHECK(text.train().size() == 6);
  CHECK(text.notes() == files.notes());
  const Prepared made = prepare({.input = path, .out = folder / "tokens", .tokenizer = "byte"});
  CHECK(made.train + made.validation == 6);
  CHECK(made.notes == files.notes());
  const Run run;  // each run reports the line
  write(run.folder / "both/a.txt", read_file(run.text)), write(run.folder / "both/b.bak", "none");
  const Trainer trainer(run.settings({{"data", run.folder / "both"}}));
  const std::vector<std::string> warnings = trainer.task().warnings();
  REQUIRE(!warnings.empty());
  Message(warnings[0]).names("1 file in " + (run.folder / "both")).value("1 .bak").value("1 is read");
}
