// One image: checksums, and sizes that are refused.
#include "models/data/decoded_image.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include "engine/system/files.h"
#include "tests/support/errors.h"
#include "tests/support/message.h"
#include "tests/support/png.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::big_endian;
using orrery::testing::error_of;
using orrery::testing::expect_error;
using orrery::testing::Message;
using orrery::testing::png_chunk;
using orrery::testing::with_chunk_sums;

namespace {

const std::string cases = ORRERY_SOURCE_DIR "/tests/cases/";

std::string zlib_packed(const std::string& bytes) {
  std::string packed(compressBound(bytes.size()), '\0');
  uLongf size = packed.size();
  CHECK(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                 bytes.size()) == Z_OK);
  packed.resize(size);
  return packed;
}

// Returns a PNG with 8 bits per channel; `kind` 0: grey, 2: red, green, blue.
std::string png(uint32_t height, uint32_t width, char kind, const std::string& packed_lines) {
  const std::string header = big_endian(width) + big_endian(height) + '\x08' + kind + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", packed_lines) + png_chunk("IEND", "");
}

}  // namespace

TEST_CASE("image: a PNG with any one bit changed is an error") {
  const std::string file = cases + "damaged_png/one_bit.png";
  expect_error([&] { read_image(file, 3); }).names(file).value("CRC-32").offers("again");
  const std::string whole = read_file(cases + "damaged_png/whole.png");
  CHECK(decode_image(whole, 3, "whole.png").height > 0);
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    CAPTURE(bit);
    Message(error_of([&] { decode_image(damaged, 3, "a.png"); })).names("a.png");
  }
  for (size_t size = 0; size < whole.size(); ++size)
    Message(error_of([&] { decode_image(std::string_view(whole).substr(0, size), 3, "a.png"); })).names("a.png");
}

TEST_CASE("image: the checksum and the number of the packed pixels are checked") {
  const std::string lines(4 * (1 + 3), '\0'), packed = zlib_packed(lines);
  CHECK(decode_image(png(4, 3, 0, packed), 1, "a.png").pixels == std::vector<uint8_t>(12));
  std::string other_sum = packed;
  other_sum.back() = static_cast<char>(other_sum.back() ^ 1);
  expect_error([&] { decode_image(png(4, 3, 0, other_sum), 1, "a.png"); })
      .names("a.png")
      .value("packed pixels")
      .offers("again");
  expect_error([&] { decode_image(png(4, 3, 0, packed.substr(0, packed.size() - 1)), 1, "a.png"); })
      .names("a.png")
      .value("end too early");
  // Packs 400 MB of zeros for 12 pixels.
  const std::string bomb = zlib_packed(std::string(50'000'000, '\0'));
  expect_error([&] { decode_image(png(4, 3, 0, bomb), 1, "a.png"); }).names("a.png").value("more bytes");
}

TEST_CASE("image: the error for a file that is not an image has the reason or the name of its format") {
  const auto refused = [](const std::string& bytes) {
    return expect_error([&] { decode_image(bytes, 3, "a.png"); }).names("a.png");
  };
  const std::string packed = zlib_packed(std::string(4 * (1 + 3), '\0'));
  refused(png(0, 3, 0, packed)).value("0 x 3");
  refused(png(0, 0, 0, packed)).value("0 x 0");
  refused(png(4, 3, 3, packed)).value("palette").offers("save it again");
  refused("").value("empty").offers("PNG or JPEG");
  refused("<svg/>").offers("PNG and JPEG");
  refused("GIF89a").value("GIF").offers("PNG and JPEG");
  refused(std::string("MM\0*\0\0\0\x08", 8)).value("TIFF").offers("PNG and JPEG");
  refused(read_file(cases + "image_forms/webp.png")).value("WebP").offers("PNG and JPEG");
  std::string deep = png(4, 3, 0, packed);
  deep[8 + 8 + 8] = 7;  // bits per pixel
  refused(with_chunk_sums(deep)).value("header").offers("save it again");
  refused("\xff\xff\xd8\xff").value("header");
  refused("\xff\xff").offers("PNG and JPEG");
}

TEST_CASE("image: the number of packed bytes is correct for interlaced pixels and pixels of few bits") {
  // Adam7 of 5 x 5 grey pixels: passes of 1, 1, 2, 2, 3, 6, 10 pixels in 1, 1, 1, 2, 1, 3, 2 lines.
  const std::string lines(25 + 11, '\0');
  std::string file = png(5, 5, 0, zlib_packed(lines));
  file[8 + 8 + 12] = 1;  // interlaced
  CHECK(decode_image(with_chunk_sums(file), 1, "a.png").pixels == std::vector<uint8_t>(25));
  std::string bits = png(3, 9, 0, zlib_packed(std::string(3 * (1 + 2), '\0')));
  bits[8 + 8 + 8] = 1;  // one bit per pixel
  CHECK(decode_image(with_chunk_sums(bits), 1, "a.png").pixels == std::vector<uint8_t>(27));
}

TEST_CASE("image: a color index beyond the palette is an error, for every number of bits per pixel") {
  const auto with_palette = [](char bits, const std::string& line, size_t colors) {
    const std::string header = big_endian(4) + big_endian(1) + bits + '\x03' + std::string(3, '\0');
    std::string palette;
    for (size_t i = 0; i < colors; ++i) palette += std::string(3, static_cast<char>(10 * (i + 1)));
    return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("PLTE", palette) +
           png_chunk("IDAT", zlib_packed(std::string(1, '\0') + line)) + png_chunk("IEND", "");
  };
  const std::vector<uint8_t> pixels = {10, 20, 30, 20};  // colors 0, 1, 2, 1
  const std::string bytes("\0\1\2\1", 4), of_four_bits("\x01\x21", 2), of_two("\x19", 1);
  for (const auto& [bits, line] : {std::pair{'\x08', bytes}, {'\x04', of_four_bits}, {'\x02', of_two}}) {
    const int of_bits = bits;
    CAPTURE(of_bits);
    const std::string whole = with_palette(bits, line, 3), short_of_one = with_palette(bits, line, 2);
    CHECK(decode_image(whole, 1, "a.png").pixels == pixels);
    expect_error([&] { decode_image(short_of_one, 1, "a.png"); }).names("a.png").value("color 2").offers("0 to 1");
  }
}

TEST_CASE("image: an image that would need gigabytes is an error before it is decoded") {
  const std::string packed = zlib_packed(std::string(20'000 * (1 + 20'000), '\0'));
  const std::string file = png(20'000, 20'000, 0, packed);
  CHECK(file.size() < 500'000);
  expect_error([&] { decode_image(file, 3, "a.png"); }).names("a.png").value("20000 x 20000").offers("67108864");
}
