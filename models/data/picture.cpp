#include "models/data/picture.h"

// What is not used could only be attacked.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS 65536
#include <stb/stb_image.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

#include "engine/base/check.h"
#include "models/data/gzip.h"

namespace orrery::models {
namespace {

// Deflate packs 1,032 bytes into one, and a byte may hold 8 pixels; a picture that claims more is none.
constexpr int64_t most_pixels_of_byte = 8 * 1032;

struct Weights {  // of one pixel: those from `first` on
  int64_t first;
  std::vector<double> of;
};
std::vector<Weights> triangles(int64_t begin, int64_t length, int64_t side) {
  const double ratio = static_cast<double>(length) / static_cast<double>(side), reach = std::max(ratio, 1.0);
  std::vector<Weights> all;
  for (int64_t i = 0; i < side; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * ratio - 0.5;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(centre - reach))),
               last = std::min<int64_t>(length - 1, static_cast<int64_t>(std::floor(centre + reach)));
    Weights weights{begin + first, {}};
    double sum = 0;
    for (int64_t j = first; j <= last; ++j) {
      weights.of.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(j) - centre) / reach));
      sum += weights.of.back();
    }
    for (double& weight : weights.of) weight /= sum;
    all.push_back(std::move(weights));
  }
  return all;
}

// A chunk of a PNG that claims more bytes than are left would be given memory for them before it is read.
void check_chunks(std::string_view bytes, std::string_view name) {
  constexpr std::string_view signature = "\x89PNG\r\n\x1a\n";
  if (!bytes.starts_with(signature)) return;
  for (size_t at = signature.size(); at + 8 <= bytes.size();) {
    const auto byte = [&](size_t i) { return uint64_t{static_cast<unsigned char>(bytes[at + i])}; };
    const uint64_t length = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3), left = bytes.size() - at - 8;
    check(length <= left, name, ": it cannot be decoded: a chunk claims ", length, " bytes, where ", left, " are left");
    if (bytes.substr(at + 4, 4) == "IEND") return;
    at += std::min<uint64_t>(length + 12, bytes.size() - at);
  }
}

// A Huffman table of a JPEG has at most 256 symbols; versions of the decoder before 2.29 write beyond their table if
// its counts add up to more.  Before the first scan one segment follows the other, by their lengths; after that every
// 0xff with a number behind it is a marker.
void check_huffman_tables(std::string_view bytes, std::string_view name) {
  constexpr size_t tables = 0xc4, image = 0xd8, scan = 0xda;
  const auto byte = [&](size_t i) { return i < bytes.size() ? size_t{static_cast<unsigned char>(bytes[i])} : 0; };
  const auto length_at = [&](size_t i) { return byte(i) << 8 | byte(i + 1); };
  const auto check_tables = [&](size_t segment) {
    const size_t end = segment + length_at(segment);
    for (size_t at = segment + 2; at < end;) {
      size_t symbols = 0;
      for (size_t length = 1; length <= 16; ++length) symbols += byte(at + length);
      check(symbols <= 256, name, ": it cannot be decoded: a Huffman table of ", symbols, " symbols; 256 are the most");
      at += 17 + symbols;
    }
  };
  bool in_scans = false;
  for (size_t at = 0; at < bytes.size();) {
    if (byte(at++) != 0xff) continue;
    while (byte(at) == 0xff) ++at;
    const size_t marker = byte(at++);
    if (marker == tables) check_tables(at);
    in_scans |= marker == scan;
    if (!in_scans && marker != 0 && marker != image) at += length_at(at);
  }
}

[[noreturn]] void cannot_decode(std::string_view name) {
  const char* const reason = stbi_failure_reason();
  fail(name, ": it cannot be decoded: ", reason ? reason : "it is no PNG or JPEG file");
}

}  // namespace

bool is_picture(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

Picture decode_picture(std::string_view bytes, int64_t channels, std::string_view name) {
  check(channels == 1 || channels == 3, name, ": pictures are decoded to 1 channel or to 3, not to ", channels);
  check(bytes.size() <= largest_picture_file, name, " has ", bytes.size(), " bytes, more than the ",
        largest_picture_file, " that are read");
  check_chunks(bytes, name);
  if (bytes.starts_with('\xff')) check_huffman_tables(bytes, name);
  const auto* const begin = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  int width = 0, height = 0, found = 0;
  if (stbi_info_from_memory(begin, size, &width, &height, &found) != 1) cannot_decode(name);
  check(static_cast<int64_t>(width) * height <= most_pixels_of_byte * size, name, ": ", height, " x ", width,
        " pixels are more than its ", size, " bytes can hold");
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(begin, size, &width, &height, &found, static_cast<int>(channels)), stbi_image_free);
  if (!pixels) cannot_decode(name);
  const int64_t count = int64_t{height} * width * channels;
  return {height, width, channels, std::vector<uint8_t>(pixels.get(), pixels.get() + count)};
}

Picture read_picture(const std::string& path, int64_t channels) {
  return decode_picture(read_data_file(path, largest_picture_file), channels, path);
}

Picture middle_square(const Picture& picture, int64_t side) {
  const auto& [height, width, channels, pixels] = picture;
  const int64_t shorter = std::min(height, width);
  if (height == side && width == side) return picture;
  const std::vector<Weights> down = triangles((height - shorter) / 2, shorter, side),
                             across = triangles((width - shorter) / 2, shorter, side);
  Picture square{side, side, channels, std::vector<uint8_t>(static_cast<size_t>(side * side * channels))};
  std::vector<double> line(static_cast<size_t>(width * channels));
  size_t place = 0;
  for (const Weights& vertical : down) {
    std::fill(line.begin(), line.end(), 0.0);
    for (size_t i = 0; i < vertical.of.size(); ++i) {
      const uint8_t* const from = pixels.data() + (vertical.first + static_cast<int64_t>(i)) * width * channels;
      for (size_t j = 0; j < line.size(); ++j) line[j] += vertical.of[i] * from[j];
    }
    for (const Weights& horizontal : across)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (size_t i = 0; i < horizontal.of.size(); ++i)
          sum +=
              horizontal.of[i] * line[static_cast<size_t>((horizontal.first + static_cast<int64_t>(i)) * channels + c)];
        square.pixels[place++] = static_cast<uint8_t>(std::clamp(std::floor(sum + 0.5), 0.0, 255.0));
      }
  }
  return square;
}

}  // namespace orrery::models
