// A model of images: pixels (B, H, W, C) of any floating dtype -> logits (B, classes).
#pragma once

#include "nn/base/module.h"

namespace orrery::models {

class ImageModel : public nn::Module {
 public:
  virtual int64_t image_size() const = 0;  // height and width; 0: any
  virtual int64_t channels() const = 0;    // 1: gray, 3: red, green, blue
  virtual int64_t classes() const = 0;     // number of logits
};

}  // namespace orrery::models
