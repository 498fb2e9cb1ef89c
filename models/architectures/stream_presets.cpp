// Named sizes of stream models.
#include "models/architectures/stream_model.h"

namespace orrery::models {
namespace {

constexpr const char *bytes = "256", *enwik8 = "205";  // vocabularies, in characters

StreamSettings of_paper(int64_t layers, int64_t width, int64_t heads, const char* attention) {
  StreamSettings s;
  s.layers = layers, s.width = width, s.heads = heads, s.context = 512, s.cache_length = 8192;
  s.d_ff = 2048, s.attention = parse_spec(attention);
  s.bias = true, s.attention_bias = "no";
  return s;
}
StreamSettings small(const char* attention) {
  StreamSettings s;
  s.attention = parse_spec(attention);
  return s;
}
StreamSettings wide(StreamSettings s) {
  s.d_ff = 4096;
  return s;
}
StreamSettings deep(StreamSettings s, int64_t layers) {
  s.layers = layers;
  return s;
}
StreamSettings without_feed_forward(StreamSettings s) {
  s.feed_forward = parse_spec("none");
  return s;
}
void add(const char* name, const char* description, const StreamSettings& settings, int64_t parameters,
         const char* vocabulary) {
  presets().add({name, description, "stream", AnySettings(settings), parameters, {{"vocabulary", vocabulary}}});
}

[[maybe_unused]] const bool registered_presets = [] {
  add("stream-char-small", "characters, adaptive spans up to 256; trains in minutes on a CPU",
      small("softmax(span=adaptive_span(256))"), 862512, bytes);
  add("stream-char-fixed", "stream-char-small with the fixed span of 256", small("softmax(span=fixed(256))"), 862496,
      bytes);
  // Equally many parameters in more layers; the paper has 18 layers instead of 12.
  add("stream-char-all-attention", "stream-char-small with persistent slots instead of feed-forwards, in six layers",
      without_feed_forward(deep(small("softmax(span=adaptive_span(256), persistent=256)"), 6)), 862008, bytes);
  add("adaptive-span-small", "enwik8 and text8, Sukhbaatar et al. 2019",
      of_paper(12, 512, 8, "softmax(span=adaptive_span(8192))"), 38538605, enwik8);
  add("adaptive-span-large", "enwik8 and text8, Sukhbaatar et al. 2019",
      wide(of_paper(24, 768, 8, "softmax(span=adaptive_span(8192))")), 208910317, enwik8);
  add("all-attention-small", "enwik8 and text8, arXiv:1907.01470",
      without_feed_forward(of_paper(18, 512, 8, "softmax(span=adaptive_span(8192), persistent=1024)")), 38501789,
      enwik8);
  add("all-attention-large", "enwik8 and text8, arXiv:1907.01470",
      without_feed_forward(of_paper(36, 512, 8, "softmax(span=adaptive_span(8192), persistent=2048)")), 114017837,
      enwik8);
  return true;
}();

}  // namespace
}  // namespace orrery::models
