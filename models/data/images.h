// Images to learn: pixels, what each shows, and the names of the classes; a part for training and one for validation.
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
#include "models/data/picture.h"
#include "models/formats/gzip.h"

namespace orrery::models {

struct Images {  // all of one size
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // (count, height, width, channels)
  std::vector<int32_t> labels;  // (count)

  int64_t count() const { return static_cast<int64_t>(labels.size()); }
  int64_t pixels_of_one() const { return height * width * channels; }
  std::span<const uint8_t> image(int64_t i) const {
    return std::span(pixels).subspan(static_cast<size_t>(i * pixels_of_one()), static_cast<size_t>(pixels_of_one()));
  }
  // An Error, beginning with `name`, if it is not of the size of those before.
  void add(const Picture& picture, int32_t label, std::string_view name);
};

struct ImageOptions {
  int64_t size = 0;                  // height and width that images are brought to; 0: they stay as they are
  int64_t channels = 0;              // 1 or 3; 0: as many as the data has
  double validation_fraction = 0.1;  // of each class, at its end, if the data has no part for validation
  bool skip_broken = false;          // leave out a picture that does not decode
  enum class Parts {
    both,      // images to learn and images held out: the data's part for validation, or a fraction
    learned,   // all that there is to learn, whatever is held out
    held_out,  // the part for validation or, if there is none, all
    judged,    // as both, but there may be nothing to learn
  } parts = Parts::both;
  // Whether what there is to learn must be read, once it is known what is held out.
  bool wants_learned(const Images& held_out) const { return parts != Parts::held_out || held_out.count() == 0; }
};

struct ImageSet {
  Images train, validation;
  std::vector<std::string> classes;
  std::vector<std::string> skipped = {};          // what was left out as broken, and why
  std::vector<std::string> notes = {};            // sentences about what else was not read, or not as it was meant
  std::string folder = {};                        // that was read
  std::map<std::string, Fingerprint> files = {};  // in it, by path
  Fingerprint fingerprint() const;                // of all of them, with their names in the folder
  std::optional<Fingerprint> apart = {};          // of what is for validation and was read elsewhere
  // A file, unpacked, and recorded among `files`; of more bytes than `limit` an Error.
  std::string read(const std::string& path, uint64_t limit = largest_unpacked);
};

// A way to lay images into a folder, one file in models/data/images.
struct ImageFormat {
  std::string name, description;
  bool (*reads)(const std::string& folder);  // whether the folder is laid out so
  ImageSet (*read)(const std::string& folder, const ImageOptions& options);
  bool of_any_folder = false;  // reads folders of whatever name: comes after the others
};
Registry<ImageFormat>& image_formats();
bool add_image_format(const ImageFormat& format);  // to the catalogue of data as well
#define REGISTER_IMAGE_FORMAT(id, ...) \
  [[maybe_unused]] static const bool registered_image_format_##id = add_image_format(__VA_ARGS__)

// An Error if images to learn and images held out, of whichever there are, are not alike.
void check_sizes(const ImageSet& set, const std::string& folder);

// Whatever format the folder has.  Errors: an image that is broken, a class without an image to learn, a label beyond
// the classes, no image for validation, as far as they are asked for.
ImageSet read_images(const std::string& folder, const ImageOptions& options);

// A name that is a number: 7, 007 and LABEL_7 are all 7, of any length.
bool are_numbers(const std::vector<std::string>& classes);  // all of them, each another one
// Puts classes into the order that their labels have: of their numbers if all are numbers, else of their names.
void sort_classes(std::vector<std::string>& classes);

// Labels of some classes among others.
struct MatchedClasses {
  enum class By { name, number, order } by = By::name;
  std::vector<int32_t> labels = {};  // of each class
};
// One by one, if they are the same. By their names, if all are there; by their numbers, if both have nothing else and
// all are there. Otherwise classes that are numbers stand for any, in their order, if there are as many. None: the
// classes are others.
std::optional<MatchedClasses> match_classes(const std::vector<std::string>& classes,
                                            const std::vector<std::string>& others);
struct NamedClasses {
  std::string owner;
  const std::vector<std::string>& classes;
};
// A sentence about it, unless all names are the same.
void note_match(std::vector<std::string>& notes, const MatchedClasses& matched, const NamedClasses& of,
                const NamedClasses& among);
// An Error if a class of `of` is matched by a name that several classes of `among` have.
void check_clear_names(const MatchedClasses& matched, const NamedClasses& of, const NamedClasses& among);
// Names that several classes have, with the numbers of these: 'crane' (134, 517).
std::vector<std::string> shared_names(const std::vector<std::string>& classes);
void relabel(ImageSet& set, const std::vector<int32_t>& labels);
std::string listed(const std::vector<std::string>& classes);  // the first ones, if there are many

// The names of classes, as a checkpoint keeps them: a JSON object.
std::string save_classes(const std::vector<std::string>& classes);
std::vector<std::string> restore_classes(const std::string& json);

// Images of a fixed size, as IDX and CIFAR files hold them, brought to options.size; an Error if the channels differ.
Images brought_to(Images images, const ImageOptions& options, std::string_view name);

}  // namespace orrery::models
