// Sizes of GPTs that have a name.
#include "models/gpt.h"

namespace orrery::models {

[[maybe_unused]] static const bool registered_presets = [] {
  GptSettings small, medium, gpt2;
  small.layers = 4, small.heads = 4, small.width = 128, small.context = 64;
  medium.layers = 6, medium.heads = 6, medium.width = 384, medium.context = 256;
  gpt2.layers = 12, gpt2.heads = 12, gpt2.width = 768, gpt2.context = 1024, gpt2.vocabulary = 50257, gpt2.bias = true;
  const auto add = [](const char* name, const char* description, const GptSettings& settings, int64_t parameters,
                      const char* vocabulary) {
    presets().add({name, description, "gpt", AnySettings(settings), parameters, {{"vocabulary", vocabulary}}});
  };
  add("gpt-char-small", "characters, trains in about a minute on a CPU", small, 805248, "65");
  add("gpt-char-medium", "characters, nanoGPT's Shakespeare model", medium, 10750080, "65");
  add("gpt2-124m", "the smallest GPT-2", gpt2, 124439808, "50257");
  return true;
}();

}  // namespace orrery::models
