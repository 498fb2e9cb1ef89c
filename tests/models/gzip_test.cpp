// Files compressed by gzip.
#include <doctest/doctest.h>
#include <zlib.h>

#include "engine/system/files.h"
#include "models/formats/gzip.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery::models;
using orrery::read_file;
using orrery::write_file_atomically;
using orrery::testing::expect_error;
using orrery::testing::Folder;

namespace {

std::string packed(const std::string& bytes) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string all(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(all.data());
  stream.avail_out = static_cast<uInt>(all.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  all.resize(stream.total_out);
  deflateEnd(&stream);
  return all;
}

std::string lines(int count) {
  std::string all;
  for (int64_t i = 0; i < count; ++i) all += "line " + std::to_string(i * i) + "\n";
  return all;
}

}  // namespace

TEST_CASE("gzip: packed files are read, with one member or several; other files are read unchanged") {
  for (const std::string& bytes : {std::string(), lines(3), lines(60000), std::string(1 << 20, 'x')})
    CHECK(unpack_gzip(packed(bytes), "a.gz") == bytes);
  CHECK(unpack_gzip(packed(lines(2)) + packed(lines(5)) + std::string(512, '\0'), "a.gz") == lines(2) + lines(5));
  const Folder folder;
  write_file_atomically(folder / "named_otherwise", packed(lines(9)));
  write_file_atomically(folder / "plain", lines(9));
  CHECK(read_data_file(folder / "named_otherwise") == lines(9));
  CHECK(read_data_file(folder / "plain") == lines(9));
}

TEST_CASE("gzip: the error for a damaged, truncated or too large file names it") {
  const std::string whole = packed(lines(2000));
  const auto refused = [](const std::string& bytes) { return expect_error([&] { unpack_gzip(bytes, "a.gz"); }); };
  refused("plain").names("a.gz").value("not a gzip file");
  for (const size_t kept : {whole.size() - 1, whole.size() / 2, size_t{12}, size_t{2}})
    refused(whole.substr(0, kept)).names("a.gz").names("gzip").value("ends");
  refused(whole + "more").names("a.gz").names("gzip").value("damaged").value(4);
  for (size_t at = 3; at < whole.size(); at += 97) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x20);
    if (at >= 10) refused(flipped).names("a.gz").names("gzip");
  }
  const std::string large = packed(std::string(5000000, '\0'));
  expect_error([&] { unpack_gzip(large, "a.gz", 1000000); }).names("a.gz").offers(1000000);
}

TEST_CASE("gzip: a file is unpacked in chunks, and damage is reported when it is reached") {
  const Folder folder;
  const std::string path = folder / "a.gz", whole = packed(lines(60000));
  const auto all_of = [&](size_t chunk) {
    DataReader reader(path);
    std::string all, some(chunk, '\0');
    while (const size_t got = reader.read_up_to(std::as_writable_bytes(std::span(some)))) all += some.substr(0, got);
    return all;
  };
  const std::string several = packed("") + packed(lines(2)) + whole + std::string(700000, '\0');
  for (const std::string& bytes : {whole, several, lines(9)}) {
    write_file_atomically(path, bytes);
    for (const size_t chunk : {1000, 1 << 20}) CHECK(all_of(chunk) == read_data_file(path));
  }
  write_file_atomically(path, whole + "more");
  expect_error([&] { all_of(1000); }).names(path).names("gzip").value("damaged").value(4);
  write_file_atomically(path, whole.substr(0, whole.size() - 9));
  expect_error([&] { all_of(1000); }).names(path).names("gzip").value("ends");
  DataReader reader(path);
  std::string begin(1000, '\0');
  CHECK(reader.read_up_to(std::as_writable_bytes(std::span(begin))) == 1000);
  CHECK(begin == lines(60000).substr(0, 1000));
}
