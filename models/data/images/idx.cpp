// IDX, the format of MNIST and Fashion-MNIST: a header of big-endian 32-bit numbers, then bytes.
//   images: 0x00000803, count, height, width, pixels        labels: 0x00000801, count, labels
// LeCun, Cortes and Burges, "The MNIST database of handwritten digits".
#include <set>

#include "engine/system/machine_memory.h"
#include "engine/types/sizes.h"
#include "models/data/images.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

constexpr int64_t max_side = 65536;

struct IdxHeader {
  std::string path;
  std::vector<int64_t> sizes = {};
  uint64_t bytes = 0;     // of the header
  uint64_t contents = 0;  // bytes that the header announces
};
IdxHeader read_header(const std::string& path, uint32_t magic) {
  const size_t axes = magic & 0xff;
  IdxHeader header{.path = path, .bytes = 4 * (1 + axes)};
  std::string begin(header.bytes, '\0');
  begin.resize(DataReader(path).read_up_to(std::as_writable_bytes(std::span(begin))));
  const auto number = [&](size_t i) {
    check(begin.size() >= 4 * (i + 1), "images: ", path, " ends within its header");
    uint32_t value = 0;
    for (size_t k = 4 * i; k < 4 * (i + 1); ++k) value = value << 8 | static_cast<unsigned char>(begin[k]);
    return value;
  };
  check(number(0) == magic, "images: ", path, " begins with ", number(0), "; an IDX file of ",
        magic == 0x801 ? "labels" : "images", " begins with ", magic);
  int64_t count = 1;
  for (size_t i = 1; i <= axes; ++i) {
    header.sizes.push_back(number(i));
    count = product_of_sizes(text("images: ", path, ": its size"), {count, header.sizes.back()});
  }
  header.contents = static_cast<uint64_t>(count);
  return header;
}
// Returns a file with its header; unpacks no more than the header announces.
std::string read_contents(ImageSet& set, const IdxHeader& header) {
  const double both = 2 * static_cast<double>(header.contents);  // as bytes and as pixels
  check_memory("images: " + header.path, both, "use fewer images");
  constexpr uint64_t packing = 1 << 16;  // packing can enlarge a small file
  std::string bytes = set.read(header.path, header.bytes + header.contents + packing);
  check(bytes.size() == header.bytes + header.contents, "images: ", header.path, " has ", bytes.size() - header.bytes,
        " bytes after its header, but the header states ", header.contents);
  return bytes;
}

Images read_split(ImageSet& set, const std::string& pixels, const std::string& labels, const ImageOptions& options) {
  const IdxHeader of_pixels = read_header(pixels, 0x803), of_labels = read_header(labels, 0x801);
  const std::vector<int64_t>& sizes = of_pixels.sizes;
  const int64_t count = of_labels.sizes[0];
  check(sizes[0] == count, "images: number of images in ", pixels, " is ", sizes[0], ", but number of labels in ",
        labels, " is ", count, "; both must be equal");
  check(sizes[1] >= 1 && sizes[2] >= 1 && sizes[1] <= max_side && sizes[2] <= max_side, "images: ", pixels,
        ": its images have ", sizes[1], " x ", sizes[2], " pixels; height and width must be 1 to ", max_side);
  const std::string all_labels = read_contents(set, of_labels), all_pixels = read_contents(set, of_pixels);
  const auto content = [](const std::string& bytes, const IdxHeader& header) {
    return std::string_view(bytes).substr(header.bytes);
  };
  const std::string_view pixels_alone = content(all_pixels, of_pixels);
  Images images{sizes[1], sizes[2], 1, {pixels_alone.begin(), pixels_alone.end()}, {}};
  for (const char label : content(all_labels, of_labels)) images.labels.push_back(static_cast<unsigned char>(label));
  return resized(std::move(images), options, pixels);
}

// Returns all files with this content that exist; the first one is read.
std::vector<std::string> split_files(const std::string& folder, const std::string& split, const std::string& what) {
  return find_data_files(folder, {split + "-" + what + "-ubyte", split + "-" + what.substr(0, what.find('-')) + "." +
                                                                     what.substr(what.find('-') + 1) + "-ubyte"});
}

// Names the classes by the numbers that occur as labels: MNIST's 0 to 9, EMNIST letters' 1 to 26.
void number_classes(ImageSet& set, const std::string& folder) {
  const std::vector<int32_t>& known = set.train.count() > 0 ? set.train.labels : set.validation.labels;
  const std::set<int32_t> numbers(known.begin(), known.end());
  for (const int32_t number : numbers) set.classes.push_back(std::to_string(number));
  for (Images* const images : {&set.train, &set.validation})
    for (int32_t& label : images->labels) {
      const auto found = numbers.find(label);
      check(found != numbers.end(), "images: ", folder, ": a validation image has label ", label,
            ", which no training image has; training labels: ", listed(set.classes));
      label = static_cast<int32_t>(std::distance(numbers.begin(), found));
    }
}

ImageSet read_idx(const std::string& folder, const ImageOptions& options) {
  ImageSet set;
  for (const auto& [split, images] : {std::pair{"t10k", &set.validation}, {"train", &set.train}}) {
    const auto pixels = split_files(folder, split, "images-idx3"), labels = split_files(folder, split, "labels-idx1");
    if (pixels.empty() || (images == &set.train && !options.needs_training_split(set.validation))) continue;
    check(!labels.empty(), "images: ", folder, " has ", split, "-images-idx3-ubyte, but no ", split,
          "-labels-idx1-ubyte; add it");
    *images = read_split(set, pixels[0], labels[0], options);
    for (const auto& files : {pixels, labels})
      for (size_t i = 1; i < files.size(); ++i) set.notes.push_back(text(files[0], " is read, but not ", files[i]));
  }
  number_classes(set, folder);
  return set;
}

REGISTER_IMAGE_FORMAT(idx, {.name = "idx",
                            .description = "train-images-idx3-ubyte and train-labels-idx1-ubyte, and the same for t10k "
                                           "for validation; .gz too",
                            .reads =
                                [](const std::string& folder) {
                                  return !split_files(folder, "train", "images-idx3").empty() ||
                                         !split_files(folder, "t10k", "images-idx3").empty();
                                },
                            .read = read_idx});

}  // namespace
}  // namespace orrery::models
