// A model of images: pixels (B, H, W, C) of any floating dtype -> logits (B, classes).
#pragma once

#include <string_view>

#include "engine/types/check.h"
#include "nn/base/module.h"

namespace orrery::models {

class ImageModel : public nn::Module {
 public:
  virtual int64_t image_size() const = 0;  // height and width; 0: any
  virtual int64_t channels() const = 0;    // 1: gray, 3: red, green, blue
  virtual int64_t classes() const = 0;     // number of logits
};

// Checks a setting that is 0 until training reads the images, such as `classes`.
inline void check_size_from_images(std::string_view model, std::string_view setting, int64_t size) {
  check(size >= 1, model, ": ", setting, " is ", size,
        "; it must be at least 1; set it, or train on images, which set it");
}

}  // namespace orrery::models
