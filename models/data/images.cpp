#include "models/data/images.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "engine/base/machine_memory.h"
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
  const size_t size = which.size() * static_cast<size_t>(from.pixels_of_one());
  check_memory("images: a part of them", static_cast<double>(size), "take fewer, or smaller ones with --image_size=N");
  some.pixels.reserve(size);
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

// Into what is learned and what is held out.
void divide(ImageSet& set, const std::string& folder, const ImageOptions& options) {
  using Parts = ImageOptions::Parts;
  const bool held_out = set.validation.count() > 0;
  if (options.parts == Parts::learned) set.validation = Images();
  if (options.parts == Parts::held_out && !held_out) set.validation = std::exchange(set.train, Images());
  if (options.parts == Parts::held_out) {
    check(set.validation.count() > 0, "images: ", folder, " holds no image");
    set.train = Images();
    return;
  }
  check(set.train.count() > 0 || (held_out && options.parts == Parts::judged), "images: ", folder,
        " holds no image to learn");
  if (!held_out && options.parts != Parts::learned) keep_for_validation(set, options.validation_fraction);
  if (set.train.count() > 0) check_classes(set, folder);
  if (options.parts == Parts::learned) return;
  check(set.validation.count() > 0, "images: ", folder, " has too few images for validation_fraction ",
        options.validation_fraction, " of a class to be one; raise it");
  check_sizes(set, folder);
}

}  // namespace

void Images::add(const Picture& picture, int32_t label, std::string_view name) {
  if (labels.empty()) height = picture.height, width = picture.width, channels = picture.channels;
  check(picture.height == height && picture.width == width && picture.channels == channels, "images: ", name, " has ",
        picture.height, " x ", picture.width, " pixels, those before it ", height, " x ", width,
        "; bring all to one size with --image_size=N");
  const size_t size = pixels.size() + picture.pixels.size();
  if (size > pixels.capacity()) {
    check_memory(text("images: the ", labels.size() + 1, " up to ", name), static_cast<double>(size + size / 4),
                 "take fewer, or smaller ones with --image_size=N");
    pixels.reserve(size + size / 4);
  }
  pixels.insert(pixels.end(), picture.pixels.begin(), picture.pixels.end());
  labels.push_back(label);
}

std::string ImageSet::read(const std::string& path, uint64_t limit) {
  std::string bytes = read_data_file(path, limit);
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

void check_sizes(const ImageSet& set, const std::string& folder) {
  const Images &train = set.train, &validation = set.validation;
  if (train.count() == 0 || validation.count() == 0) return;
  check(train.height == validation.height && train.width == validation.width && train.channels == validation.channels,
        "images: ", folder, ": those to learn have ", train.height, " x ", train.width, " pixels and ", train.channels,
        train.channels == 1 ? " channel" : " channels", ", those for validation ", validation.height, " x ",
        validation.width, " and ", validation.channels, "; bring all to one size with --image_size=N");
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
    check_labels(set.train, set.classes, folder);
    check_labels(set.validation, set.classes, folder);
    divide(set, folder, options);
    return set;
  }
  fail("images: ", folder, " is laid out in no way that is known; there are: ", join(known, "; "));
}

bool are_numbers(const std::vector<std::string>& classes) {
  for (size_t i = 0; i < classes.size(); ++i)
    if (classes[i] != std::to_string(i) && classes[i] != text("LABEL_", i)) return false;
  return true;
}

std::optional<std::vector<int32_t>> labels_among(const std::vector<std::string>& others,
                                                 const std::vector<std::string>& classes) {
  std::vector<int32_t> labels;
  for (const std::string& name : classes)
    if (const auto found = std::find(others.begin(), others.end(), name); found != others.end())
      labels.push_back(static_cast<int32_t>(found - others.begin()));
  if (labels.size() == classes.size()) return labels;
  const bool numbers = are_numbers(classes), both = numbers && are_numbers(others);
  const bool fit = both ? classes.size() <= others.size() : classes.size() == others.size();
  if (!fit || !(numbers || are_numbers(others))) return std::nullopt;
  labels.resize(classes.size());
  std::iota(labels.begin(), labels.end(), 0);
  return labels;
}

void relabel(ImageSet& set, const std::vector<int32_t>& labels) {
  for (Images* const images : {&set.train, &set.validation})
    for (int32_t& label : images->labels) label = labels[static_cast<size_t>(label)];
}

std::string listed(const std::vector<std::string>& classes) {
  constexpr size_t most = 12;
  if (classes.size() <= most) return join(classes);
  return text(join({classes.begin(), classes.begin() + most}), ", ... (", classes.size(), " in all)");
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

Images brought_to(Images images, const ImageOptions& options, std::string_view name) {
  check(options.channels == 0 || images.channels == options.channels, "images: ", name, " has ", images.channels,
        images.channels == 1 ? " channel" : " channels", ", the model takes ", options.channels,
        "; a model of these is trained with --channels=", images.channels, ", or without --channels");
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
