// Tensors as stored in files: their ranges, and NumPy arrays.
#include "models/interop/base/stored_tensors.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/system/files.h"
#include "models/interop/npy.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;

namespace {

template <class T>
StoredTensor stored(const std::string& dtype, const std::vector<T>& numbers) {
  StoredTensor x{"x", dtype, {static_cast<int64_t>(numbers.size())}, {}, {}};
  x.bytes.resize(numbers.size() * sizeof(T));
  std::memcpy(x.bytes.data(), numbers.data(), x.bytes.size());
  return x;
}
StoredTensor stored(const Tensor& x, const std::string& dtype) { return {"x", dtype, {x.size(0), x.size(1)}, x, {}}; }

std::string npy(const StoredTensor& x) {
  const Folder folder;
  write_npy(folder / "x.npy", x);
  return read_file(folder / "x.npy");
}

}  // namespace

TEST_CASE("stored tensors: ranges, with separate counts of non-finite values") {
  const double infinity = std::numeric_limits<double>::infinity();
  const ValueRange range = range_of(stored(Tensor::from({1, 4}, {1, -3, infinity, 5}), "F32"));
  CHECK(range.low == -3);
  CHECK(range.high == 5);
  CHECK(range.mean == 1);
  CHECK(range.finite == 3);
  CHECK(range.not_finite == 1);
  CHECK(range_of(stored<int64_t>("I64", {-7, 9})).low == -7);
  CHECK(range_of(stored<uint8_t>("BOOL", {0, 1, 1, 1})).mean == 0.75);
  CHECK(range_of(stored<uint64_t>("U64", {3})).high == 3);
  CHECK(range_of(stored<int16_t>("I16", {-2, 4})).mean == 1);
  CHECK(range_of(stored<uint8_t>("F8_E4M3", {3})).finite == 0);
  CHECK(range_of(stored(Tensor::from({2, 1}, {1.5, 2.5}, Dtype::bf16), "BF16")).mean == 2);
}

TEST_CASE("stored tensors: opening a file reads names, dtypes and shapes; numbers are read on request") {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  const std::string header = R"({"half":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                             R"("byte":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
                             R"("wide":{"dtype":"F32","shape":[1,1],"data_offsets":[7,11]}})";
  const uint64_t length = header.size();
  const float wide = 2.5;
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += header + std::string("\x00\x3c\x00\xc0", 4) + std::string("\x01\x02\x03", 3);
  bytes.append(reinterpret_cast<const char*>(&wide), sizeof wide);
  write_file_atomically(path, bytes);
  const std::vector<StoredTensor> all = stored_tensors(path);
  REQUIRE(all.size() == 3);
  for (const StoredTensor& each : all) CHECK((!each.tensor && each.bytes.empty()));
  CHECK(all[0].dtype == "F16");
  CHECK(shape_text(all[2]) == "(1, 1)");
  CHECK(with_values(all[0]).tensor.to_vector() == std::vector<double>{1, -2});
  CHECK(with_values(all[1]).bytes == std::vector<std::byte>{std::byte{1}, std::byte{2}, std::byte{3}});
  CHECK(with_values(all[2]).tensor.to_vector() == std::vector<double>{2.5});
  CHECK(with_values(with_values(all[2])).tensor.to_vector() == std::vector<double>{2.5});
}

TEST_CASE("stored tensors: a safetensors file and a pickle are distinguished, for any header length") {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  int like_a_pickle = 0;
  for (size_t length = 0; length < 1400; length += 8) {
    write_safetensors(path, std::vector<NamedTensor>{{"x", Tensor::zeros(Shape{1})}},
                      {{"note", std::string(length, 'a')}});
    const std::string bytes = read_file(path);
    like_a_pickle += bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;  // like a pickle of protocol 2 to 5
    CHECK(!is_pickle(path));
  }
  CHECK(like_a_pickle > 0);
  write_file_atomically(path, std::string_view("\x80\x02}q\x00.", 6));
  CHECK(is_pickle(path));
}

TEST_CASE("stored tensors: tokens are whole numbers of any dtype") {
  CHECK(as_tokens(stored<int64_t>("I64", {3, 70000})).to_vector() == std::vector<double>{3, 70000});
  expect_error([] { as_tokens(stored<int64_t>("I64", {-1})); }).names("x").value(-1).names("token");
  expect_error([] { as_tokens(stored<uint8_t>("C64", {1})); }).names("x").value("dtype C64").names("tokens");
}

TEST_CASE("npy: mark, version, header to a multiple of 64, numbers") {
  const std::string bytes = npy(stored(Tensor::from({2, 3}, {1, 2, 3, 4, 5, 6}, Dtype::f64), "F64"));
  CHECK(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
  CHECK((10 + header) % 64 == 0);
  CHECK(bytes.substr(10, 57) == "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3),");
  CHECK(bytes[9 + header] == '\n');
  REQUIRE(bytes.size() == 10 + header + 48);
  double last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 8, 8);
  CHECK(last == 6);
  CHECK(npy(stored<int64_t>("I64", {5})).find("'<i8', 'fortran_order': False, 'shape': (5, )") == std::string::npos);
  CHECK(npy(stored<int64_t>("I64", {5})).find("'<i8', 'fortran_order': False, 'shape': (1, )") != std::string::npos);
  const std::string rounded = npy(stored(Tensor::from({1, 1}, {1.5}, Dtype::bf16), "BF16"));
  CHECK(rounded.find("'<f4'") != std::string::npos);
  CHECK(rounded.size() % 64 == 4);
  expect_error([] { npy(stored<uint8_t>("F8_E4M3", {3})); }).names("x").value("dtype F8_E4M3").names("NumPy");
}
