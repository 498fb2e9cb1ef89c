// Data as it was downloaded: a file that gzip has packed is read as what is in it, whatever its name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::models {

constexpr uint64_t largest_unpacked = uint64_t{1} << 33;  // bytes

bool is_gzip(std::string_view bytes);  // by its first two: 1f 8b
// What is in it, one member or several in a row (RFC 1952); lengths and checksums are compared.  It takes at most about
// 1,032 times as many bytes as are packed, for deflate saves no more.  Errors begin with `name`:
//   train-images.gz: its gzip data is damaged: incorrect data check
//   train-images.gz: its gzip data ends too early
std::string unpack_gzip(std::string_view bytes, std::string_view name, uint64_t limit = largest_unpacked);
// A regular file, whole, unpacked if it is packed; `limit` is for what is read and for what it unpacks to.
std::string read_data_file(const std::string& path, uint64_t limit = largest_unpacked);

}  // namespace orrery::models
