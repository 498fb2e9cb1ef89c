// The example that a user gives to an analysis.
#pragma once

#include <string>

#include "engine/settings/spec.h"

namespace orrery::models {

struct ExampleSettings {
  std::string text, image, source, target;
  int64_t label = -1;

  template <class V>
  void visit(V& v) {
    v("text", text, "of a model of texts: what it reads; FILE:path takes it from a file");
    v("image", image, "of a model of images: a PNG or JPEG file");
    v("label", label, "its class, as a number from 0; -1: not known", between(-1, 1e6));
    v("source", source, "of a translator: the sentence that it reads");
    v("target", target, "and the one that it writes; none: its own greedy translation");
  }
  bool given() const { return !text.empty() || !image.empty() || !source.empty(); }
};

}  // namespace orrery::models
