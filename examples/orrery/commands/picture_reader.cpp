#include "examples/orrery/commands/picture_reader.h"

#include <array>

#include "examples/orrery/terminal/talk.h"
#include "models/formats/gzip.h"
#include "models/model.h"

namespace orrery::program {

PictureReader::PictureReader(const Trained& trained, const models::ImageModel& model)
    : size_(models::setting_of<int64_t>(trained.settings.model_settings, "image_size")),
      channels_(model.channels()),
      scale_(models::setting_of<std::vector<double>>(trained.settings.task_settings, "pixel_mean"),
             models::setting_of<std::vector<double>>(trained.settings.task_settings, "pixel_std"), model.channels()) {}

Tensor PictureReader::read(const std::string& path) {
  const std::string bytes = models::read_data_file(path, models::largest_picture_file);
  models::Images image;
  image.add(models::middle_square(models::decode_picture(bytes, channels_, path), size_), 0, path);
  tally_.check_turn(path, bytes);
  return models::images_at(image, scale_, std::array{int64_t{0}}).pixels;
}

void PictureReader::warn_of_turned_pictures() const { warn(tally_.notes("those given")); }

}  // namespace orrery::program
