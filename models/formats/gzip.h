// Data as it was downloaded: a file that gzip has packed is read as what is in it, whatever its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/system/files.h"

namespace orrery::models {

constexpr uint64_t largest_unpacked = uint64_t{1} << 33;  // bytes

// A regular file from its beginning, unpacked on the way if gzip has packed it, so that memory holds little of it.
// Errors as below, once what is wrong is reached.
class DataReader {
 public:
  explicit DataReader(const std::string& path);
  ~DataReader();
  size_t read_up_to(std::span<std::byte> bytes);  // fewer only at the end
  bool packed() const { return unpacking_ != nullptr; }
  uint64_t size() const { return file_->size(); }  // bytes, as it lies there
  class Unpacking;

 private:
  std::unique_ptr<FileReader> file_;
  std::unique_ptr<Unpacking> unpacking_;  // null: it is not packed
};

bool is_gzip(std::string_view bytes);  // by its first two: 1f 8b
// What is in it, one member or several in a row (RFC 1952); lengths and checksums are compared.  It takes at most about
// 1,032 times as many bytes as are packed, for deflate saves no more.  Errors begin with `name`:
//   train-images.gz: its gzip data is damaged: incorrect data check
//   train-images.gz: its gzip data ends too early
std::string unpack_gzip(std::string_view bytes, std::string_view name, uint64_t limit = largest_unpacked);
// A regular file, whole, unpacked if it is packed; `limit` is for what is read and for what it unpacks to.
std::string read_data_file(const std::string& path, uint64_t limit = largest_unpacked);
// The first of these names, plain or with .gz, that the folder holds; empty if there is none.
std::string find_data_file(const std::string& folder, std::initializer_list<std::string> names);
std::vector<std::string> find_data_files(const std::string& folder, std::initializer_list<std::string> names);  // all
bool ends_with_or_packed(std::string_view path, std::string_view ending);  // ending.gz too

}  // namespace orrery::models
