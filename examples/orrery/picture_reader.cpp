#include "examples/orrery/picture_reader.h"

#include <array>

#include "models/model.h"

namespace orrery::program {

PictureReader::PictureReader(const Trained& trained, const models::ImageModel& model)
    : size_(models::setting_of<int64_t>(trained.settings.model_settings, "image_size")),
      channels_(model.channels()),
      scale_(models::setting_of<std::vector<double>>(trained.settings.task_settings, "pixel_mean"),
             models::setting_of<std::vector<double>>(trained.settings.task_settings, "pixel_std"), model.channels()) {}

Tensor PictureReader::read(const std::string& path) const {
  models::Images image;
  image.add(models::middle_square(models::read_picture(path, channels_), size_), 0, path);
  return models::images_at(image, scale_, std::array{int64_t{0}}).pixels;
}

}  // namespace orrery::program
