#include "models/data/decoded_image.h"

// Features that are not used would only add attack surface.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS 65536
#include <stb/stb_image.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>

#include "engine/system/machine_memory.h"
#include "engine/types/ascii.h"
#include "engine/types/check.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

constexpr int64_t max_pixels = 1 << 26;
// Deflate packs at most 1,032 bytes into one, and a byte holds at most 8 pixels; more is invalid.
constexpr int64_t max_pixels_per_byte = 8 * 1032;

struct Weights {  // of an output pixel for the input pixels from `first`
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

uint32_t number_at(std::string_view bytes, size_t at) {  // of four bytes, big-endian
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
  return number;
}
uint32_t crc_of(std::string_view bytes) {
  return static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

// Returns the unpacked bytes of a PNG's rows, each with its filter byte. Interlaced images
// have seven passes.
uint64_t bytes_of_lines(std::string_view header) {
  constexpr uint64_t samples_of[] = {1, 0, 3, 1, 2, 0, 4};  // by color type
  const uint64_t width = number_at(header, 0), height = number_at(header, 4),
                 depth = static_cast<unsigned char>(header[8]), kind = static_cast<unsigned char>(header[9]),
                 bits = depth * (kind < std::size(samples_of) ? samples_of[kind] : 0);
  const auto lines = [&](uint64_t across, uint64_t down) {
    return across == 0 ? 0 : down * (1 + (across * bits + 7) / 8);
  };
  if (header[12] == 0) return lines(width, height);
  constexpr struct {
    uint64_t x, y, dx, dy;
  } passes[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
  uint64_t all = 0;
  for (const auto& [x, y, dx, dy] : passes)
    all += lines((width + dx - 1 - std::min(x, width)) / dx, (height + dy - 1 - std::min(y, height)) / dy);
  return all;
}

// A check of a PNG's pixels, which are packed by zlib and end with their Adler-32. Unpacks and
// discards at most `max_bytes` bytes and a little.
class PixelCheck {
 public:
  PixelCheck(std::string_view name, uint64_t max_bytes, bool without_sum) : name_(name), left_(max_bytes + slack) {
    check(inflateInit2(&stream_, without_sum ? -MAX_WBITS : MAX_WBITS) == Z_OK, name_,
          ": not enough memory to unpack it; end other programs");
  }
  ~PixelCheck() { inflateEnd(&stream_); }
  PixelCheck(const PixelCheck&) = delete;

  void add(std::string_view packed) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));  // zlib does not write there
    stream_.avail_in = static_cast<uInt>(packed.size());
    while (!ended_ && stream_.avail_in > 0) {
      std::array<Bytef, slack> lines;
      stream_.next_out = lines.data(), stream_.avail_out = slack;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      check(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, name_,
            ": cannot be decoded: its packed pixels are damaged: ", stream_.msg ? stream_.msg : "invalid data",
            "; copy or download the file again");
      ended_ = code == Z_STREAM_END;
      const uint64_t got = slack - stream_.avail_out;
      check(got <= left_, name_, ": cannot be decoded: it has more bytes than its pixels need; save it again");
      left_ -= got;
    }
  }
  void end() const { check(ended_, name_, ": cannot be decoded: its packed pixels end too early; save it again"); }

 private:
  static constexpr uint32_t slack = 1 << 15;
  std::string_view name_;
  uint64_t left_;
  bool ended_ = false;
  z_stream stream_ = {};
};

constexpr std::string_view png_signature = "\x89PNG\r\n\x1a\n";

// Returns the name of an unsupported format from a file's first bytes; empty if it is unknown.
std::string_view other_format(std::string_view bytes) {
  constexpr struct {
    size_t at;
    std::string_view mark, name;
  } all[] = {{0, "GIF8", "GIF"},        {8, "WEBP", "WebP"},     {0, "BM", "BMP"},       {0, {"II*\0", 4}, "TIFF"},
             {0, {"MM\0*", 4}, "TIFF"}, {4, "ftypavif", "AVIF"}, {4, "ftyphei", "HEIF"}, {4, "ftypmif1", "HEIF"}};
  for (const auto& [at, mark, name] : all)
    if (bytes.size() > at && bytes.substr(at).starts_with(mark)) return name;
  return {};
}

