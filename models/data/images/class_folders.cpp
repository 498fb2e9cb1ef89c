// A folder for each class, named after it, with its images: FOLDER/daisy/1.jpg, or
// FOLDER/train/daisy/1.jpg and likewise below val, validation or test.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "models/data/image_file_tally.h"
#include "models/data/images.h"

namespace orrery::models {
namespace {

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }
std::string folder_of(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string& path : files_in(folder))
    if (!is_hidden(path) && folder_exists(path) && !contains_folder(path, folder)) found.push_back(path);
  return found;
}

// Returns the images directly in a class's folder; counts other files below it as left out.
std::vector<std::string> image_files_in(const std::string& of_class, ImageFileTally& tally) {
  std::vector<std::string> found;
  for (const std::string& path : files_below(of_class)) {
    if (!is_image_file(path))
      tally.leave_out(path);
    else if (folder_of(path) != of_class)
      tally.leave_out(path, "in deeper folders");
    else
      found.push_back(path);
  }
  return found;
}

// Counts the files directly in a folder as left out.
void leave_out_files(const std::string& folder, const std::string& where, ImageFileTally& tally) {
  for (const std::string& path : files_in(folder))
    if (!is_hidden(path) && !folder_exists(path)) tally.leave_out(path, where);
}

// Returns nothing if the image is broken and options.skip_broken is set.
std::optional<DecodedImage> decode(ImageSet& set, const std::string& path, const ImageOptions& options,
                                   ImageFileTally& tally) {
  try {
    const std::string bytes = set.read(path, max_image_bytes);
    const DecodedImage decoded = decode_image(bytes, options.channels == 0 ? 3 : options.channels, path);
    tally.check_orientation(path, bytes);
    return options.size == 0 ? decoded : center_square(decoded, options.size);
  } catch (const Error& error) {
    if (!options.skip_broken) fail("images: ", error.what(), "; --skip_broken=yes leaves broken images out");
    set.skipped.emplace_back(error.what());
    return std::nullopt;
  }
}

std::vector<std::string> classes_in(const std::string& folder) {
  std::vector<std::string> classes;
  for (const std::string& of_class : folders_in(folder)) classes.push_back(name_of(of_class));
  check_numbers(classes, folder);
  sort_classes(classes);
  return classes;
}

// Returns the labels of the classes in a folder, matched by name, or by number if all are numbers.
std::map<std::string, int32_t> labels_in(ImageSet& set, const std::string& folder, const std::string& training) {
  const std::vector<std::string> classes = classes_in(folder);
  const auto matched = match_classes(classes, set.classes);
  const bool alike = matched && matched->by != MatchedClasses::By::order;
  for (const std::string& name : classes)
    check(alike || std::find(set.classes.begin(), set.classes.end(), name) != set.classes.end(), "images: ", folder,
          "/", name, ": '", name, "' is not a training class; training classes: ", listed(set.classes));
  note_match(set.notes, *matched, {folder, classes}, {training, set.classes});
  std::map<std::string, int32_t> labels;
  for (size_t i = 0; i < classes.size(); ++i) labels[classes[i]] = matched->labels[i];
  return labels;
}

// Reads images in the order of their paths, not of the classes: a run draws them by that order.
Images read_split(ImageSet& set, const std::string& folder, const std::string& training, const ImageOptions& options,
                  ImageFileTally& tally) {
  Images images;
  const std::map<std::string, int32_t> labels = labels_in(set, folder, training);
  for (const std::string& of_class : folders_in(folder)) {
    const std::vector<std::string> files = image_files_in(of_class, tally);
    check(!files.empty(), "images: ", of_class, " has no images (.png, .jpg, .jpeg); remove it or add some");
    for (const std::string& path : files)
      if (const std::optional<DecodedImage> decoded = decode(set, path, options, tally))
        images.add(*decoded, labels.at(name_of(of_class)), path);
  }
  leave_out_files(folder, "next to the class folders", tally);
  return images;
}

constexpr const char* held_out_names[] = {"val", "validation", "test"};
// Returns the validation folders that exist, the preferred one first.
std::vector<std::string> held_out_splits(const std::string& folder) {
  std::vector<std::string> splits;
  for (const char* name : held_out_names)
    if (folder_exists(folder + "/" + name)) splits.push_back(folder + "/" + name);
  return splits;
}
// Counts files outside the splits of a folder as left out.
void leave_out_others(const std::string& folder, ImageFileTally& tally) {
  const std::string where = "next to train, val, validation and test";
  const auto is_split = [](const std::string& name) {
    return name == "train" ||
           std::find(std::begin(held_out_names), std::end(held_out_names), name) != std::end(held_out_names);
  };
  for (const std::string& other : folders_in(folder))
    if (!is_split(name_of(other)))
      for (const std::string& file : files_below(other)) tally.leave_out(file, where);
  leave_out_files(folder, where, tally);
}
// Returns whether a folder has validation splits only; "test" without folders may be a class.
bool has_only_splits(const std::string& folder) {
  const std::vector<std::string> splits = held_out_splits(folder);
  return !splits.empty() && splits.size() == folders_in(folder).size() &&
         std::all_of(splits.begin(), splits.end(), [](const std::string& split) { return !folders_in(split).empty(); });
}

ImageSet read_class_folders(const std::string& folder, const ImageOptions& options) {
  ImageSet set;
  ImageFileTally tally;
  const std::string training = folder + "/train";
  const bool splits = folder_exists(training) || has_only_splits(folder);
  const std::vector<std::string> held_out = splits ? held_out_splits(folder) : std::vector<std::string>();
  const bool has_training = !splits || folder_exists(training);
  if (has_training) set.classes = classes_in(splits ? training : folder);
  if (has_training && (held_out.empty() || options.splits != ImageOptions::Splits::held_out))
    set.train = read_split(set, splits ? training : folder, training, options, tally);
  for (const std::string& split : held_out) {
    if (set.validation.count() > 0) {
      for (const std::string& file : files_below(split))
        tally.leave_out(file, "in " + name_of(split) + ", because another folder is the validation split");
      continue;
    }
    if (!has_training) set.classes = classes_in(split);
    set.validation = read_split(set, split, training, options, tally);
  }
  if (splits) leave_out_others(folder, tally);
  for (const std::string& note : tally.notes(folder)) set.notes.push_back(note);
  return set;
}

REGISTER_IMAGE_FORMAT(class_folders,
                      {.name = "class_folders",
                       .description = "a folder of PNG or JPEG files for each class, directly or in train "
                                      "and val (or validation, or test)",
                       .reads = [](const std::string& folder) { return !folders_in(folder).empty(); },
                       .read = read_class_folders,
                       .of_any_folder = true});

}  // namespace
}  // namespace orrery::models
