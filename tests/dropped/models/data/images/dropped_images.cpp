// dropped.raw: gray images of 4 x 4 pixels, 16 bytes each after a byte with the class. Every fourth
// image is for validation.
#include "engine/system/files.h"
#include "models/data/images.h"

namespace orrery::models {
namespace {

ImageSet read_dropped(const std::string& folder, const ImageOptions& options) {
  ImageSet set;
  const std::string bytes = set.read(folder + "/dropped.raw");
  check(bytes.size() % 17 == 0, "images: ", folder, "/dropped.raw has ", bytes.size(), " bytes, not 17 for each image");
  set.classes = {"dark", "light"};
  for (Images* const split : {&set.train, &set.validation}) split->height = split->width = 4, split->channels = 1;
  for (size_t i = 0; i < bytes.size() / 17; ++i) {
    Images& split = i % 4 == 3 ? set.validation : set.train;
    split.labels.push_back(bytes[17 * i]);
    split.pixels.insert(split.pixels.end(), bytes.begin() + static_cast<int64_t>(17 * i + 1),
                        bytes.begin() + static_cast<int64_t>(17 * i + 17));
  }
  set.train = resized(std::move(set.train), options, folder);
  set.validation = resized(std::move(set.validation), options, folder);
  return set;
}

REGISTER_IMAGE_FORMAT(dropped_images,
                      {.name = "dropped_images",
                       .description = "dropped.raw, for a test",
                       .reads = [](const std::string& folder) { return file_exists(folder + "/dropped.raw"); },
                       .read = read_dropped});

}  // namespace
}  // namespace orrery::models
