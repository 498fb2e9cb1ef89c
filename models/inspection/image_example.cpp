// An image and its class. The positions of a vision transformer are its class token and the
// patches, by row and column. A convolutional network has one position, the whole image.
#include <cmath>

#include "engine/types/usage_error.h"
#include "models/architectures/vit.h"
#include "models/formats/shown_text.h"
#include "models/inspection/base/inspected_example.h"

namespace orrery::models {
namespace {

class ImageExample final : public InspectedExample {
 public:
  ImageExample(ImageModel& model, const Tensor& pixels, std::vector<std::string> classes, int32_t label)
      : InspectedExample(model), images_(model), pixels_(pixels), classes_(std::move(classes)) {
    check_usage(label < model.classes(), "inspect: --label=", label,
                " is out of range; classes have numbers from 0 to ", model.classes() - 1);
    targets_ = {label};
    const auto* const vit = dynamic_cast<const Vit*>(&model);
    if (!vit) {
      labels_ = {"the image"};
      return;
    }
    patch_ = vit->settings().patch, side_ = vit->settings().image_size / patch_;
    for (int64_t row = 0; row < side_; ++row)
      for (int64_t column = 0; column < side_; ++column) labels_.push_back(text(row, ",", column));
    class_token_ = vit->settings().pooling == "class_token";
    patches_ = labels_;
    if (class_token_) labels_.insert(labels_.begin(), "class");
  }

  std::string target_name(int32_t index) const override {
    const auto at = static_cast<size_t>(index);
    return at < classes_.size() ? for_terminal(classes_[at]) : text("[", index, "]");  // not a class of the data
  }
  const Labels& position_labels(const std::string& path) const override {
    return path.starts_with("patch_embedding") ? patches_ : labels_;  // the class token is added to its output
  }
  // Returns the distance between patch centres, as in Dosovitskiy et al. 2021, appendix D.7.
  double distance(const std::string&, size_t position, size_t key) const override {
    const auto first = static_cast<int64_t>(position) - (class_token_ ? 1 : 0),
               second = static_cast<int64_t>(key) - (class_token_ ? 1 : 0);
    if (first < 0 || second < 0 || side_ == 0) return NAN;
    return static_cast<double>(patch_) * std::hypot(static_cast<double>(first / side_ - second / side_),
                                                    static_cast<double>(first % side_ - second % side_));
  }
  std::string distance_unit() const override { return "pixels"; }
  Tensor image() const override { return pixels_[0]; }

 private:
  Tensor forward(nn::ForwardPass& pass) const override { return images_(pixels_, pass); }
  ImageModel& images_;
  Tensor pixels_;
  std::vector<std::string> classes_;
  Labels labels_, patches_;
  int64_t patch_ = 0, side_ = 0;
  bool class_token_ = false;
};

}  // namespace

std::unique_ptr<InspectedExample> image_example(ImageModel& model, const Tensor& pixels,
                                                std::vector<std::string> classes, int32_t label) {
  return std::make_unique<ImageExample>(model, pixels, std::move(classes), label);
}

}  // namespace orrery::models
