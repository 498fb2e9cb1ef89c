// Images as cameras and programs write them (tests/cases/image_forms): colors and rotation.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "models/data/decoded_image.h"
#include "models/data/image_file_tally.h"
#include "models/formats/gzip.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

const std::string cases = ORRERY_SOURCE_DIR "/tests/cases/image_forms/";

std::array<double, 3> mean_color(const std::string& name) {
  const DecodedImage image = read_image(cases + name, 3);
  CHECK(image.height * image.width == 120);
  CHECK(image.channels == 3);
  std::array<double, 3> sums = {};
  for (size_t i = 0; i < image.pixels.size(); ++i) sums[i % 3] += image.pixels[i];
  for (double& sum : sums) sum /= 120;
  return sums;
}

// Returns the largest difference between a pixel and Pillow's.
int largest_difference(const std::string& name, const std::string& pixels) {
  const DecodedImage image = read_image(cases + name, 3);
  const std::string wanted = read_data_file(cases + pixels);
  REQUIRE(wanted.size() == image.pixels.size());
  int largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    largest = std::max(largest, std::abs(image.pixels[i] - static_cast<unsigned char>(wanted[i])));
  return largest;
}

}  // namespace

TEST_CASE("image forms: colors equal Pillow's for every form of PNG and JPEG; the error for WebP names the format") {
  struct Form {
    const char* name;
    std::array<double, 3> color;
    int apart;
    const char* pixels;
  };
  constexpr double rounding = 0.0006;
  for (const Form& form : {Form{"rgb.png", {78.900, 17.317, 84.425}, 0, "rgb.rgb"},
                           {"half_clear.png", {78.900, 17.317, 84.425}, 0, "rgb.rgb"},
                           {"is_a_png.jpg", {78.900, 17.317, 84.425}, 0, "rgb.rgb"},
                           {"palette.png", {78.825, 14.800, 88.358}, 0, "palette.rgb"},
                           {"cmyk.jpg", {78.950, 17.325, 84.433}, 1, "cmyk.rgb"},
                           {"progressive.jpg", {78.483, 17.558, 85.508}, 2, "progressive.rgb"}}) {
    CAPTURE(form.name);
    const std::array<double, 3> found = mean_color(form.name);
    for (size_t c = 0; c < 3; ++c) CHECK(std::abs(found[c] - form.color[c]) <= form.apart + rounding);
    CHECK(largest_difference(form.name, form.pixels) <= form.apart);
    CHECK(exif_orientation(read_data_file(cases + form.name)) == 1);
  }
  expect_error([] { read_image(cases + "webp.png", 3); }).names("webp.png");
}

TEST_CASE("image forms: an image with an Exif orientation is read as stored, and a note is logged") {
  const DecodedImage rotated = read_image(cases + "rotated.jpg", 3), plain = read_image(cases + "rgb.png", 3);
  CHECK((rotated.height == plain.height && rotated.width == plain.width));
  CHECK(largest_difference("rotated.jpg", "progressive.rgb") <= 2);
  const std::string bytes = read_data_file(cases + "rotated.jpg");
  CHECK(exif_orientation(bytes) == 6);
  ImageFileTally tally;
  tally.check_orientation("rgb.png", read_data_file(cases + "rgb.png"));
  CHECK(tally.notes("x").empty());
  tally.check_orientation("a.jpg", bytes), tally.check_orientation("b.jpg", bytes);
  REQUIRE(tally.notes("photos").size() == 1);
  Message(tally.notes("photos")[0]).value(2).names("photos").value("orientation 6").names("a.jpg").offers("rotate");
}

TEST_CASE("image forms: an Exif orientation is read in both byte orders, from JPEG and PNG, and not if damaged") {
  const auto exif = [](bool big, char orientation) {
    const std::string type = big ? std::string("\0\3\0\0\0\1\0", 7) : std::string("\3\0\1\0\0\0", 6);
    const std::string entry = (big ? std::string("\1\x12", 2) : std::string("\x12\1", 2)) + type +
                              std::string(1, orientation) + std::string(big ? 2 : 3, '\0');
    return (big ? std::string("MM\0\x2a\0\0\0\x08\0\1", 10) : std::string("II\x2a\0\x08\0\0\0\1\0", 10)) + entry;
  };
  const auto sized = [](size_t size, size_t bytes) {
    std::string number;
    while (bytes-- > 0) number.push_back(static_cast<char>(size >> (8 * bytes) & 0xff));
    return number;
  };
  const auto jpeg = [&](const std::string& block) {
    const std::string segment = std::string("Exif\0\0", 6) + block;
    return "\xff\xd8\xff\xe1" + sized(segment.size() + 2, 2) + segment + "\xff\xda";
  };
  const auto png = [&](const std::string& block) {
    return "\x89PNG\r\n\x1a\n" + sized(0, 4) + "tEXt" + sized(0, 4) + sized(block.size(), 4) + "eXIf" + block;
  };
  for (const bool big : {true, false})
    for (const char orientation : {'\1', '\3', '\x08'}) {
      CAPTURE(big);
      CHECK(exif_orientation(jpeg(exif(big, orientation))) == orientation);
      CHECK(exif_orientation(png(exif(big, orientation))) == orientation);
    }
  CHECK(exif_orientation(jpeg(exif(true, '\x09'))) == 1);
  const std::string whole = jpeg(exif(true, '\6'));
  REQUIRE(exif_orientation(whole) == 6);
  for (size_t length = 0; length + 5 < whole.size(); ++length) {
    const int found = exif_orientation(whole.substr(0, length));
    CHECK((found == 1 || found == 6));
  }
}
