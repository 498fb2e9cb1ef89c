#include "models/data/images.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "engine/system/files.h"
#include "engine/system/machine_memory.h"
#include "engine/types/check.h"
#include "models/data/data_format.h"
#include "models/formats/gzip.h"
#include "models/formats/json.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr const char* fewer_images = "use fewer images, or smaller ones with --image_size=N";

// Number of digits, and digits without leading zeros: pairs compare like the numbers.
using Number = std::pair<size_t, std::string>;
std::optional<Number> number_in(std::string_view name) {
  constexpr std::string_view prefix = "LABEL_";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  if (name.empty() || name.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  name.remove_prefix(std::min(name.find_first_not_of('0'), name.size() - 1));
  return Number(name.size(), name);
}

// Returns the labels in the order of the classes' numbers or, without `numbers`, 0, 1, 2, ...
std::vector<int32_t> in_order(const std::vector<std::string>& classes, bool numbers) {
  std::vector<int32_t> labels(classes.size());
  std::iota(labels.begin(), labels.end(), 0);
  if (numbers)
    std::sort(labels.begin(), labels.end(), [&](int32_t a, int32_t b) {
      return *number_in(classes[static_cast<size_t>(a)]) < *number_in(classes[static_cast<size_t>(b)]);
    });
  return labels;
}

// Returns each name that several classes have, with the numbers of these classes.
std::map<std::string, std::vector<std::string>> numbers_of_shared_names(const std::vector<std::string>& classes) {
  std::map<std::string, std::vector<std::string>> numbers;
  for (size_t i = 0; i < classes.size(); ++i) numbers[classes[i]].push_back(std::to_string(i));
  std::erase_if(numbers, [](const auto& each) { return each.second.size() == 1; });
  return numbers;
}

void check_labels(const Images& images, const std::vector<std::string>& classes, const std::string& folder) {
  for (const int32_t label : images.labels)
    check(label >= 0 && label < static_cast<int32_t>(classes.size()), "images: ", folder, ": an image has label ",
          label, ", but the number of classes is ", classes.size(), "; valid labels are 0 to ", classes.size() - 1);
}

// Checks that the names are UTF-8, because a run stores them as JSON.
void check_names(const std::vector<std::string>& classes, const std::string& folder) {
  for (const std::string& name : classes)
    check_utf8(name, text("images: ", folder, ": the name of the class '", name, "'"), "rename it");
}

Images chosen(const Images& from, const std::vector<int64_t>& which) {
  Images some{from.height, from.width, from.channels, {}, {}};
  const size_t size = which.size() * static_cast<size_t>(from.pixels_per_image());
  check_memory("images: copying a split", static_cast<double>(size), fewer_images);
  some.pixels.reserve(size);
  for (const int64_t i : which) {
    const std::span<const uint8_t> image = from.image(i);
    some.pixels.insert(some.pixels.end(), image.begin(), image.end());
    some.labels.push_back(from.labels[static_cast<size_t>(i)]);
  }
  return some;
}

// Returns gray images as red, green and blue, or the other way.
Images with_channels(Images images, int64_t channels) {
  if (images.channels == channels) return images;
  Images converted{images.height, images.width, channels, {}, std::move(images.labels)};
  const size_t count = images.pixels.size() / static_cast<size_t>(images.channels);
  check_memory("images: converting channels", static_cast<double>(count) * static_cast<double>(channels), fewer_images);
  converted.pixels.reserve(count * static_cast<size_t>(channels));
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const x = &images.pixels[i * static_cast<size_t>(images.channels)];
    if (channels == 3)
      converted.pixels.insert(converted.pixels.end(), 3, *x);
    else
      converted.pixels.push_back(static_cast<uint8_t>((77 * x[0] + 150 * x[1] + 29 * x[2]) >> 8));
  }
  return converted;
}

// Returns the number of validation images of a class.
int64_t held_out_count(int64_t count, double fraction) {
  return static_cast<int64_t>(static_cast<double>(count) * fraction);
}

void split_validation(ImageSet& set, double fraction) {
  std::vector<int64_t> counts(set.classes.size()), seen(set.classes.size()), training, kept;
  for (const int32_t label : set.train.labels) ++counts[static_cast<size_t>(label)];
  for (int64_t i = 0; i < set.train.count(); ++i) {
    const auto label = static_cast<size_t>(set.train.labels[static_cast<size_t>(i)]);
    const int64_t held_out = held_out_count(counts[label], fraction);
    (seen[label]++ < counts[label] - held_out ? training : kept).push_back(i);
  }
  set.validation = chosen(set.train, kept);
  set.train = chosen(set.train, training);
}

