#include "examples/orrery/commands/image_reader.h"

#include <array>

#include "examples/orrery/terminal/messages.h"
#include "models/formats/gzip.h"
#include "models/model.h"

namespace orrery::program {

ImageReader::ImageReader(const LoadedRun& trained, const models::ImageModel& model)
    : size_(models::setting_of<int64_t>(trained.settings.model_settings, "image_size")),
      channels_(model.channels()),
      scale_(models::setting_of<std::vector<double>>(trained.settings.task_settings, "pixel_mean"),
             models::setting_of<std::vector<double>>(trained.settings.task_settings, "pixel_std"), model.channels()) {}

Tensor ImageReader::read(const std::string& path) {
  const std::string bytes = models::read_data_file(path, models::max_image_bytes);
  models::Images image;
  image.add(models::center_square(models::decode_image(bytes, channels_, path), size_), 0, path);
  tally_.check_orientation(path, bytes);
  return models::images_at(image, scale_, std::array{int64_t{0}}).pixels;
}

void ImageReader::warn_of_rotated_images() const { warn(tally_.notes("those given")); }

}  // namespace orrery::program
