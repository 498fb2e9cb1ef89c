// Batches of images: normalized, and for training drawn at random and changed at random.  All that is random depends on
// (seed, step, micro-batch, place in the batch) alone, so that resuming agrees.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/math/random.h"
#include "engine/tensor/tensor.h"
#include "models/data/images.h"

namespace orrery::models {

// x = (pixel / 255 - mean) / std, each channel with its own or all with the same.
class PixelScale {
 public:
  PixelScale(const std::vector<double>& mean, const std::vector<double>& std, int64_t channels);
  float operator()(uint8_t pixel, int64_t channel) const { return values_[static_cast<size_t>(channel * 256 + pixel)]; }

 private:
  std::vector<float> values_;
};

struct Augmentation {
  int64_t crop_padding = 0;  // p: black pixels around an image, out of which a window of its size is cut
  bool flip = false;         // half of the images are mirrored, left to right
  double mixup = 0;          // a: of the Beta(a, a) that says how two images are mixed; 0: they are not
};

struct ImageBatch {
  Tensor pixels;                // (B, H, W, C) f32
  std::vector<int32_t> labels;  // (B)
  // Mixup, Zhang et al. 2018, arXiv:1710.09412: each image is share x + (1 - share) x', with x' the next one of the
  // batch, and so is its target.  The share is one for the batch, at least 1/2: the image is itself before all.
  double share = 1;
  std::vector<int32_t> other_labels = {};  // of x'; empty without mixup
};

// From Beta(a, a), 0 < a <= 1: u^(1/a) / (u^(1/a) + v^(1/a)) for the first uniform u, v whose sum in the denominator is
// at most 1.  Johnk 1964.
double draw_beta(double a, RandomKey key);

class ImageBatches {
 public:
  // The images must outlive it.
  ImageBatches(const Images& images, const PixelScale& scale, const Augmentation& augmentation, int64_t batch,
               uint64_t seed);
  ImageBatch at(int64_t step, int64_t micro_batch) const;

 private:
  void draw(RandomKey key, float* to, int32_t& label) const;

  const Images& images_;
  PixelScale scale_;
  Augmentation augmentation_;
  int64_t batch_;
  RandomKey key_;
};

// These, as they are, normalized.
ImageBatch images_at(const Images& images, const PixelScale& scale, std::span<const int64_t> places);

}  // namespace orrery::models