void check_format(std::string_view bytes, std::string_view name) {
  check(!bytes.empty(), name, ": cannot be decoded: it is empty; give a complete PNG or JPEG file");
  const size_t marker = bytes.find_first_not_of('\xff');  // several of these are allowed
  if (bytes.starts_with(png_signature) || (marker > 0 && marker < bytes.size() && bytes[marker] == '\xd8')) return;
  const std::string_view format = other_format(bytes);
  fail(name, ": cannot be decoded: it is not a PNG or JPEG file", format.empty() ? "" : text(" but ", format),
       "; only PNG and JPEG are supported, so convert it");
}

// Checks of a PNG what the decoder does not: the CRC-32 of each chunk, the Adler-32 of the pixels,
// and that no chunk claims more bytes than are left, for which the decoder would allocate memory.
void check_png(std::string_view bytes, std::string_view name) {
  constexpr size_t header_size = 13;
  if (!bytes.starts_with(png_signature)) return;
  std::optional<PixelCheck> pixels;
  bool without_sum = false, lacks_palette = false;
  for (size_t at = png_signature.size(); at + 8 <= bytes.size();) {
    const uint64_t length = number_at(bytes, at), left = bytes.size() - at - 8;
    check(length <= left, name, ": cannot be decoded: the size of a chunk is ", length, " bytes, but ", left,
          " are left; give a complete PNG file");
    const std::string_view kind = bytes.substr(at + 4, 4), content = bytes.substr(at + 8, length);
    check(length + 4 <= left, name, ": cannot be decoded: it ends within a chunk; give a complete PNG file");
    check(crc_of(bytes.substr(at + 4, length + 4)) == number_at(bytes, at + 8 + length), name,
          ": cannot be decoded: the CRC-32 of its chunk at byte ", at,
          " does not match; copy or download the file again");
    without_sum |= kind == "CgBI";  // Apple's variant
    if (kind == "IHDR" && !pixels && length == header_size) {
      const uint32_t width = number_at(content, 0), height = number_at(content, 4);
      check(width > 0 && height > 0, name, ": cannot be decoded: size is ", height, " x ", width,
            " pixels; save it again");
      lacks_palette = content[9] == 3;  // the color type
      pixels.emplace(name, bytes_of_lines(content), without_sum);
    }
    if (kind == "PLTE") lacks_palette = false;
    check(kind != "IDAT" || !lacks_palette, name,
          ": cannot be decoded: its pixels are indices of a palette, but it has no palette; save it again");
    if (kind == "IDAT" && pixels) pixels->add(content);
    if (kind == "IEND") break;
    at += length + 12;
  }
  if (pixels) pixels->end();
}

[[noreturn]] void cannot_decode(std::string_view name) {
  const char* const reason = stbi_failure_reason();
  fail(name, ": cannot be decoded: ", reason && *reason ? reason : "it ends too early", "; save it again");
}

// Checks that pixels are within the palette, because the decoder reads beyond it. Decodes the
// palette indices as gray values. Call it after check_png and the checks of the size.
void check_palette(std::string_view bytes, std::string_view name) {
  constexpr size_t depth_at = 24, kind_at = 25;  // in the first chunk, which is the header
  if (!bytes.starts_with(png_signature) || bytes.substr(12, 4) != "IHDR" || bytes[kind_at] != 3) return;
  std::string grey(png_signature);
  uint64_t colors = 0;
  for (size_t at = png_signature.size(); at + 8 <= bytes.size();) {
    const uint64_t length = number_at(bytes, at);
    const std::string_view kind = bytes.substr(at + 4, 4);
    if (kind == "PLTE") colors = length / 3;
    if (kind == "IHDR" || kind == "IDAT" || kind == "IEND") grey += bytes.substr(at, length + 12);
    if (kind == "IEND") break;
    at += length + 12;
  }
  const uint64_t palette_limit = uint64_t{1} << bytes[depth_at];  // palette indices that a pixel can have
  if (colors >= palette_limit) return;
  grey[kind_at] = 0;
  int width = 0, height = 0, found = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> shades(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(grey.data()), static_cast<int>(grey.size()), &width,
                            &height, &found, 1),
      stbi_image_free);
  if (!shades) cannot_decode(name);
  const uint64_t largest =
      *std::max_element(shades.get(), shades.get() + int64_t{height} * width) * (palette_limit - 1) / 255;
  check(largest < colors, name, ": cannot be decoded: a pixel has color ", largest,
        ", but the palette has colors 0 to ", colors - 1, "; save it again");
}

