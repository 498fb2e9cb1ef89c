// Batches of normalized images; for training, drawn at random and augmented. Random choices depend
// only on (seed, step, micro-batch, index in the batch), so a resumed run is identical.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/math/random.h"
#include "engine/tensor/tensor.h"
#include "models/data/images.h"

namespace orrery::models {

// x = (pixel / 255 - mean) / std, with one mean and std for each channel or for all.
class PixelScale {
 public:
  // Throws Error unless `mean` and `std` have one number or one per channel, and `std` is above 0.
  PixelScale(const std::vector<double>& mean, const std::vector<double>& std, int64_t channels);
  float operator()(uint8_t pixel, int64_t channel) const { return values_[static_cast<size_t>(channel * 256 + pixel)]; }

 private:
  std::vector<float> values_;
};

struct Augmentation {
  int64_t crop_padding = 0;  // p: black pixels around an image before a random crop of its size
  bool flip = false;         // half of the images are mirrored, left to right
  double mixup = 0;          // a of Beta(a, a), the distribution of `fraction`; 0: no mixup
};

struct ImageBatch {
  Tensor pixels;                // (B, H, W, C) f32
  std::vector<int32_t> labels;  // (B)
  // Mixup, Zhang et al. 2018, arXiv:1710.09412: an image becomes fraction x + (1 - fraction) x',
  // x' the next of the batch; its target likewise. A batch has one fraction, at least 1/2.
  double fraction = 1;
  std::vector<int32_t> other_labels = {};  // of x'; empty without mixup
};

// Draws from Beta(a, a), 0 < a <= 1: u^(1/a) / (u^(1/a) + v^(1/a)) for the first uniform u, v whose
// denominator is at most 1. Johnk 1964.
double draw_beta(double a, RandomKey rng);

class ImageBatches {
 public:
  // `images` must outlive this object.
  ImageBatches(const Images& images, const PixelScale& scale, const Augmentation& augmentation, int64_t batch,
               uint64_t seed);
  ImageBatch at(int64_t step, int64_t micro_batch) const;  // steps count from 0

 private:
  void draw(RandomKey rng, float* to, int32_t& label) const;

  const Images& images_;
  PixelScale scale_;
  Augmentation augmentation_;
  int64_t batch_;
  RandomKey rng_;
};

// Returns the images at `indices`, normalized but not augmented.
ImageBatch images_at(const Images& images, const PixelScale& scale, std::span<const int64_t> indices);

}  // namespace orrery::models
