// Attentions: what a block reads from its context.
//
// Every attention but gau is a rule, which turns queries, keys and values into what is read, inside the same layer:
//
//   q = x W_q,  k = c W_k,  v = c W_v          c = x, or another sequence in cross attention
//   q, k <- normalized (qk_norm), turned (rotary)
//   o = rule(q, k, v; terms of the distance, span, persistent slots, masks)
//   y = (F(x W_g) o) W_o + r                   F(x W_g): the gate, if there is one
//
// A stream is read block by block: with a cache of states, k and v are projected from [x of the blocks before, x],
// whose first part is a constant, as far back as the span reaches.
//
// A rule is one file: a class derived from AttentionLayer with `read`, a list of what it can be combined with, and one
// line REGISTER_ATTENTION(Type).
#pragma once

#include "nn/attentions/base/fused.h"
#include "nn/base/entry.h"
#include "nn/base/sublayer.h"
#include "nn/layers/initial_weights.h"
#include "nn/layers/linear.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {

struct AttentionLayerOptions {
  int64_t width;          // in and out
  int64_t heads;          // query heads
  int64_t key_heads = 0;  // key/value heads, each shared by heads / key_heads query heads; 0: as many as heads
  int64_t head_size = 0;  // 0: width / heads
  bool causal = true;
  bool bias = true;
  bool query_key_bias = false;  // queries and keys have biases of their own, from 0, whatever `bias` says of the rest
  int64_t layers = 1;  // of the model: the more, the smaller the output projection starts
  InitialWeights initial_weights = {};
  int64_t context = 0;                 // the most tokens, of a cache too; 0: unknown
  const Position* position = nullptr;  // of the model, which outlives the attention
  // Not 0: cross attention, which reads pass.memory (B, Tk, memory_width), sees all of it within pass.memory_lengths
  // and pass.memory_document_ids, and turns its keys (rotary) by their places in the memory.
  int64_t memory_width = 0;
};

// Settings of the layer, which every attention's spec takes after its own.
struct AttentionSettings {
  Spec gate = parse_spec("none"), qk_norm = parse_spec("none");
  double scale = 0, dropout = 0;
  std::string attend_to_self = "default";
  Spec span = parse_spec("none"), persistent = parse_spec("none");

  template <class V>
  void visit(V& v) {
    v("gate", gate, "F: what is read is multiplied by F(x W_g)");
    v("qk_norm", qk_norm, "normalization of queries and keys over the head size: none, layer, rms, ...");
    v("scale", scale, "factor of the scores; 0: 1 / sqrt(head size)", zero_or(tiny, 1e6));
    v("dropout", dropout, "fraction of the weights set to zero while training", fraction());
    v("attend_to_self|own", attend_to_self, "whether a token sees itself; default: yes, but no under a span",
      one_of({"default", "yes", "no"}));
    v("span", span, "how far back a head reads: none, fixed(S), adaptive_span(S, R=32), dynamic_span(S, R=32)");
    v("persistent", persistent, "learned keys and values beside the context: none, N, slots(N, split=no, scaled=yes)");
  }
};

// What a rule can be combined with; the rest is refused at construction with a sentence that begins with its name.
struct AttentionAbilities {
  bool dropout = true, distance_terms = true, span = true, slots = true, cross = true;
};

class Span;
class Slots;

class AttentionLayer : public Sublayer {
 public:
  AttentionLayer(std::string_view name, const AttentionSettings& settings, const AttentionLayerOptions& options,
                 const AttentionAbilities& abilities);
  ~AttentionLayer() override;
  Tensor forward_onto(const Tensor& x, const Tensor& residual, Pass& pass) final;
  // The layer between its projections: what queries (B, Tq, H, D) read from keys (B, Tk, Hk, D) and values (B, Tk, Hk,
  // Dv), as (B, Tq, H Dv).  The tokens x (B, Tq, width) that ask are for a gate and a dynamic span.
  Tensor read_heads(AttentionInputs inputs, const Tensor& x, Pass& pass);
  bool reads_memory() const { return options_.memory_width != 0; }  // cross attention
  void visit(Visitor& v) override;  // a rule with parameters of its own visits them too