// Checks that each Huffman table of a JPEG has at most 256 symbols: before 2.29, the decoder writes
// beyond the table if its counts add up to more. Before the first scan, lengths lead from segment
// to segment; after it, every 0xff with a nonzero byte is a marker.
void check_huffman_tables(std::string_view bytes, std::string_view name) {
  constexpr size_t tables = 0xc4, image = 0xd8, scan = 0xda;
  const auto byte = [&](size_t i) { return i < bytes.size() ? size_t{static_cast<unsigned char>(bytes[i])} : 0; };
  const auto length_at = [&](size_t i) { return byte(i) << 8 | byte(i + 1); };
  const auto check_tables = [&](size_t segment) {
    const size_t end = segment + length_at(segment);
    for (size_t at = segment + 2; at < end;) {
      size_t symbols = 0;
      for (size_t length = 1; length <= 16; ++length) symbols += byte(at + length);
      check(symbols <= 256, name, ": cannot be decoded: a Huffman table has ", symbols,
            " symbols; at most 256 are valid; save it again");
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

}  // namespace

bool is_image_file(const std::string& path) {
  const std::string ending = lower_case(std::filesystem::path(path).extension().string());
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

DecodedImage decode_image(std::string_view bytes, int64_t channels, std::string_view name) {
  check(channels == 1 || channels == 3, name, ": channels is ", channels, "; it must be 1 or 3");
  check(bytes.size() <= max_image_bytes, name, " has ", bytes.size(), " bytes; at most ", max_image_bytes,
        " are supported; make the image smaller");
  check_format(bytes, name);
  check_png(bytes, name);
  if (bytes.starts_with('\xff')) check_huffman_tables(bytes, name);
  const auto* const begin = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  int width = 0, height = 0, found = 0;
  check(stbi_info_from_memory(begin, size, &width, &height, &found) == 1, name,
        ": cannot be decoded: its header is damaged, incomplete or not supported; save it again");
  const int64_t area = int64_t{height} * width;
  check(area <= max_pixels_per_byte * size, name, ": ", height, " x ", width, " pixels are more than its ", size,
        " bytes can hold; save it again");
  check(area <= max_pixels, name, ": ", height, " x ", width, " pixels are more than the limit, ", max_pixels,
        "; make the image smaller");
  // Bytes per pixel: unpacked, decoded, converted to `channels`, and copied.
  const int64_t of_pixel = found * (stbi_is_16_bit_from_memory(begin, size) ? 4 : 2) + 2 * channels;
  check_memory(name, static_cast<double>(area * of_pixel), "make the image smaller");
  check_palette(bytes, name);
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(begin, size, &width, &height, &found, static_cast<int>(channels)), stbi_image_free);
  if (!pixels) cannot_decode(name);
  const int64_t count = int64_t{height} * width * channels;
  return {height, width, channels, std::vector<uint8_t>(pixels.get(), pixels.get() + count)};
}

DecodedImage read_image(const std::string& path, int64_t channels) {
  return decode_image(read_data_file(path, max_image_bytes), channels, path);
}

DecodedImage center_square(const DecodedImage& decoded, int64_t side) {
  const auto& [height, width, channels, pixels] = decoded;
  const int64_t shorter = std::min(height, width);
  if (height == side && width == side) return decoded;
  const std::vector<Weights> down = triangles((height - shorter) / 2, shorter, side),
                             across = triangles((width - shorter) / 2, shorter, side);
  DecodedImage square{side, side, channels, std::vector<uint8_t>(static_cast<size_t>(side * side * channels))};
  std::vector<double> line(static_cast<size_t>(width * channels));
  size_t index = 0;
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
        square.pixels[index++] = static_cast<uint8_t>(std::clamp(std::floor(sum + 0.5), 0.0, 255.0));
      }
  }
  return square;
}

}  // namespace orrery::models
