// The binary files of CIFAR-10: records of 3,073 bytes, a label and 32 x 32 pixels as a plane of
// red, one of green and one of blue. Krizhevsky 2009, "Learning multiple layers of features from
// tiny images".
#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "engine/system/files.h"
#include "engine/system/machine_memory.h"
#include "engine/types/ascii.h"
#include "models/data/images.h"
#include "models/data/lines.h"

namespace orrery::models {
namespace {

constexpr int64_t side = 32, channels = 3, plane = side * side, record = 1 + channels * plane;
constexpr size_t default_classes = 10;
constexpr uint64_t max_names_bytes = 1 << 16;  // bytes; a label is a byte, so there are at most 256 names

struct Batches {
  std::vector<std::string> read, unused;  // paths
};
// Finds data_batch.bin, or with a suffix as in data_batch_1.bin; copies made by a file manager have
// other names. If a file exists packed and unpacked, the first is read.
Batches batches_named(const std::string& folder, const std::string& begin) {
  Batches batches;
  std::set<std::string> words;
  for (const std::string& path : files_in(folder)) {
    std::string name = std::filesystem::path(path).filename().string();
    if (!name.starts_with(begin) || !ends_with_or_packed(name, ".bin")) continue;
    name.resize(name.rfind(".bin"));
    const std::string word = name.substr(begin.size());
    const bool known = word.empty() || (word.size() > 1 && word[0] == '_' &&
                                        std::all_of(word.begin() + 1, word.end(), is_letter_or_digit));
    (known && words.insert(word).second ? batches.read : batches.unused).push_back(path);
  }
  return batches;
}

void read_records(ImageSet& set, const std::string& path, Images& images) {
  const std::string bytes = set.read(path);
  check(bytes.size() % record == 0, "images: ", path, " has ", bytes.size(), " bytes; the size must be a multiple of ",
        record, ", the bytes of a record");
  check_memory("images: " + path, static_cast<double>(bytes.size() + images.pixels.size()), "use fewer images");
  images.pixels.reserve(images.pixels.size() + bytes.size());
  const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
  for (const uint8_t* const end = from + bytes.size(); from < end; from += record) {
    images.labels.push_back(*from);
    for (int64_t pixel = 0; pixel < plane; ++pixel)
      for (int64_t c = 0; c < channels; ++c) images.pixels.push_back(from[1 + c * plane + pixel]);
  }
}

Images read_split(ImageSet& set, const std::string& folder, const std::string& begin, const ImageOptions& options) {
  Images images{side, side, channels, {}, {}};
  const Batches batches = batches_named(folder, begin);
  for (const std::string& path : batches.read) read_records(set, path, images);
  for (const std::string& path : batches.unused)
    set.notes.push_back(text(path, " is left out; ", begin, "_N.bin is read once for each N, packed or not"));
  return images.labels.empty() ? Images() : resized(std::move(images), options, folder);
}

std::vector<std::string> class_names(ImageSet& set, const std::string& folder) {
  std::vector<std::string> names;
  if (const std::string path = find_data_file(folder, {"batches.meta.txt"}); !path.empty()) {
    std::istringstream all(set.read(path, max_names_bytes));
    each_line(all, "images: " + path, [&](std::string_view name) {
      if (!name.empty()) names.emplace_back(name);
    });
  }
  for (size_t i = 0; names.empty() && i < default_classes; ++i) set.classes.push_back(std::to_string(i));
  return names.empty() ? set.classes : names;
}

ImageSet read_cifar(const std::string& folder, const ImageOptions& options) {
  ImageSet set;
  set.classes = class_names(set, folder);
  set.validation = read_split(set, folder, "test_batch", options);
  if (options.needs_training_split(set.validation)) set.train = read_split(set, folder, "data_batch", options);
  return set;
}

REGISTER_IMAGE_FORMAT(cifar, {.name = "cifar",
                              .description = "CIFAR-10's data_batch_N.bin, and test_batch.bin for validation; class "
                                             "names in batches.meta.txt; .gz too",
                              .reads =
                                  [](const std::string& folder) {
                                    return !batches_named(folder, "data_batch").read.empty() ||
                                           !batches_named(folder, "test_batch").read.empty();
                                  },
                              .read = read_cifar});

}  // namespace
}  // namespace orrery::models
