// Images from the square of pixels to the batch: resizing, pixel scale, order, augmentation and mixup.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <set>

#include "models/data/image_batches.h"
#include "models/data/images.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/images";

}  // namespace

TEST_CASE("image: the center square keeps flat areas, means of pixels, and the center") {
  DecodedImage flat{7, 31, 3, std::vector<uint8_t>(7 * 31 * 3, 77)};
  for (const int64_t side : {1, 3, 7, 20})
    CHECK(center_square(flat, side).pixels == std::vector<uint8_t>(side * side * 3, 77));
  DecodedImage ramp{4, 8, 1, {}};
  for (int i = 0; i < 32; ++i) ramp.pixels.push_back(static_cast<uint8_t>(i % 8 * 10));
  CHECK(center_square(ramp, 4).pixels[0] == 20);  // columns 2 to 5
  CHECK(center_square(ramp, 4).pixels[3] == 50);
  // Triangle filters of half-width 2, cut at the edge: (3 x 20 + 3 x 30 + 1 x 40) / 7, mirrored.
  CHECK(center_square(ramp, 2).pixels == std::vector<uint8_t>{27, 43, 27, 43});
}

TEST_CASE("image batches: independent of the order of requests, and within the limits of augmentation") {
  const ImageSet set = read_images(scraps + "/fashion", {});
  const PixelScale scale({0.5}, {0.5}, 1);
  const ImageBatches plain(set.train, scale, {}, 16, 3);
  const ImageBatches changed(set.train, scale, {.crop_padding = 2, .flip = true}, 16, 3);
  const ImageBatch a = plain.at(5, 1), b = changed.at(5, 1);
  plain.at(0, 0);
  CHECK(plain.at(5, 1).pixels.to_vector() == a.pixels.to_vector());
  CHECK(plain.at(5, 1).labels == a.labels);
  CHECK(a.labels == b.labels);  // the same images, changed
  CHECK(plain.at(5, 0).labels != a.labels);
  CHECK(plain.at(4, 1).labels != a.labels);
  CHECK(ImageBatches(set.train, scale, {}, 16, 4).at(5, 1).labels != a.labels);
  const auto of_none = [&] { ImageBatches(set.train, scale, {}, 0, 3); };
  expect_error(of_none).names("images").names("batch_size").value(0).value(set.train.count()).offers(1);
  std::set<std::vector<float>> known;
  for (int64_t i = 0; i < set.train.count(); ++i) {
    const Tensor x = images_at(set.train, scale, std::array{i}).pixels;
    known.insert(std::vector<float>(x.data<float>(), x.data<float>() + x.numel()));
  }
  const auto image = [](const ImageBatch& batch, int64_t i) {
    const float* const x = batch.pixels.data<float>() + i * 784;
    return std::vector<float>(x, x + 784);
  };
  int unchanged = 0;
  for (int64_t i = 0; i < 16; ++i) {
    CHECK(known.contains(image(a, i)));
    unchanged += known.contains(image(b, i)) ? 1 : 0;
    // Some shift of at most two pixels, mirrored or not, restores the image within the frame.
    bool found = false;
    for (int move = 0; move < 50 && !found; ++move) {
      const int64_t top = move / 2 / 5 - 2, left = move / 2 % 5 - 2;
      found = true;
      for (int64_t row = 2; row < 26 && found; ++row)
        for (int64_t column = 2; column < 26 && found; ++column)
          found = image(b, i)[static_cast<size_t>(row * 28 + (move % 2 ? 27 - column : column))] ==
                  image(a, i)[static_cast<size_t>((row + top) * 28 + column + left)];
    }
    CHECK(found);
  }
  CHECK(unchanged <= 3);
}

TEST_CASE("image batches: mixup mixes adjacent images by one sample of the Beta distribution") {
  const ImageSet set = read_images(scraps + "/fashion", {});
  const PixelScale scale({0.5}, {0.5}, 1);
  const ImageBatch plain = ImageBatches(set.train, scale, {}, 6, 3).at(2, 0),
                   mixed = ImageBatches(set.train, scale, {.mixup = 0.8}, 6, 3).at(2, 0);
  CHECK((mixed.fraction >= 0.5 && mixed.fraction < 1));
  const std::vector<double> x = plain.pixels.to_vector(), y = mixed.pixels.to_vector();
  for (size_t i = 0; i < y.size(); ++i)
    CHECK(std::abs(y[i] - (mixed.fraction * x[i] + (1 - mixed.fraction) * x[(i + 784) % x.size()])) < 1e-6);
  for (size_t i = 0; i < 6; ++i) CHECK(mixed.other_labels[i] == plain.labels[(i + 1) % 6]);
  // Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
  for (const double a : {0.2, 0.5, 1.0}) {
    double sum = 0, squares = 0;
    constexpr int count = 20000;
    for (int i = 0; i < count; ++i) {
      const double weight = draw_beta(a, RandomKey{7, 1}.derive(i));
      sum += weight, squares += (weight - 0.5) * (weight - 0.5);
    }
    CHECK(std::abs(sum / count - 0.5) < 0.01);
    CHECK(std::abs(squares / count - 1 / (4 * (2 * a + 1))) < 0.005);
  }
  CHECK((draw_beta(0.01, RandomKey{7, 2}) >= 0));
}

TEST_CASE("pixel scale: one number for all channels, or one for each") {
  const PixelScale scale({0.1, 0.2, 0.3}, {0.5, 1, 2}, 3);
  for (int64_t c = 0; c < 3; ++c)
    CHECK(scale(51, c) == doctest::Approx((0.2 - 0.1 * static_cast<double>(c + 1)) / (0.5 * (1 << c))).epsilon(1e-6));
  expect_error([] { PixelScale({0.1, 0.2}, {1}, 3); }).names("pixel_mean").value(2).offers("one").offers(3);
  expect_error([] { PixelScale({0.1}, {0}, 1); }).names("pixel_std").value(0).offers(0);
}
