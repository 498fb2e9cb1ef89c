// Images, decoded from PNG and JPEG files and resized.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

struct DecodedImage {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // (height, width, channels), line by line
};

constexpr uint64_t max_image_bytes = uint64_t{1} << 28;  // bytes

bool is_image_file(const std::string& path);  // by its name: .png, .jpg, .jpeg

// Decodes to 1 channel (gray) or 3 (red, green, blue), regardless of the file's own; drops
// transparency. Errors begin with `name`:
//   photos/a.png: cannot be decoded: it is not a PNG or JPEG file but WebP; only PNG and JPEG are ...
//   photos/a.png: 40000 x 40000 pixels are more than its 70 bytes can hold
DecodedImage decode_image(std::string_view bytes, int64_t channels, std::string_view name);
// Decodes a file of at most max_image_bytes, also packed by gzip. Errors begin with its path.
DecodedImage read_image(const std::string& path, int64_t channels);

// Returns the center square, resized to `side` pixels. Each pixel is a mean with triangular
// weights, two output pixels wide, or two input pixels if those are larger:
//   y_i = sum_j t((j - c_i) / s) x_j / sum_j t((j - c_i) / s),   t(u) = max(0, 1 - |u|),
//   r = shorter side / `side`,  s = max(r, 1),  c_i = begin - 1/2 + (i + 1/2) r
// down and across: y_i is row or column i of the result, x_j row or column j of the image, and
// `begin` the first one of the square. Pixels outside the square are not read.
DecodedImage center_square(const DecodedImage& decoded, int64_t side);

}  // namespace orrery::models
