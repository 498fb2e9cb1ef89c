// Image data: pixels, labels and names of the classes; a training and a validation split.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/settings/registry.h"
#include "engine/system/hash.h"
#include "models/data/decoded_image.h"
#include "models/formats/gzip.h"

namespace orrery::models {

struct Images {  // all of one size
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // (count, height, width, channels)
  std::vector<int32_t> labels;  // (count)

  int64_t count() const { return static_cast<int64_t>(labels.size()); }
  int64_t pixels_per_image() const { return height * width * channels; }
  std::span<const uint8_t> image(int64_t i) const {
    return std::span(pixels).subspan(static_cast<size_t>(i * pixels_per_image()),
                                     static_cast<size_t>(pixels_per_image()));
  }
  // Adds an image; throws Error, with `name`, if its size is not that of the previous images.
  void add(const DecodedImage& decoded, int32_t label, std::string_view name);
};

struct ImageOptions {
  int64_t size = 0;                  // height and width after resizing; 0: unchanged
  int64_t channels = 0;              // 1 or 3; 0: those of the data
  bool convert_channels = false;     // of IDX and CIFAR files too; else other channels than these are an error
  double validation_fraction = 0.1;  // of each class, at its end, if the data has no validation split
  bool skip_broken = false;          // leave out images that cannot be decoded
  enum class Splits {
    both,        // training and validation split: the data's, or a fraction for validation
    training,    // training data only, in full
    held_out,    // the validation split or, without one, all images
    evaluating,  // like both, but the training split may be empty
  } splits = Splits::both;
  // Returns whether the training split must be read, once the validation split is known.
  bool needs_training_split(const Images& held_out) const {
    return splits != Splits::held_out || held_out.count() == 0;
  }
};

struct ImageSet {
  Images train, validation;
  std::vector<std::string> classes;
  std::vector<std::string> skipped = {};                   // broken images that were left out, and why
  std::vector<std::string> notes = {};                     // sentences about other files not read as intended
  std::string folder = {};                                 // the folder that was read
  std::map<std::string, Fingerprint> files = {};           // in `folder`, by path
  Fingerprint fingerprint() const;                         // of all files, with their names in the folder
  std::optional<Fingerprint> validation_fingerprint = {};  // of validation data read from elsewhere
  bool has_split = false;                                  // the data has a split for validation
  // Returns how many validation images are training data with this validation_fraction.
  int64_t trained_on(double validation_fraction) const;
  // Reads and unpacks a file and adds it to `files`; throws Error above `limit` bytes.
  std::string read(const std::string& path, uint64_t limit = max_unpacked_bytes);
};

// A layout of images in a folder, one file in models/data/images.
struct ImageFormat {
  std::string name, description;
  bool (*reads)(const std::string& folder);  // whether the folder has this layout
  ImageSet (*read)(const std::string& folder, const ImageOptions& options);
  bool of_any_folder = false;  // accepts folders of any name, so it is tried last
};
Registry<ImageFormat>& image_formats();
bool add_image_format(const ImageFormat& format);  // also to the catalogue of data
#define REGISTER_IMAGE_FORMAT(id, ...) \
  [[maybe_unused]] static const bool registered_image_format_##id = add_image_format(__VA_ARGS__)

// Throws Error if the images of both splits, if there are two, differ in size or channels.
void check_sizes(const ImageSet& set, const std::string& folder);

// Reads a folder of any format. Throws Error if an image is broken, a class has no training image,
// a label is invalid, or no image is for validation, as far as the options require them.
ImageSet read_images(const std::string& folder, const ImageOptions& options);

// Names that are numbers, of any length: 7, 007 and LABEL_7 are all 7.
std::optional<std::string> class_number(std::string_view name);  // its digits, without leading zeros
bool are_numbers(const std::vector<std::string>& classes);  // all are, and all differ
// Throws Error if the names of all classes are numbers and two of them are one number, as 7 and 007 in folders.
void check_numbers(const std::vector<std::string>& classes, const std::string& folder);
// Sorts classes into the order of labels: by number if all are numbers, else by name.
void sort_classes(std::vector<std::string>& classes);

// Labels that classes have in another set of classes.
struct MatchedClasses {
  enum class By { name, number, order } by = By::name;
  std::vector<int32_t> labels = {};  // of each class
};
// Matches `classes` with `others`: in order if they are equal; by name if `others` has all names;
// by number if the names of both are numbers and `others` has all. Otherwise in order (numbers by
// value) if the names of one side are numbers and both sides have equally many classes. Returns
// nothing if no rule applies.
std::optional<MatchedClasses> match_classes(const std::vector<std::string>& classes,
                                            const std::vector<std::string>& others);
struct NamedClasses {
  std::string owner;  // of the classes, in messages: a folder or "the model"
  const std::vector<std::string>& classes;
};
// Adds a sentence about the match, unless it is by name.
void note_match(std::vector<std::string>& notes, const MatchedClasses& matched, const NamedClasses& of,
                const NamedClasses& among);
// Throws Error if a class of `of` is matched by a name that several classes of `among` have.
void check_clear_names(const MatchedClasses& matched, const NamedClasses& of, const NamedClasses& among);
// Returns names that several classes have, with the classes' numbers: 'crane' (134, 517).
std::vector<std::string> shared_names(const std::vector<std::string>& classes);
// Replaces each label l of both splits by labels[l].
void relabel(ImageSet& set, const std::vector<int32_t>& labels);
std::string listed(const std::vector<std::string>& classes);  // the first ones, if there are many

// Names of classes as a JSON object, as a checkpoint stores them. Other JSON throws Error.
std::string save_classes(const std::vector<std::string>& classes);
std::vector<std::string> restore_classes(const std::string& json);

// Resizes images of IDX and CIFAR files to options.size; throws Error if the channels differ,
// unless options.convert_channels is set. Gray = (77 red + 150 green + 29 blue) / 256, as decoded.
Images resized(Images images, const ImageOptions& options, std::string_view name);

}  // namespace orrery::models
