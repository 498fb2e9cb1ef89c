// Training images in formats of one or a few files: IDX, CIFAR records, an image file, gzip.
#include "models/data/images.h"

#include "models/data/image_file_tally.h"
#include "models/formats/gzip.h"
#include "tests/fuzz/format.h"
#include "tests/support/png.h"

namespace {

using namespace fuzz;
using namespace orrery::models;

void promise_whole(const ImageSet& set) {
  for (const Images* const split : {&set.train, &set.validation}) {
    promise(static_cast<int64_t>(split->pixels.size()) == split->count() * split->pixels_per_image(),
            "pixels are missing");
    for (const int32_t label : split->labels)
      promise(label >= 0 && label < static_cast<int32_t>(set.classes.size()), "a label without a class");
  }
}

void read_gzip(const std::string& folder, std::string_view bytes) {
  put(folder + "/data", bytes);
  const std::string found = read_data_file(folder + "/data");
  promise(is_gzip(bytes) || found == bytes, "a file that is not gzip is changed");
}
REGISTER_FORMAT(gzip, {.name = "gzip",
                       .readers = {"models/formats/gzip.cpp", "models/formats/gzip.h"},
                       .read = read_gzip,
                       .memory_multiple = 2 * 1032 + 16,
                       .memory_base = 1 << 21,
                       .words = {"\x1f\x8b", std::string("\x1f\x8b\x08\0", 4), "\x03", std::string(4, '\0')}});

// The bytes are the images; labels are 0, 1, 0, 1, ...
void read_idx(const std::string& folder, std::string_view bytes) {
  const int count = bytes.size() > 7 ? static_cast<unsigned char>(bytes[7]) : 1;
  std::string labels = std::string("\0\0\x08\x01\0\0\0", 7) + static_cast<char>(count);
  for (int i = 0; i < count; ++i) labels.push_back(static_cast<char>(i % 2));
  put(folder + "/train-images-idx3-ubyte", bytes);
  put(folder + "/train-labels-idx1-ubyte", labels);
  promise_whole(read_images(folder, {.validation_fraction = 0.5}));
}
REGISTER_FORMAT(idx, {.name = "idx",
                      .readers = {"models/data/images/idx.cpp", "models/data/images.cpp"},
                      .read = read_idx,
                      .memory_multiple = 1032 * 8,
                      .memory_base = 1 << 21,
                      .words = {std::string("\0\0\x08\x03", 4), std::string("\0\0\x08\x01", 4),
                                std::string("\0\0\0\1", 4), std::string("\0\0\0\2", 4), "\xff\xff\xff\xff"}});

void read_classes(const std::string&, std::string_view bytes) {
  const std::vector<std::string> classes = restore_classes(std::string(bytes));
  promise(!classes.empty(), "no classes");
  promise(restore_classes(save_classes(classes)) == classes, "saved classes are restored differently");
}
REGISTER_FORMAT(classes, {.name = "classes",
                          .readers = {"models/data/images.cpp"},
                          .read = read_classes,
                          .memory_multiple = 256,
                          .memory_base = 1 << 20,
                          .words = {"{\"classes\":", "[", "]", "\"\\u0000\"", "\"\\ud800\"", ",", "null", "[["}});

void read_one_image(const std::string& folder, std::string_view bytes) {
  put(folder + "/image.png", orrery::testing::with_chunk_sums(bytes));
  const int orientation = exif_orientation(bytes);
  promise(orientation >= 1 && orientation <= 8, "an invalid orientation");
  for (const int64_t channels : {1, 3}) {
    const DecodedImage image = read_image(folder + "/image.png", channels);
    promise(static_cast<int64_t>(image.pixels.size()) == image.height * image.width * channels, "pixels are missing");
    promise(center_square(image, 3).pixels.size() == static_cast<size_t>(9 * channels), "the square has other pixels");
  }
}
REGISTER_FORMAT(image,
                {.name = "image",
                 .readers = {"models/data/decoded_image.cpp", "models/data/image_file_tally.cpp"},
                 .read = read_one_image,
                 .memory_multiple = 8 * 1032 * 24,  // bytes per pixel: 3 of u8, and the memory that the decoder uses
                 .memory_base = 1 << 21,
                 .words = {"\x89PNG\r\n\x1a\n", "IHDR", "IDAT", "PLTE", "tRNS", "IEND", "\xff\xd8", "\xff\xc0",
                           "\xff\xc2", "\xff\xc4", "\xff\xda", "\xff\xdb", "\xff\xdd", "\xff\xd9", "JFIF", "\xff\xe1",
                           std::string("Exif\0\0MM\0\x2a\0\0\0\x08\0\1\1\x12", 18), "eXIf"}});

}  // namespace
