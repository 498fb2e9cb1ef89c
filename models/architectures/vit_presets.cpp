// Named sizes of vision transformers: those of Dosovitskiy et al. 2021, arXiv:2010.11929 (S:
// Steiner et al. 2021, arXiv:2106.10270), for ImageNet, and small ones that train in minutes.
#include "models/architectures/vit.h"

namespace orrery::models {
namespace {

VitSettings sized(int64_t layers, int64_t width, int64_t heads, int64_t patch) {
  VitSettings s;
  s.layers = layers, s.width = width, s.heads = heads, s.patch = patch;
  return s;
}

void add_published(const char* name, VitSettings s, int64_t parameters) {
  s.image_size = 224, s.channels = 3, s.classes = 1000, s.pooling = "class_token";
  s.normalization = parse_spec("layer(epsilon=1e-6)");
  presets().add({name, "224 x 224 pixels, 1,000 classes, class token", "vit", AnySettings(s), parameters});
}

void add_small(const char* name, const char* description, const VitSettings& s, const char* size, const char* channels,
               int64_t parameters) {
  presets().add({name,
                 description,
                 "vit",
                 AnySettings(s),
                 parameters,
                 {{"image_size", size}, {"channels", channels}, {"classes", "10"}}});
}

}  // namespace

[[maybe_unused]] static const bool registered_vit_presets = [] {
  add_published("vit-s32", sized(12, 384, 6, 32), 22878952);
  add_published("vit-s16", sized(12, 384, 6, 16), 22050664);
  add_published("vit-s8", sized(12, 384, 6, 8), 22055272);
  add_published("vit-b16", sized(12, 768, 12, 16), 86567656);
  add_published("vit-l16", sized(24, 1024, 16, 16), 304326632);
  add_small("vit-fashion", "28 x 28 pixels, gray; trains in minutes on a CPU", sized(4, 96, 4, 4), "28", "1", 454858);
  add_small("vit-cifar", "32 x 32 pixels, in color; trains in minutes on a CPU", sized(6, 128, 4, 4), "32", "3",
            1205642);
  return true;
}();

}  // namespace orrery::models