 protected:
  // (B, Tq, H, Dv).  With split slots this is called twice, for the context and for the slots as the only keys.
  virtual Tensor read(const AttentionInputs& inputs, const AttentionOptions& options, Pass& pass) = 0;
  // (B, H, Tq, Tk + N), for those who watch; an undefined tensor if the rule has no weights.
  virtual Tensor weights(const AttentionInputs& inputs, const AttentionOptions& options) = 0;
  // What the rule makes of sum_j w_ij v_j, (B, Tq, H, Dv), as the last part of `read`.
  virtual Tensor finish(const Tensor& sums) { return sums; }
  int64_t heads() const { return options_.heads; }
  int64_t head_size() const { return head_size_; }

 private:
  Tensor by_head(const Tensor& x, int64_t heads) const;
  AttentionOptions span_limits() const;
  int64_t within_window(int64_t distances) const;
  AttentionInputs project(const Tensor& x, Pass& pass);
  void go_on_with_stream(const Tensor& x, AttentionInputs& inputs, Pass& pass);
  void add_terms(const Tensor& x, AttentionInputs& inputs, Pass& pass) const;
  AttentionOptions options_of(const AttentionInputs& inputs, const Pass& pass) const;
  struct Part {
    AttentionInputs inputs;
    AttentionOptions options;
  };
  std::vector<Part> parts_of(const AttentionInputs& inputs, const AttentionOptions& options) const;
  std::vector<Tensor> hooked_weights(const std::vector<Part>& parts);
  void show_rows(const Tensor& weights, const AttentionInputs& inputs, const AttentionOptions& options) const;
  Tensor read_all(const AttentionInputs& inputs, const AttentionOptions& options, Pass& pass);

  std::string name_;
  AttentionSettings settings_;
  AttentionLayerOptions options_;
  int64_t key_heads_, head_size_;
  bool attend_to_self_;
  std::unique_ptr<Linear> query_key_value_, query_, key_value_;  // the first, or the two others in cross attention
  Parameter query_bias_, key_bias_;  // undefined unless query_key_bias
  std::unique_ptr<Module> query_norm_, key_norm_;
  std::optional<Activation> gate_function_;
  std::unique_ptr<Linear> gate_;
  std::unique_ptr<Span> span_;
  std::unique_ptr<Slots> slots_;
  Linear output_;
};

// Errors if the pass has a cache from which this attention, `name`, cannot go on.
void check_cache(std::string_view name, const Pass& pass, bool causal);
// With a cache in the pass: puts the keys and values of the tokens before in front, and keeps them for the next pass,
// under the path of `attention`.  If not 0, keys at a distance of `reach` and beyond are masked for all: they are
// dropped, in steps of 64, and `inputs` may begin with fewer keys than there were tokens.  Of a cache of states: Error.
void continue_from_cache(const Module& attention, AttentionInputs& inputs, Pass& pass, int64_t reach = 0);
// The position's terms of the scores, in the dtypes that attention takes; `position` may be null.
void add_distance_terms(const Position* position, int64_t distances, AttentionInputs& inputs);

// What the layer's settings add to any attention: one for each that has a formula.
const std::vector<Info>& attention_settings();

using AttentionEntry = Entry<Sublayer, const AttentionLayerOptions&>;
Registry<AttentionEntry>& attentions();
std::unique_ptr<Sublayer> make_attention(const Spec& spec,
                                         const AttentionLayerOptions& options);  // "softmax(dropout=0.1)"
Spec resolved_attention(const Spec& spec);  // with all settings by name, those of a span and of slots too

// Gradient cases of whole layers for each spec: causal, full with lengths, packed documents with grouped key heads,
// cross (where the rule can), at odd sizes, each against the same layer by simple operations.  Specs that differ in a
// setting of the layer only need not be listed for every rule.
bool add_attention_cases(std::string_view name, const std::vector<std::string>& specs, bool cross = true);

#define REGISTER_ATTENTION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::attentions())

}  // namespace orrery::nn
