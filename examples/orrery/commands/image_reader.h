// Images as a trained model's input: center square at its size, channels and pixel scale.
#pragma once

#include <string>

#include "examples/orrery/commands/load_run.h"
#include "models/data/image_batches.h"
#include "models/data/image_file_tally.h"
#include "models/image_model.h"

namespace orrery::program {

class ImageReader {
 public:
  ImageReader(const LoadedRun& trained, const models::ImageModel& model);
  Tensor read(const std::string& path);  // (1, H, W, C) f32; throws if decoding fails
  // Warns on standard error if images read so far have an Exif orientation, which read() ignores.
  void warn_of_rotated_images() const;

 private:
  int64_t size_, channels_;
  models::PixelScale scale_;
  models::ImageFileTally tally_;
};

}  // namespace orrery::program
