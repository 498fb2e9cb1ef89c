#include "models/data/image_batches.h"

#include <algorithm>
#include <cmath>

#include "engine/types/check.h"

namespace orrery::models {
namespace {

enum Draw : uint64_t { which, down, across, mirrored };  // indices of the random numbers of an image

ImageBatch empty_batch(const Images& images, int64_t count) {
  return {Tensor::empty(Shape{count, images.height, images.width, images.channels}, Dtype::f32, Device::cpu),
          std::vector<int32_t>(static_cast<size_t>(count))};
}

double channel_value(const std::vector<double>& values, int64_t channel) {
  return values[values.size() == 1 ? 0 : static_cast<size_t>(channel)];
}

void mix(ImageBatch& batch, double fraction) {
  const int64_t count = batch.pixels.size(0), size = batch.pixels.numel() / count;
  auto* const x = batch.pixels.mutable_data<float>();
  const std::vector<float> first(x, x + size);
  const auto own = static_cast<float>(fraction), others = static_cast<float>(1 - fraction);
  for (int64_t i = 0; i < count; ++i) {
    const float* const next = i + 1 < count ? x + (i + 1) * size : first.data();
    for (int64_t j = 0; j < size; ++j) x[i * size + j] = own * x[i * size + j] + others * next[j];
  }
  batch.other_labels = batch.labels;
  std::rotate(batch.other_labels.begin(), batch.other_labels.begin() + 1, batch.other_labels.end());
  batch.fraction = fraction;
}

}  // namespace

PixelScale::PixelScale(const std::vector<double>& mean, const std::vector<double>& std, int64_t channels) {
  for (const auto& [name, values] : {std::pair{"pixel_mean", &mean}, {"pixel_std", &std}})
    check(values->size() == 1 || static_cast<int64_t>(values->size()) == channels, "images: ", name, " has ",
          values->size(), " numbers; it must have one, or one per channel (", channels, ")");
  for (int64_t c = 0; c < channels; ++c) {
    check(channel_value(std, c) > 0, "images: pixel_std is ", channel_value(std, c), "; it must be above 0");
    for (int pixel = 0; pixel < 256; ++pixel)
      values_.push_back(static_cast<float>((pixel / 255.0 - channel_value(mean, c)) / channel_value(std, c)));
  }
}

double draw_beta(double a, RandomKey rng) {
  for (uint64_t attempt = 0;; ++attempt) {
    const double x = std::pow(uniform(rng, 2 * attempt), 1 / a), y = std::pow(uniform(rng, 2 * attempt + 1), 1 / a);
    if (x + y > 0 && x + y <= 1) return x / (x + y);
  }
}

ImageBatches::ImageBatches(const Images& images, const PixelScale& scale, const Augmentation& augmentation,
                           int64_t batch, uint64_t seed)
    : images_(images),
      scale_(scale),
      augmentation_(augmentation),
      batch_(batch),
      rng_(RandomKey{seed, 0}.derive("images")) {
  check(batch >= 1 && images.count() >= 1, "images: batch_size is ", batch, " and the number of images is ",
        images.count(), "; both must be at least 1");
}

void ImageBatches::draw(RandomKey rng, float* to, int32_t& label) const {
  const auto chosen = static_cast<int64_t>(below(rng, which, static_cast<uint64_t>(images_.count())));
  label = images_.labels[static_cast<size_t>(chosen)];
  const uint8_t* const image = images_.image(chosen).data();
  const auto shifts = static_cast<uint64_t>(2 * augmentation_.crop_padding + 1);
  const int64_t top = static_cast<int64_t>(below(rng, down, shifts)) - augmentation_.crop_padding,
                left = static_cast<int64_t>(below(rng, across, shifts)) - augmentation_.crop_padding,
                channels = images_.channels;
  const bool mirror = augmentation_.flip && below(rng, mirrored, 2) == 1;
  for (int64_t row = top; row < top + images_.height; ++row)
    for (int64_t i = 0; i < images_.width; ++i) {
      const int64_t column = left + (mirror ? images_.width - 1 - i : i);
      const bool inside = row >= 0 && row < images_.height && column >= 0 && column < images_.width;
      const int64_t offset = (row * images_.width + column) * channels;
      for (int64_t c = 0; c < channels; ++c) *to++ = scale_(inside ? image[offset + c] : uint8_t{0}, c);
    }
}

ImageBatch ImageBatches::at(int64_t step, int64_t micro_batch) const {
  const RandomKey rng = rng_.derive(step).derive(micro_batch);
  ImageBatch batch = empty_batch(images_, batch_);
  auto* const x = batch.pixels.mutable_data<float>();
  for (int64_t i = 0; i < batch_; ++i)
    draw(rng.derive(i), x + i * images_.pixels_per_image(), batch.labels[static_cast<size_t>(i)]);
  if (augmentation_.mixup > 0) {
    const double fraction = draw_beta(augmentation_.mixup, rng.derive("mixup"));
    mix(batch, std::max(fraction, 1 - fraction));
  }
  return batch;
}

ImageBatch images_at(const Images& images, const PixelScale& scale, std::span<const int64_t> indices) {
  ImageBatch batch = empty_batch(images, static_cast<int64_t>(indices.size()));
  auto* x = batch.pixels.mutable_data<float>();
  for (size_t i = 0; i < indices.size(); ++i) {
    batch.labels[i] = images.labels[static_cast<size_t>(indices[i])];
    const std::span<const uint8_t> image = images.image(indices[i]);
    for (size_t j = 0; j < image.size(); ++j) *x++ = scale(image[j], static_cast<int64_t>(j) % images.channels);
  }
  return batch;
}

}  // namespace orrery::models
