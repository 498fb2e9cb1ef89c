// Data files, which are unpacked if gzip packed them, regardless of their names.
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

constexpr uint64_t max_unpacked_bytes = uint64_t{1} << 33;  // bytes

// A reader of a regular file from its beginning, which unpacks gzip as it reads, so it needs little
// memory. Throws the errors below when it reaches the damage.
class DataReader {
 public:
  explicit DataReader(const std::string& path);
  ~DataReader();
  size_t read_up_to(std::span<std::byte> bytes);  // fewer only at the end
  bool packed() const { return unpacking_ != nullptr; }
  uint64_t size() const { return file_->size(); }  // bytes of the stored file
  class Unpacking;

 private:
  std::unique_ptr<FileReader> file_;
  std::unique_ptr<Unpacking> unpacking_;  // null: it is not packed
};

bool is_gzip(std::string_view bytes);  // by its first two: 1f 8b
// Unpacks one or more consecutive members (RFC 1952); checks lengths and checksums. The result has
// at most about 1,032 times the packed bytes, deflate's limit. Errors begin with `name`:
//   train-images.gz: its gzip data is damaged: incorrect data check; compress or download the file again
//   train-images.gz: its gzip data ends too early; compress or download the file again
std::string unpack_gzip(std::string_view bytes, std::string_view name, uint64_t limit = max_unpacked_bytes);
// Reads a regular file and unpacks it; `limit` applies to its packed and its unpacked bytes.
std::string read_data_file(const std::string& path, uint64_t limit = max_unpacked_bytes);
// Returns the path of the first of these names in the folder, plain or with .gz; empty: none.
std::string find_data_file(const std::string& folder, std::initializer_list<std::string> names);
std::vector<std::string> find_data_files(const std::string& folder, std::initializer_list<std::string> names);  // all
// Endings of names; .CSV is .csv, too.
bool is_named_packed(std::string_view path);                               // .gz
bool ends_with_or_packed(std::string_view path, std::string_view ending);  // ending, or ending.gz

}  // namespace orrery::models
