#include "models/formats/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "engine/system/machine_memory.h"
#include "engine/types/ascii.h"

namespace orrery::models {
namespace {

constexpr size_t chunk_bytes = size_t{1} << 18;
constexpr std::string_view packed_ending = ".gz", pack_again = "compress or download the file again";
constexpr int gzip_alone = 16 + MAX_WBITS;  // neither zlib's format nor raw deflate

}  // namespace

// An unpacker of consecutive members, whose packed bytes arrive in chunks.
class DataReader::Unpacking {
 public:
  using More = std::function<std::string_view()>;  // returns the next packed bytes; empty: the end
  Unpacking(More more, std::string_view name) : more_(std::move(more)), name_(name) {
    check(inflateInit2(&stream_, gzip_alone) == Z_OK, name_, ": not enough memory to unpack it; end other programs");
  }
  ~Unpacking() { inflateEnd(&stream_); }
  Unpacking(const Unpacking&) = delete;

  // Returns fewer bytes than `to` has only at the end.
  size_t read(std::span<char> to) {
    size_t got = 0;
    while (got < to.size() && !ended_) {
      if (!within_member_) {
        begin_member();
        continue;
      }
      if (packed_.empty()) refill();
      got += inflate_some(to.subspan(got));
    }
    return got;
  }

 private:
  void refill() {
    packed_ = more_();
    exhausted_ = packed_.empty();
  }
  void begin_member() {
    std::array<char, 2> mark = {};
    size_t known = 0;
    while (known < mark.size() && (!packed_.empty() || (refill(), !exhausted_)))
      mark[known++] = packed_.front(), packed_.remove_prefix(1);
    within_member_ = is_gzip({mark.data(), known});
    if (!within_member_) return check_padding({mark.data(), known});
    check(inflateReset(&stream_) == Z_OK, name_, ": not enough memory to unpack it; end other programs");
    std::string_view begin(mark.data(), known);
    inflate_from(begin, {});
  }
  // Tapes and blocks are padded with zeros; other bytes after the end are an error.
  void check_padding(std::string_view first) {
    size_t after = 0;
    bool zeros = true;
    const auto scan = [&](std::string_view bytes) {
      after += bytes.size();
      zeros = zeros && bytes.find_first_not_of('\0') == std::string_view::npos;
    };
    scan(first);
    for (; !exhausted_; refill()) scan(packed_);
    check(zeros, name_, ": its gzip data is damaged: extra bytes after its end (", after, "); ", pack_again);
    ended_ = true;
  }
  size_t inflate_some(std::span<char> to) {
    const size_t given = packed_.size(), got = inflate_from(packed_, to);
    check(got > 0 || given > 0 || !within_member_, name_, ": its gzip data ends too early; ", pack_again);
    return got;
  }
  // Consumes bytes from the front of `packed`.
  size_t inflate_from(std::string_view& packed, std::span<char> to) {
    constexpr size_t limit_bytes = std::numeric_limits<uInt>::max();
    const auto given = static_cast<uInt>(std::min(packed.size(), limit_bytes)),
               room = static_cast<uInt>(std::min(to.size(), limit_bytes));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));  // zlib does not write there
    stream_.avail_in = given;
    char nothing = 0;
    stream_.next_out = reinterpret_cast<Bytef*>(to.empty() ? &nothing : to.data());
    stream_.avail_out = room;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    check(code != Z_MEM_ERROR, name_, ": not enough memory to unpack it; end other programs");
    check(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, name_,
          ": its gzip data is damaged: ", stream_.msg ? stream_.msg : "a dictionary is required", "; ", pack_again);
    within_member_ = code != Z_STREAM_END;
    packed.remove_prefix(given - stream_.avail_in);
    return room - stream_.avail_out;
  }

  More more_;
  std::string name_;
  std::string_view packed_;
  bool exhausted_ = false, within_member_ = false, ended_ = false;
  z_stream stream_ = {};
};

DataReader::DataReader(const std::string& path) : file_(std::make_unique<FileReader>(path)) {
  std::array<char, 2> first = {};
  const size_t known = std::min<uint64_t>(first.size(), file_->size());
  file_->read_at(0, std::as_writable_bytes(std::span(first).first(known)));
  if (!is_gzip({first.data(), known})) return;
  const auto next = [this, bytes = std::string()]() mutable {
    bytes.resize(chunk_bytes);
    bytes.resize(file_->read_up_to(std::as_writable_bytes(std::span(bytes))));
    return std::string_view(bytes);
  };
  unpacking_ = std::make_unique<Unpacking>(next, path);
}
DataReader::~DataReader() = default;

size_t DataReader::read_up_to(std::span<std::byte> bytes) {
  if (!unpacking_) return file_->read_up_to(bytes);
  return unpacking_->read({reinterpret_cast<char*>(bytes.data()), bytes.size()});
}

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string unpack_gzip(std::string_view bytes, std::string_view name, uint64_t limit) {
  check(is_gzip(bytes), name, ": not a gzip file; compress it with gzip");
  DataReader::Unpacking unpacking([&] { return std::exchange(bytes, {}); }, name);
  std::string all;
  for (size_t got = chunk_bytes; got == chunk_bytes;) {
    const size_t before = all.size();
    if (before + chunk_bytes > all.capacity()) {
      const size_t more = std::max(chunk_bytes, before / 4);  // the old bytes are held while they are copied
      check_memory(text("read: ", name), static_cast<double>(before + more), "use a smaller file");
      all.reserve(before + more);
    }
    all.resize(before + chunk_bytes);
    got = unpacking.read(std::span(all).subspan(before));
    all.resize(before + got);
    check(all.size() <= limit, name, " has more than ", limit, " bytes when unpacked; use a smaller file");
  }
  return all;
}

std::string read_data_file(const std::string& path, uint64_t limit) {
  std::string bytes = read_file(path, limit);
  if (!is_gzip(bytes)) return bytes;  // not in one expression with the next line, which would copy it
  return unpack_gzip(bytes, path, limit);
}

std::vector<std::string> find_data_files(const std::string& folder, std::initializer_list<std::string> names) {
  std::vector<std::string> found;
  for (const std::string& name : names)
    for (const std::string_view ending : {std::string_view(), packed_ending})
      if (std::string path = text(folder, "/", name, ending); file_exists(path)) found.push_back(std::move(path));
  return found;
}
std::string find_data_file(const std::string& folder, std::initializer_list<std::string> names) {
  const std::vector<std::string> found = find_data_files(folder, names);
  return found.empty() ? "" : found[0];
}

bool is_named_packed(std::string_view path) { return lower_case(std::string(path)).ends_with(packed_ending); }
bool ends_with_or_packed(std::string_view path, std::string_view ending) {
  if (is_named_packed(path)) path.remove_suffix(packed_ending.size());
  return lower_case(std::string(path)).ends_with(ending);
}

}  // namespace orrery::models
