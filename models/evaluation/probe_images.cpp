// Images of a probe, of any image format, at the model's size and with its channels: shots from the
// training split, tests from the other one.
#include <algorithm>

#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "models/data/image_batches.h"
#include "models/data/images.h"
#include "models/evaluation/few_shot.h"

namespace orrery::models {
namespace {

constexpr int64_t pixels_per_batch = 1 << 18, min_batch = 8, max_batch = 256;

class ProbeImages final : public ProbeExamples {
 public:
  ProbeImages(const ProbeData& from, int64_t channels)
      : set_(read(from, channels, notes)), scale_(from.pixel_mean, from.pixel_std, channels) {
    owner = from.data, classes = set_.classes;
    train_labels = set_.train.labels, test_labels = set_.validation.labels;
    notes.insert(notes.end(), set_.notes.begin(), set_.notes.end());
    if (!set_.skipped.empty())
      notes.push_back(text(set_.skipped.size(), set_.skipped.size() == 1 ? " broken image of " : " broken images of ",
                           owner, " left out; the first: ", set_.skipped[0]));
  }

  Tensor features(const FeatureReader& read, Split split, std::span<const int64_t> indices,
                  const std::function<void(size_t)>& progress) const override {
    const Images& images = split == Split::train ? set_.train : set_.validation;
    const int64_t at_once = std::clamp(pixels_per_batch / (images.height * images.width), min_batch, max_batch);
    std::vector<Tensor> parts;
    for (size_t begin = 0; begin < indices.size(); begin += static_cast<size_t>(at_once)) {
      const size_t count = std::min(static_cast<size_t>(at_once), indices.size() - begin);
      parts.push_back(read(images_at(images, scale_, indices.subspan(begin, count)).pixels));
      progress(begin + count);
    }
    return concatenate(parts, 0);
  }

 private:
  static ImageSet read(const ProbeData& from, int64_t channels, std::vector<std::string>& notes) {
    using Splits = ImageOptions::Splits;
    const bool separate = !from.test_data.empty();
    ImageOptions wanted{.size = from.image_size,
                        .channels = channels,
                        .convert_channels = true,
                        .validation_fraction = from.test_fraction,
                        .skip_broken = from.skip_broken,
                        .splits = separate ? Splits::training : Splits::both};
    ImageSet set = read_images(from.data, wanted);
    if (!separate) return set;
    wanted.splits = Splits::held_out;
    ImageSet tests = read_images(from.test_data, wanted);
    const auto matched = match_classes(tests.classes, set.classes);
    check(matched.has_value(), "evaluate: ", from.test_data, " has classes ", listed(tests.classes), ", but ",
          from.data, " has classes ", listed(set.classes), "; use test images of the latter classes");
    const NamedClasses of{from.test_data, tests.classes}, among{from.data, set.classes};
    check_clear_names(*matched, of, among);
    note_match(notes, *matched, of, among);
    relabel(tests, matched->labels);
    set.validation = std::move(tests.validation);
    set.notes.insert(set.notes.end(), tests.notes.begin(), tests.notes.end());
    set.skipped.insert(set.skipped.end(), tests.skipped.begin(), tests.skipped.end());
    return set;
  }

  ImageSet set_;
  PixelScale scale_;
};

}  // namespace

std::unique_ptr<ProbeExamples> probe_images(const ProbeData& from, int64_t channels) {
  return std::make_unique<ProbeImages>(from, channels);
}

}  // namespace orrery::models
