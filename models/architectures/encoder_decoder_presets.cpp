// Named sizes of encoder-decoders.
#include "models/architectures/encoder_decoder.h"

namespace orrery::models {

[[maybe_unused]] static const bool registered_presets = [] {
  EncoderDecoderSettings small, iwslt, base;
  small.layers = 3, small.heads = 4, small.width = 192, small.context = 128;
  iwslt.layers = 6, iwslt.heads = 4, iwslt.width = 512, iwslt.d_ff = 1024, iwslt.context = 1024;
  iwslt.norm_place = "post", iwslt.dropout = 0.3;
  base.layers = 6, base.heads = 8, base.width = 512, base.d_ff = 2048, base.context = 1024;
  base.norm_place = "post", base.dropout = 0.1;
  EncoderDecoderSettings relu_former = iwslt;
  relu_former.attention = parse_spec("relu_former");
  const auto add = [](const char* name, const char* description, const EncoderDecoderSettings& settings,
                      int64_t parameters, const char* vocabulary) {
    presets().add(
        {name, description, "encoder_decoder", AnySettings(settings), parameters, {{"vocabulary", vocabulary}}});
  };
  add("translation-small", "short sentences; trains in minutes on a CPU", small, 4267776, "6000");
  add("transformer-iwslt", "fairseq's size for IWSLT14, post-norm", iwslt, 36663296, "10000");
  add("relu_former-iwslt", "transformer-iwslt with variance-reduced ReLU in all three attentions", relu_former,
      36663368, "10000");
  add("transformer-base", "the base size of Vaswani et al. 2017, post-norm", base, 63082496, "37000");
  return true;
}();

}  // namespace orrery::models
