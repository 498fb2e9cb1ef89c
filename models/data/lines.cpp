#include "models/data/lines.h"

#include <cstdint>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "models/data/text_files.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr size_t longest_line = size_t{64} << 20;  // bytes; the longest context has 16,777,216 characters of up to 4

// A splitter of a text, given in chunks of whole characters, into lines.
class Cutter {
 public:
  Cutter(const std::string& what, const TakeLine& take) : what_(what), take_(take) {}

  void add(std::string_view piece) {
    check_utf8(piece, what_, "convert it to UTF-8", bytes_);
    bytes_ += piece.size();
    while (!piece.empty()) {
      const size_t end = piece.find('\n'), length = std::min(end, piece.size());
      check(begun_.size() + length <= longest_line, what_, ": line ", lines_ + 1, " has more than ", longest_line,
            " bytes; give a text of lines");
      if (end == piece.npos || !begun_.empty()) begun_ += piece.substr(0, length);
      if (end == piece.npos) return;
      give(begun_.empty() ? piece.substr(0, length) : begun_);
      begun_.clear();
      piece.remove_prefix(end + 1);
    }
  }
  void finish() {  // the last line may have no end
    if (!begun_.empty()) give(begun_);
  }

 private:
  void give(std::string_view line) {
    ++lines_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    take_(line);
  }

  const std::string& what_;
  const TakeLine& take_;
  std::string begun_;  // the line that the next chunk continues
  uint64_t bytes_ = 0, lines_ = 0;
};

}  // namespace

void each_line(const std::string& path, const std::string& what, const TakeLine& take) {
  Cutter cutter(what, take);
  TextFiles::each_piece(path, [&](std::string_view piece, uint64_t) { cutter.add(piece); });
  cutter.finish();
}

void each_line(std::istream& input, const std::string& what, const TakeLine& take) {
  Cutter cutter(what, take);
  const auto read = [&](std::span<std::byte> bytes) {
    input.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return static_cast<size_t>(input.gcount());
  };
  TextFiles::each_piece(what, read, TextFiles::piece_size,
                        [&](std::string_view piece, uint64_t) { cutter.add(piece); });
  cutter.finish();
}

void each_kept_line(const std::string& path, const std::string& what, std::string_view way_out, const TakeLine& take) {
  check_memory(what, static_cast<double>(FileReader(path).size()), way_out);
  each_line(path, what, take);
}

}  // namespace orrery::models
