#include "models/data/lines.h"

#include <cstdint>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "models/data/text_files.h"
#include "models/formats/gzip.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr size_t max_line_bytes = size_t{64} << 20;  // bytes; the longest context has 16,777,216 characters of up to 4

// A splitter of a text, given in chunks of whole characters, into lines.
class LineSplitter {
 public:
  LineSplitter(const std::string& what, const TakeLine& take) : what_(what), take_(take) {}

  void add(std::string_view chunk, uint64_t before) {
    check_utf8(chunk, what_, "convert it to UTF-8", before);
    while (!chunk.empty()) {
      const size_t end = chunk.find('\n'), length = std::min(end, chunk.size());
      check(line_start_.size() + length <= max_line_bytes, what_, ": line ", lines_ + 1, " has more than ",
            max_line_bytes, " bytes; give a text of lines");
      if (end == chunk.npos || !line_start_.empty()) line_start_ += chunk.substr(0, length);
      if (end == chunk.npos) return;
      give(line_start_.empty() ? chunk.substr(0, length) : line_start_);
      line_start_.clear();
      chunk.remove_prefix(end + 1);
    }
  }
  void finish() {  // the last line may have no end
    if (!line_start_.empty()) give(line_start_);
  }

 private:
  void give(std::string_view line) {
    ++lines_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    take_(line);
  }

  const std::string& what_;
  const TakeLine& take_;
  std::string line_start_;  // the line that the next chunk continues
  uint64_t lines_ = 0;
};

}  // namespace

void each_line(const std::string& path, const std::string& what, const TakeLine& take) {
  LineSplitter splitter(what, take);
  TextFiles::each_chunk(path, [&](std::string_view chunk, uint64_t before) { splitter.add(chunk, before); });
  splitter.finish();
}

void each_line(std::istream& input, const std::string& what, const TakeLine& take) {
  LineSplitter splitter(what, take);
  const auto read = [&](std::span<std::byte> bytes) {
    input.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return static_cast<size_t>(input.gcount());
  };
  TextFiles::each_chunk(what, read, TextFiles::chunk_size,
                        [&](std::string_view chunk, uint64_t before) { splitter.add(chunk, before); });
  splitter.finish();
}

void each_row(const std::string& path, const std::string& what, const CsvParser::Take& take,
              const std::function<void(uint64_t)>& read) {
  CsvParser parser(what, take, ends_with_or_packed(path, ".tsv") ? '\t' : ',');
  TextFiles::each_chunk(path, [&](std::string_view chunk, uint64_t before) {
    check_utf8(chunk, what, "convert it to UTF-8", before);
    read(chunk.size());
    parser.add(chunk);
  });
  parser.finish();
}

void each_kept_line(const std::string& path, const std::string& what, std::string_view way_out, const TakeLine& take) {
  check_memory(what, static_cast<double>(FileReader(path).size()), way_out);
  each_line(path, what, take);
}

}  // namespace orrery::models
