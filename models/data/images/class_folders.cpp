// A folder for each class, named after it, with its images: FOLDER/daisy/1.jpg, or
// FOLDER/train/daisy/1.jpg and likewise below val, validation or test.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "models/data/images.h"
#include "models/data/picture_tally.h"

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
std::vector<std::string> pictures_in(const std::string& of_class, PictureTally& tally) {
  std::vector<std::string> found;
  for (const std::string& path : files_below(of_class)) {
    if (!is_picture(path))
      tally.leave_out(path);
    else if (folder_of(path) != of_class)
      tally.leave_out(path, "in deeper folders");
    else
      found.push_back(path);
  }
  return found;
}

// Counts the files directly in a folder as left out.
void leave_out_files(const std::string& folder, const std::string& where, PictureTally& tally) {
  for (const std::string& path : files_in(folder))
    if (!is_hidden(path) && !folder_exists(path)) tally.leave_out(path, where);
}

// Returns nothing if the image is broken and options.skip_broken is set.
std::optional<Picture> decode(ImageSet& set, const std::string& path, const ImageOptions& options,
                              PictureTally& tally) {
  try {
    const std::string bytes = set.read(path, largest_picture_file);
    const Picture picture = decode_picture(bytes, options.channels == 0 ? 3 : options.channels, path);
    tally.check_turn(path, bytes);
    return options.size == 0 ? picture : middle_square(picture, options.size);
  } catch (const Error& error) {
    if (!options.skip_broken) fail("images: ", error.what(), "; --skip_broken=yes leaves broken images out");
    set.skipped.emplace_back(error.what());
    return std::nullopt;
  }
}

std::vector<std::string> classes_in(const std::string& folder) {
  std::vector<std::string> classes;
  for (const std::string& of_class : folders_in(folder)) classes.push_back(name_of(of_class));
  sort_classes(classes);
  return classes;
}

// Returns the labels of the classes in a folder, matched by name, or by number if all are numbers.
std::map<std::string, int32_t> labels_in(ImageSet& set, const std::string& folder, const std::string& learned) {
  const std::vector<std::string> classes = classes_in(folder);
  const auto matched = match_classes(classes, set.classes);
  const bool alike = matched && matched->by != MatchedClasses::By::order;
  for (const std::string& name : classes)
    check(alike || std::find(set.classes.begin(), set.classes.end(), name) != set.classes.end(), "images: ", folder,
          "/", name, ": '", name, "' is not a training class; training classes: ", listed(set.classes));
  note_match(set.notes, *matched, {folder, classes}, {learned, set.classes});
  std::map<std::string, int32_t> labels;
  for (size_t i = 0; i < classes.size(); ++i) labels[classes[i]] = matched->labels[i];
  return labels;
}

// Reads images in the order of their paths, not of the classes: a run draws them by that order.
Images read_part(ImageSet& set, const std::string& folder, const std::string& learned, const ImageOptions& options,
                 PictureTally& tally) {
  Images images;
  const std::map<std::string, int32_t> labels = labels_in(set, folder, learned);
  for (const std::string& of_class : folders_in(folder)) {
    const std::vector<std::string> pictures = pictures_in(of_class, tally);
    check(!pictures.empty(), "images: ", of_class, " has no images (.png, .jpg, .jpeg); remove it or add some");
    for (const std::string& path : pictures)
      if (const std::optional<Picture> picture = decode(set, path, options, tally))
        images.add(*picture, labels.at(name_of(of_class)), path);
  }
  leave_out_files(folder, "next to the class folders", tally);
  return images;
}

constexpr const char* names_of_held_out[] = {"val", "validation", "test"};
// Returns the validation folders that exist, the preferred one first.
std::vector<std::string> held_out_parts(const std::string& folder) {
  std::vector<std::string> parts;
  for (const char* name : names_of_held_out)
    if (folder_exists(folder + "/" + name)) parts.push_back(folder + "/" + name);
  return parts;
}
// Counts files outside the splits of a folder as left out.
void leave_out_others(const std::string& folder, PictureTally& tally) {
  const std::string where = "next to train, val, validation and test";
  const auto is_part = [](const std::string& name) {
    return name == "train" ||
           std::find(std::begin(names_of_held_out), std::end(names_of_held_out), name) != std::end(names_of_held_out);
  };
  for (const std::string& other : folders_in(folder))
    if (!is_part(name_of(other)))
      for (const std::string& file : files_below(other)) tally.leave_out(file, where);
  leave_out_files(folder, where, tally);
}
// Returns whether a folder has validation splits only; "test" without folders may be a class.
bool holds_parts_alone(const std::string& folder) {
  const std::vector<std::string> parts = held_out_parts(folder);
  return !parts.empty() && parts.size() == folders_in(folder).size() &&
         std::all_of(parts.begin(), parts.end(), [](const std::string& part) { return !folders_in(part).empty(); });
}

ImageSet read_class_folders(const std::string& folder, const ImageOptions& options) {
  ImageSet set;
  PictureTally tally;
  const std::string learned = folder + "/train";
  const bool parts = folder_exists(learned) || holds_parts_alone(folder);
  const std::vector<std::string> held_out = parts ? held_out_parts(folder) : std::vector<std::string>();
  const bool learns = !parts || folder_exists(learned);
  if (learns) set.classes = classes_in(parts ? learned : folder);
  if (learns && (held_out.empty() || options.parts != ImageOptions::Parts::held_out))
    set.train = read_part(set, parts ? learned : folder, learned, options, tally);
  for (const std::string& part : held_out) {
    if (set.validation.count() > 0) {
      for (const std::string& file : files_below(part))
        tally.leave_out(file, "in " + name_of(part) + ", because another folder is the validation split");
      continue;
    }
    if (!learns) set.classes = classes_in(part);
    set.validation = read_part(set, part, learned, options, tally);
  }
  if (parts) leave_out_others(folder, tally);
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
