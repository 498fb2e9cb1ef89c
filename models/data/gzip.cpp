#include "models/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "engine/base/files.h"

namespace orrery::models {
namespace {

constexpr size_t piece = size_t{1} << 18;
constexpr int gzip_alone = 16 + MAX_WBITS;  // neither zlib's own wrapping nor none

class Inflation {
 public:
  explicit Inflation(std::string_view name) : name_(name) {
    check(inflateInit2(&stream_, gzip_alone) == Z_OK, name_, ": there is no memory to unpack it");
  }
  ~Inflation() { inflateEnd(&stream_); }
  Inflation(const Inflation&) = delete;

  // Appends what is in one member and returns how many of the bytes it took.
  size_t unpack(std::string_view bytes, uint64_t limit, std::string& all) {
    size_t taken = 0;
    for (int code = Z_OK; code != Z_STREAM_END;) {
      const size_t given = std::min<size_t>(bytes.size() - taken, std::numeric_limits<uInt>::max()),
                   before = all.size();
      all.resize(before + piece);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));  // zlib does not write there
      stream_.avail_in = static_cast<uInt>(given);
      stream_.next_out = reinterpret_cast<Bytef*>(all.data() + before);
      stream_.avail_out = static_cast<uInt>(piece);
      code = inflate(&stream_, Z_NO_FLUSH);
      taken += given - stream_.avail_in;
      all.resize(before + piece - stream_.avail_out);
      check(code != Z_MEM_ERROR, name_, ": there is no memory to unpack it");
      check(code != Z_BUF_ERROR || taken < bytes.size(), name_, ": its gzip data ends too early");
      check(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, name_,
            ": its gzip data is damaged: ", stream_.msg ? stream_.msg : "it needs a dictionary");
      check(all.size() <= limit, name_, " holds more bytes than the ", limit, " that are read");
    }
    check(inflateReset(&stream_) == Z_OK, name_, ": there is no memory to unpack it");
    return taken;
  }

 private:
  std::string_view name_;
  z_stream stream_ = {};
};

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string unpack_gzip(std::string_view bytes, std::string_view name, uint64_t limit) {
  check(is_gzip(bytes), name, ": it is no gzip file");
  Inflation inflation(name);
  std::string all;
  for (; is_gzip(bytes); bytes.remove_prefix(inflation.unpack(bytes, limit, all))) continue;
  // Tapes and blocks are filled up with zeros; anything else is no part of what was packed.
  check(bytes.find_first_not_of('\0') == std::string_view::npos, name, ": its gzip data is damaged: ", bytes.size(),
        " bytes follow the end");
  return all;
}

std::string read_data_file(const std::string& path, uint64_t limit) {
  std::string bytes = read_file(path, limit);
  return is_gzip(bytes) ? unpack_gzip(bytes, path, limit) : bytes;
}

}  // namespace orrery::models
