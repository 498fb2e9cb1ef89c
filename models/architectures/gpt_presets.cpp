// Named decoders, with the sizes and conventions of their publishers.
#include "models/architectures/gpt.h"
#include "models/former_names.h"

namespace orrery::models {
namespace {

void add(const char* name, const char* description, const GptSettings& settings, int64_t parameters,
         const char* vocabulary) {
  presets().add({name, description, "gpt", AnySettings(settings), parameters, {{"vocabulary", vocabulary}}},
                former_names(name));
}

GptSettings of_size(int64_t layers, int64_t heads, int64_t width, int64_t context) {
  GptSettings s;
  s.layers = layers, s.heads = heads, s.width = width, s.context = context;
  return s;
}

// Radford et al. 2019; their released configurations.
GptSettings gpt2(int64_t layers, int64_t heads, int64_t width) {
  GptSettings s = of_size(layers, heads, width, 1024);
  s.vocabulary = 50257, s.bias = true;
  return s;
}

// Touvron et al. 2023, arXiv:2302.13971, in the sizes that Karpathy trained on TinyStories
// (llama2.c). Its rotary positions rotate adjacent channels.
GptSettings llama2c(int64_t layers, int64_t heads, int64_t width, int64_t context, int64_t d_ff) {
  GptSettings s = of_size(layers, heads, width, context);
  s.vocabulary = 32000, s.d_ff = d_ff;
  s.normalization = parse_spec("rms(epsilon=1e-5)"), s.feed_forward = parse_spec("gated(silu)");
  s.position = parse_spec("rotary(pairs=interleaved)");
  return s;
}

// Zhu et al. 2025, arXiv:2503.10622, for models far below their smallest: tanh(alpha x) in the
// blocks alone, with a large initial alpha, and a final layer normalization. Validation losses of
// four layers of width 64: 1.91 with alpha = 4, 1.92 with 2, 1.94 with layer normalization, 2.20 at
// best with DyT before the head too (characters of Shakespeare, rotary, 1,000 steps at 3e-3).
GptSettings dyt_small() {
  GptSettings s = of_size(4, 4, 128, 64);
  s.normalization = parse_spec("dyt(alpha=4)"), s.final_normalization = parse_spec("layer");
  s.embedding_scale = parse_spec("learned"), s.position = parse_spec("rotary");
  return s;
}

// Jha and Reagen 2024, ReLU's Revival, arXiv:2410.09637: GPT-2 with 128 tokens. Its labels name the
// nonlinearities: SM softmax, LN layer norm in the blocks, G GELU, R ReLU. Biases of queries and
// keys alone, no dropout, no smaller start of output matrices; the final normalization stays.
GptSettings revival(const char* normalization, const char* activation) {
  GptSettings s = of_size(12, 12, 768, 128);
  s.normalization = parse_spec(normalization), s.final_normalization = parse_spec("layer");
  s.feed_forward = Spec{"dense", {{"", parse_spec(activation)}}};
  s.attention_bias = "query_key", s.initialization = parse_spec("relu_revival");
  return s;
}
void add_revival() {
  constexpr int64_t with = 123687168, without = 123650304;  // parameters, with layer norm in the blocks or without
  add("pre-ln-gelu", "SM+LN+G of Jha and Reagen: GPT-2 with GELU", revival("layer", "gelu"), with, "50257");
  add("pre-ln-relu", "SM+LN+R of Jha and Reagen: pre-ln-gelu with ReLU", revival("layer", "relu"), with, "50257");
  add("pre-ln-identity", "SM+LN of Jha and Reagen: pre-ln-gelu without an activation", revival("layer", "identity"),
      with, "50257");
  add("norm-free-gelu", "SM+G of Jha and Reagen: GPT-2 with GELU, without normalization in the blocks",
      revival("none", "gelu"), without, "50257");
  add("norm-free-relu", "SM+R of Jha and Reagen: norm-free-gelu with ReLU", revival("none", "relu"), without, "50257");
  add("norm-free-identity", "SM of Jha and Reagen: norm-free-gelu without an activation", revival("none", "identity"),
      without, "50257");
  GptSettings leaky = revival("none", "leaky_relu_learned");
  add("norm-free-leaky-per-layer", "norm-free-gelu with leaky ReLU, one learned slope per layer", leaky,
      without + leaky.layers, "50257");
  leaky.shared_activation = true;
  add("norm-free-leaky-global", "norm-free-gelu with leaky ReLU, one learned slope for all layers", leaky, without + 1,
      "50257");
}

[[maybe_unused]] const bool registered_presets = [] {
  add("gpt-char-small", "characters; trains in about a minute on a CPU", of_size(4, 4, 128, 64), 805248, "65");
  add("gpt-char-medium", "characters; nanoGPT's Shakespeare model", of_size(6, 6, 384, 256), 10750080, "65");
  add("gpt-char-dyt", "gpt-char-small with DyT in its blocks, rotary positions", dyt_small(), 797065, "65");
  add("gpt2-124m", "the smallest GPT-2", gpt2(12, 12, 768), 124439808, "50257");
  add("gpt2-355m", "GPT-2, the second size", gpt2(24, 16, 1024), 354823168, "50257");
  add("gpt2-774m", "GPT-2, the third size", gpt2(36, 20, 1280), 774030080, "50257");
  add("llama2c-15m", "LLaMA of llama2.c's stories15M", llama2c(6, 6, 288, 256, 768), 15191712, "32000");
  add("llama2c-42m", "LLaMA of llama2.c's stories42M", llama2c(8, 8, 512, 1024, 1376), 41689600, "32000");
  add("llama2c-110m", "LLaMA of llama2.c's stories110M", llama2c(12, 12, 768, 1024, 2048), 109529856, "32000");
  add_revival();
  return true;
}();

}  // namespace
}  // namespace orrery::models