void check_classes(const ImageSet& set, const std::string& folder) {
  std::vector<int64_t> counts(set.classes.size());
  for (const int32_t label : set.train.labels) ++counts[static_cast<size_t>(label)];
  const auto empty = std::find(counts.begin(), counts.end(), 0);
  check(empty == counts.end(), "images: ", folder, ": class '",
        set.classes[static_cast<size_t>(empty - counts.begin()) % set.classes.size()],
        "' has no training images; remove the class or add images");
}

// Splits images into training and validation, as options.splits requires.
void make_splits(ImageSet& set, const std::string& folder, const ImageOptions& options) {
  using Splits = ImageOptions::Splits;
  const bool held_out = set.has_split = set.validation.count() > 0;
  if (options.splits == Splits::training) set.validation = Images();
  if (options.splits == Splits::held_out && !held_out) set.validation = std::exchange(set.train, Images());
  if (options.splits == Splits::held_out) {
    check(set.validation.count() > 0, "images: ", folder, " has no images; give a folder with images");
    set.train = Images();
    return;
  }
  check(set.train.count() > 0 || (held_out && options.splits == Splits::evaluating), "images: ", folder,
        " has no training images; add a training split");
  if (!held_out && options.splits != Splits::training) split_validation(set, options.validation_fraction);
  if (set.train.count() > 0) check_classes(set, folder);
  if (options.splits == Splits::training) return;
  check(set.validation.count() > 0, "images: ", folder, ": validation_fraction=", options.validation_fraction,
        " selects no image of any class; raise it");
  check_sizes(set, folder);
}

}  // namespace

void Images::add(const DecodedImage& decoded, int32_t label, std::string_view name) {
  if (labels.empty()) height = decoded.height, width = decoded.width, channels = decoded.channels;
  check(decoded.height == height && decoded.width == width && decoded.channels == channels, "images: ", name, " has ",
        decoded.height, " x ", decoded.width, " pixels, but the images before it have ", height, " x ", width,
        "; resize all with --image_size=N");
  const size_t size = pixels.size() + decoded.pixels.size();
  if (size > pixels.capacity()) {
    check_memory(text("images: reading those up to ", name), static_cast<double>(size + size / 4), fewer_images);
    pixels.reserve(size + size / 4);
  }
  pixels.insert(pixels.end(), decoded.pixels.begin(), decoded.pixels.end());
  labels.push_back(label);
}

std::string ImageSet::read(const std::string& path, uint64_t limit) {
  std::string bytes = read_data_file(path, limit);
  files[path] = {bytes.size(), sha256(std::as_bytes(std::span(bytes)))};
  return bytes;
}

int64_t ImageSet::trained_on(double validation_fraction) const {
  if (has_split) return 0;
  std::map<int32_t, int64_t> all, held_out;  // by label
  for (const int32_t label : train.labels) ++all[label];
  for (const int32_t label : validation.labels) ++all[label], ++held_out[label];
  int64_t trained = 0;
  for (const auto& [label, count] : held_out)
    trained += std::max<int64_t>(0, count - held_out_count(all[label], validation_fraction));
  return trained;
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
        "images: ", folder, ": training images have ", train.height, " x ", train.width, " pixels and ", train.channels,
        train.channels == 1 ? " channel" : " channels", ", but validation images have ", validation.height, " x ",
        validation.width, " and ", validation.channels, "; resize all with --image_size=N");
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
  check(folder_exists(folder), "images: ", folder, " is not a folder; give a folder of images");
  std::vector<std::string> known;
  std::vector<const ImageFormat*> formats;
  for (const auto& [name, format] : image_formats()) formats.push_back(&format);
  std::stable_partition(formats.begin(), formats.end(), [](const ImageFormat* one) { return !one->of_any_folder; });
  for (const ImageFormat* const format : formats) {
    known.push_back(format->description);
    if (!format->reads(folder)) continue;
    ImageSet set = format->read(folder, options);
    set.folder = folder;
    check_names(set.classes, folder);
    check_labels(set.train, set.classes, folder);
    check_labels(set.validation, set.classes, folder);
    make_splits(set, folder, options);
    return set;
  }
  fail("images: ", folder, ": unknown layout; known layouts: ", join(known, "; "));
}

std::optional<std::string> class_number(std::string_view name) {
  const std::optional<Number> number = number_in(name);
  return number ? std::optional(number->second) : std::nullopt;
}

bool are_numbers(const std::vector<std::string>& classes) {
  std::set<Number> seen;
  return std::all_of(classes.begin(), classes.end(), [&](const std::string& name) {
    const std::optional<Number> number = number_in(name);
    return number && seen.insert(*number).second;
  });
}

void check_numbers(const std::vector<std::string>& classes, const std::string& folder) {
  const auto is_number = [](const std::string& name) { return number_in(name).has_value(); };
  if (!std::all_of(classes.begin(), classes.end(), is_number)) return;
  std::map<Number, std::string> names;
  for (const std::string& name : classes) {
    const std::string& other = names.emplace(*number_in(name), name).first->second;
    check(other == name, "images: ", folder, ": the classes '", other, "' and '", name,
          "' are one number; join them, or rename one");
  }
}

