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
    v("text", text, "input text of a language model; FILE:PATH: of a file or pipe; -: of standard input");
    v("image", image, "input image of an image model: a PNG or JPEG file");
    v("label", label, "class of the image, from 0; -1: unknown", between(-1, 1e6));
    v("source", source, "sentence for a translation model to translate");
    v("target", target,
      "translation of the source that the decoder reads; if not given, the model's greedy translation");
  }
  bool given() const { return !text.empty() || !image.empty() || !source.empty(); }
};

}  // namespace orrery::models
