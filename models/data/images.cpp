#include "models/data/images.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "models/data/data_format.h"
#include "models/data/gzip.h"
#include "models/json.h"

namespace orrery::models {
namespace {

void check_labels(const Images& images, const std::vector<std::string>& classes, const std::string& folder) {
  for (const int32_t label : images.labels)
    check(label >= 0 && label < static_cast<int32_t>(classes.size()), "images: ", folder, ": an image has label ",
          label, ", but there are ", classes.size(), " classes to learn, 0 to ", classes.size() - 1);
}

Images chosen(const Images& from, const std::vector<int64_t>& which) {
  Images some{from.height, from.width, from.channels, {}, {}};
  for (const int64_t i : which) {
    const std::span<const uint8_t> image = from.image(i);
    some.pixels.insert(some.pixels.end(), image.begin(), image.end());
    some.labels.push_back(from.labels[static_cast<size_t>(i)]);
  }
  return some;
}

void keep_for_validation(ImageSet& set, double fraction) {
  std::vector<int64_t> counts(set.classes.size()), seen(set.classes.size()), learned, kept;
  for (const int32_t label : set.train.labels) ++counts[static_cast<size_t>(label)];
  for (int64_t i = 0; i < set.train.count(); ++i) {
    const auto label = static_cast<size_t>(set.train.labels[static_cast<size_t>(i)]);
    const auto ours = static_cast<int64_t>(static_cast<double>(counts[label]) * fraction);
    (seen[label]++ < counts[label] - ours ? learned : kept).push_back(i);
  }
  set.validation = chosen(set.train, kept);
  set.train = chosen(set.train, learned);
}

void check_classes(const ImageSet& set, const std::string& folder) {
  std::vector<int64_t> counts(set.classes.size());
  for (const int32_t label : set.train.labels) ++counts[static_cast<size_t>(label)];
  const auto empty = std::find(counts.begin(), counts.end(), 0);
  check(empty == counts.end(), "images: ", folder, ": class '",
        set.classes[static_cast<size_t>(empty - counts.begin()) % set.classes.size()],
        "' has no image to learn; take it out or add some");
}

}  // namespace

void Images::add(const Picture& picture, int32_t label, std::string_view name) {
  if (labels.empty()) height = picture.height, width = picture.width, channels = picture.channels;
  check(picture.height == height && picture.width == width && picture.channels == channels, "images: ", name, " has ",
        picture.height, " x ", picture.width, " pixels, those before it ", height, " x ", width,
        "; bring all to one size with --image_size=N");
  pixels.insert(pixels.end(), picture.pixels.begin(), picture.pixels.end());
  labels.push_back(label);
}

std::string ImageSet::read(const std::string& path) {
  std::string bytes = read_data_file(path);
  files[path] = {bytes.size(), sha256(std::as_bytes(std::span(bytes)))};
  return bytes;
}

Fingerprint ImageSet::fingerprint() const {
  const std::filesystem::path from = std::filesystem::path(folder).lexically_normal();
  uint64_t bytes = 0;
  std::string all;
  for (const auto& [path, file] : files) {
    bytes += file.bytes;
    const std::filesystem::path inside = std::filesystem::path(path).lexically_normal().lexically_relative(from);
    all += inside.generic_string() + " " + file.sha256 + "\n";
  }
  return {bytes, sha256(std::as_bytes(std::span(all)))};
}

Registry<ImageFormat>& image_formats() {
  static Registry<ImageFormat> all("data");
  return all;
}
bool add_image_format(const ImageFormat& format) {
  image_formats().add(format);
  data_formats().add({format.name, format.description, "images"});
  return true;
}

ImageSet read_images(const std::string& folder, const ImageOptions& options) {
  check(folder_exists(folder), "images: there is no folder ", folder);
  std::vector<std::string> known;
  for (const auto& [name, format] : image_formats()) {
    known.push_back(format.description);
    if (!format.reads(folder)) continue;
    ImageSet set = format.read(folder, options);
    set.folder = folder;
    check(set.train.count() > 0, "images: ", folder, " holds no image to learn");
    check_labels(set.train, set.classes, folder);
    check_labels(set.validation, set.classes, folder);
    if (set.validation.count() == 0) keep_for_validation(set, options.validation_fraction);
    check_classes(set, folder);
    check(set.validation.count() > 0, "images: ", folder, " has too few images for validation_fraction ",
          options.validation_fraction, " of a class to be one; raise it");
    check(set.train.pixels_of_one() == set.validation.pixels_of_one(), "images: ", folder, ": those to learn have ",
          set.train.height, " x ", set.train.width, " pixels, those for validation ", set.validation.height, " x ",
          set.validation.width, "; bring all to one size with --image_size=N");
    return set;
  }
  fail("images: ", folder, " is laid out in no way that is known; there are: ", join(known, "; "));
}

std::string save_classes(const std::vector<std::string>& classes) {
  Json names = Json::array();
  for (const std::string& name : classes) names.push_back(name);
  return Json{{"classes", names}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> restore_classes(const std::string& json) {
  constexpr std::string_view what = "images: the names of the classes cannot be restored";
  const Json all = parse_json(json, what);
  const Json& names = member(all, "classes", what);
  check(names.is_array() && !names.empty(), what, ": 'classes' must be a list of names");
  std::vector<std::string> classes;
  for (const Json& name : names) {
    check(name.is_string(), what, ": 'classes' must be a list of names");
    classes.push_back(name.get<std::string>());
  }
  return classes;
}

std::string find_data_file(const std::string& folder, std::initializer_list<std::string> names) {
  for (const std::string& name : names)
    for (const char* ending : {"", ".gz"})
      if (const std::string path = folder + "/" + name + ending; file_exists(path)) return path;
  return "";
}

Images brought_to(Images images, const ImageOptions& options, std::string_view name) {
  check(options.channels == 0 || images.channels == options.channels, "images: ", name, " has ", images.channels,
        images.channels == 1 ? " channel" : " channels", ", the model takes ", options.channels,
        "; leave --channels out or set it to ", images.channels);
  if (options.size == 0 || (images.height == options.size && images.width == options.size)) return images;
  Images brought;
  for (int64_t i = 0; i < images.count(); ++i) {
    const std::span<const uint8_t> image = images.image(i);
    const Picture picture{images.height, images.width, images.channels, {image.begin(), image.end()}};
    brought.add(middle_square(picture, options.size), images.labels[static_cast<size_t>(i)], name);
  }
  return brought;
}

}  // namespace orrery::models