void sort_classes(std::vector<std::string>& classes) {
  if (are_numbers(classes))
    std::sort(classes.begin(), classes.end(),
              [](const std::string& a, const std::string& b) { return *number_in(a) < *number_in(b); });
  else
    std::sort(classes.begin(), classes.end());
}

std::optional<MatchedClasses> match_classes(const std::vector<std::string>& classes,
                                            const std::vector<std::string>& others) {
  using By = MatchedClasses::By;
  if (classes == others) return MatchedClasses{By::name, in_order(classes, false)};
  const bool numbers = are_numbers(classes), other_numbers = are_numbers(others);
  // Matches each class with the first of `others` that has an equal `as`.
  const auto found = [&](By by, const auto& as) -> std::optional<MatchedClasses> {
    std::map<std::decay_t<decltype(as(others[0]))>, int32_t> label_of;
    for (size_t i = 0; i < others.size(); ++i) label_of.emplace(as(others[i]), static_cast<int32_t>(i));
    MatchedClasses matched{by};
    for (const std::string& name : classes) {
      const auto label = label_of.find(as(name));
      if (label == label_of.end()) return std::nullopt;
      matched.labels.push_back(label->second);
    }
    return matched;
  };
  if (const auto by_name = found(By::name, [](const std::string& name) { return name; })) return by_name;
  if (numbers && other_numbers)
    if (const auto by_number = found(By::number, [](const std::string& name) { return *number_in(name); }))
      return by_number;
  if (classes.size() != others.size() || !(numbers || other_numbers)) return std::nullopt;
  const std::vector<int32_t> from = in_order(classes, numbers), to = in_order(others, other_numbers);
  MatchedClasses by_order{By::order, std::vector<int32_t>(classes.size())};
  for (size_t i = 0; i < from.size(); ++i) by_order.labels[static_cast<size_t>(from[i])] = to[i];
  return by_order;
}

void note_match(std::vector<std::string>& notes, const MatchedClasses& matched, const NamedClasses& of,
                const NamedClasses& among) {
  if (matched.by == MatchedClasses::By::name) return;
  notes.push_back(text("the classes of ", of.owner, " (", listed(of.classes), ") are matched with those of ",
                       among.owner, " (", listed(among.classes), "), ",
                       matched.by == MatchedClasses::By::number ? "by number" : "in their order"));
}

void check_clear_names(const MatchedClasses& matched, const NamedClasses& of, const NamedClasses& among) {
  if (matched.by != MatchedClasses::By::name || of.classes == among.classes) return;
  const auto shared = numbers_of_shared_names(among.classes);
  for (const std::string& name : of.classes) {
    const auto found = shared.find(name);
    if (found == shared.end()) continue;
    fail("images: ", of.owner, " has a class '", name, "', but ", among.owner, " has several of this name (",
         listed(found->second), "); make a folder for each of the ", among.classes.size(),
         " classes, named by its number, 0 to ", among.classes.size() - 1);
  }
}

std::vector<std::string> shared_names(const std::vector<std::string>& classes) {
  std::vector<std::string> all;
  for (const auto& [name, numbers] : numbers_of_shared_names(classes))
    all.push_back(text("'", name, "' (", listed(numbers), ")"));
  return all;
}

void relabel(ImageSet& set, const std::vector<int32_t>& labels) {
  for (Images* const images : {&set.train, &set.validation})
    for (int32_t& label : images->labels) label = labels[static_cast<size_t>(label)];
}

std::string listed(const std::vector<std::string>& classes) {
  constexpr size_t max_names = 12;
  if (classes.size() <= max_names) return join(classes);
  return text(join({classes.begin(), classes.begin() + max_names}), ", ... (", classes.size(), " in all)");
}

std::string save_classes(const std::vector<std::string>& classes) {
  Json names = Json::array();
  for (const std::string& name : classes) names.push_back(name);
  return shown_json(Json{{"classes", names}});
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

Images resized(Images images, const ImageOptions& options, std::string_view name) {
  if (options.convert_channels && options.channels > 0) images = with_channels(std::move(images), options.channels);
  check(options.channels == 0 || images.channels == options.channels, "images: ", name, " has ", images.channels,
        images.channels == 1 ? " channel" : " channels", ", but the model has channels=", options.channels,
        "; train a model with --channels=", images.channels, " or without --channels");
  if (options.size == 0 || (images.height == options.size && images.width == options.size)) return images;
  Images result;
  for (int64_t i = 0; i < images.count(); ++i) {
    const std::span<const uint8_t> image = images.image(i);
    const DecodedImage decoded{images.height, images.width, images.channels, {image.begin(), image.end()}};
    result.add(center_square(decoded, options.size), images.labels[static_cast<size_t>(i)], name);
  }
  return result;
}

}  // namespace orrery::models
