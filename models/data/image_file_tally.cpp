#include "models/data/image_file_tally.h"

#include <algorithm>
#include <filesystem>

#include "engine/types/ascii.h"
#include "engine/types/check.h"

namespace orrery::models {
namespace {

// A reader of an Exif block. Its first two letters give the byte order; bytes beyond its end are 0.
class ExifReader {
 public:
  explicit ExifReader(std::string_view bytes) : bytes_(bytes), big_(bytes.starts_with("MM")) {}
  uint64_t number(uint64_t at, int size) const {
    uint64_t value = 0;
    for (int i = 0; i < size; ++i) {
      const uint64_t offset = at + static_cast<uint64_t>(big_ ? i : size - 1 - i);
      value = value << 8 | (offset < bytes_.size() ? static_cast<unsigned char>(bytes_[offset]) : 0);
    }
    return value;
  }
  int orientation() const {
    constexpr uint64_t orientation_tag = 0x0112, entry_size = 12;
    const uint64_t directory = number(4, 4);
    for (uint64_t i = 0; i < number(directory, 2); ++i) {
      const uint64_t entry = directory + 2 + i * entry_size;
      if (number(entry, 2) != orientation_tag) continue;
      const uint64_t value = number(entry + 8, 2);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
    return 1;
  }

 private:
  std::string_view bytes_;
  bool big_;
};

uint64_t big_endian(std::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = at; i < at + size; ++i)
    value = value << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0);
  return value;
}

// Returns the Exif block of a JPEG file, in a segment APP1 before the first scan.
std::string_view exif_of_jpeg(std::string_view bytes) {
  constexpr std::string_view mark("Exif\0\0", 6);
  constexpr uint64_t app1 = 0xffe1, scan = 0xffda;
  for (size_t at = 2; at + 4 <= bytes.size();) {
    const uint64_t marker = big_endian(bytes, at, 2), length = big_endian(bytes, at + 2, 2);
    if (marker < 0xff00 || marker == scan || length < 2) break;
    const std::string_view segment = bytes.substr(at + 4, length - 2);
    if (marker == app1 && segment.starts_with(mark)) return segment.substr(mark.size());
    at += 2 + length;
  }
  return {};
}

// Returns the Exif block of a PNG file, its chunk eXIf.
std::string_view exif_of_png(std::string_view bytes) {
  for (size_t at = 8; at + 8 <= bytes.size();) {
    const uint64_t length = big_endian(bytes, at, 4);
    if (bytes.substr(at + 4, 4) == "eXIf") return bytes.substr(at + 8, length);
    at += std::min<uint64_t>(length + 12, bytes.size() - at);
  }
  return {};
}

}  // namespace

int exif_orientation(std::string_view bytes) {
  const bool png = bytes.starts_with("\x89PNG");
  return ExifReader(png ? exif_of_png(bytes) : exif_of_jpeg(bytes)).orientation();
}

void ImageFileTally::leave_out(const std::string& path) {
  const std::string ending = lower_case(std::filesystem::path(path).extension().string());
  leave_out(path, ending.empty() ? "without a file extension" : ending);
}
void ImageFileTally::leave_out(const std::string& path, const std::string& where) { left_out_.add(where, path); }
void ImageFileTally::check_orientation(const std::string& path, std::string_view bytes) {
  if (const int orientation = exif_orientation(bytes); orientation != 1)
    rotated_.add(text("of orientation ", orientation), path);
}

std::vector<std::string> ImageFileTally::notes(const std::string& from) const {
  std::vector<std::string> all;
  if (!left_out_.empty())
    all.push_back(left_out_.print(from, "is", "are") +
                  " left out; only PNG and JPEG files are read, in class folders only those not in subfolders");
  if (!rotated_.empty())
    all.push_back(rotated_.print(from, "has", "have") +
                  " an Exif orientation, which is not applied; rotate the images first, for example with exiftran -ai");
  return all;
}

}  // namespace orrery::models
