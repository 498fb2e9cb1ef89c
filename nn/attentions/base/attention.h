// Attention layers of a block.
//
// Every attention except gau is an attention function (q, k, v -> head output) in this layer:
//
//   q = x W_q,  k = c W_k,  v = c W_v          c = x, or another sequence in cross attention
//   q, k <- normalized (qk_norm), rotated (rotary)
//   o = f(q, k, v; relative-position bias or embedding, span, persistent slots, masks)
//   y = (F(x W_g) o) W_o + residual            F(x W_g): the gate, if there is one
//
// A text stream is processed block by block: with a cache of states, k and v are projected from
// [x of previous blocks, x], as far back as the span reaches. The x of previous blocks is constant.
//
// An attention function is one file: a class derived from AttentionLayer with `attend`, a list of
// the options that it supports, and one line REGISTER_ATTENTION(Type).
#pragma once

#include "nn/attentions/base/fused.h"
#include "nn/base/entry.h"
#include "nn/base/sublayer.h"
#include "nn/formulas/pointwise_function.h"
#include "nn/layers/initial_weights.h"
#include "nn/layers/linear.h"
#include "nn/masks/base/mask.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {

struct AttentionLayerOptions {
  int64_t width;          // channels of input and output
  int64_t heads;          // query heads
  int64_t kv_heads = 0;   // key/value heads, each shared by heads / kv_heads query heads; 0: equal to heads
  int64_t head_size = 0;  // 0: width / heads
  bool causal = true;
  bool bias = true;
  bool query_key_bias = false;  // queries and keys get extra biases, initially 0, regardless of `bias`
  int64_t layers = 1;           // layers of the model; more layers make the initial output projection smaller
  InitialWeights initial_weights = {};
  int64_t context = 0;                 // maximum number of tokens, cached tokens included; 0: unknown
  const Position* position = nullptr;  // position of the model; must outlive the attention
  // Not 0: cross attention to the encoder output pass.encoder_output (B, Tk, encoder_width), within
  // pass.encoder_lengths, pass.encoder_document_ids. Rotary rotates keys by their positions in it.
  int64_t encoder_width = 0;
  // Which keys of its sequence a token sees; null: those that `causal` leaves. That of a language model is
  // causal, except for tokens that bear no loss.
  std::shared_ptr<const NamedMask> mask = nullptr;
  // Learned parameters of the function of scores that all layers of the model share; the first layer
  // makes them. The model visits them and must outlive the attention.
  Parameter* shared_activation = nullptr;
};

// Settings of the layer. The spec of every attention takes them after its own settings.
struct AttentionSettings {
  Spec gate = parse_spec("none"), qk_norm = parse_spec("none");
  double scale = 0, dropout = 0;
  std::string attend_to_self = "default";
  Spec span = parse_spec("none"), persistent = parse_spec("none");

  template <class V>
  void visit(V& v) {
    v("gate", gate, "activation F of a gate: head outputs are multiplied by F(x W_g); none: no gate");
    v("qk_norm", qk_norm, "normalization of queries and keys over the head size: none, layer, rms, ...",
      name_of_family("normalization"));
    v("scale", scale, "factor of the scores; 0: 1 / sqrt(head size)", zero_or(tiny, 1e6));
    v("dropout", dropout, "fraction of the attention weights set to zero in training", fraction());
    v("attend_to_self|own", attend_to_self,
      "let a token attend to itself: yes, no or default (yes, but no with a span)", one_of({"default", "yes", "no"}));
    v("span", span, "how far back a head attends: none, fixed(S), adaptive_span(S, R=32), dynamic_span(S, R=32)");
    v("persistent", persistent,
      "learned keys and values in addition to the context: none, N, slots(N, split=no, scaled=yes)");
  }
};

// Options that an attention supports. Others throw at construction; the message names the option.
struct AttentionSupport {
  bool dropout = true, relative_position = true, span = true, slots = true, cross = true;
  bool mask = true;  // named masks other than causal and full
};

// Settings of an attention w = F(s), which visits them after all others.
struct ParameterSettings {
  std::string parameters_per = "head";
  template <class V>
  void visit(V& v) {
    v("parameters_per", parameters_per, "learned parameters of F, if it has any: one set for each head, layer or model",
      one_of({"head", "layer", "model"}));
  }
};

class Span;
class Slots;

class AttentionLayer : public Sublayer {
 public:
  AttentionLayer(std::string_view name, const AttentionSettings& settings, const AttentionLayerOptions& options,
                 const AttentionSupport& support);
  ~AttentionLayer() override;
  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) final;
  // Returns the head outputs (B, Tq, H Dv), gated, of queries (B, Tq, H, D), keys (B, Tk, Hk, D)
  // and values (B, Tk, Hk, Dv). Gate and dynamic span use the queries' tokens x (B, Tq, width).
  Tensor attend_heads(AttentionInputs inputs, const Tensor& x, ForwardPass& pass);
  bool is_cross_attention() const { return options_.encoder_width != 0; }
  void visit(Visitor& v) override;  // an attention function with parameters visits them too

 protected:
  // Returns the head outputs (B, Tq, H, Dv). Split slots call it twice: for context and for slots.
  virtual Tensor attend(const AttentionInputs& inputs, const AttentionOptions& options, ForwardPass& pass) = 0;
  // Returns the weights (B, H, Tq, Tk + N) for hooks; an undefined tensor if there are no weights.
  virtual Tensor weights(const AttentionInputs& inputs, const AttentionOptions& options) = 0;
  // Maps sum_j w_ij v_j to the head output, both (B, Tq, H, Dv): the last step of `attend`.
  virtual Tensor finish(const Tensor& sums) { return sums; }
  // Sets F of an attention w = F(s). The inputs of `attend` and `weights` have its parameters.
  void set_function(const Spec& function, const ParameterSettings& settings);
  const PointwiseFunction& function() const { return *function_; }
  int64_t heads() const { return options_.heads; }
  int64_t head_size() const { return head_size_; }

 private:
  Tensor split_heads(const Tensor& x, int64_t heads) const;
  AttentionOptions window_and_ramp() const;
  int64_t reach() const;
  int64_t within_window(int64_t distances) const;
  AttentionInputs project(const Tensor& x, ForwardPass& pass);
  void prepend_stream_states(const Tensor& x, AttentionInputs& inputs, ForwardPass& pass);
  void add_score_terms(const Tensor& x, AttentionInputs& inputs, ForwardPass& pass) const;
  AttentionOptions options_of(const AttentionInputs& inputs, const ForwardPass& pass) const;
  struct AttentionCall {
    AttentionInputs inputs;
    AttentionOptions options;
  };
  std::vector<AttentionCall> attention_calls(const AttentionInputs& inputs, const AttentionOptions& options) const;
  std::vector<Tensor> hooked_weights(const std::vector<AttentionCall>& calls);
  void hook_row_statistics(const Tensor& weights, const AttentionInputs& inputs, const AttentionOptions& options) const;
  Tensor attend_all(const AttentionInputs& inputs, const AttentionOptions& options, ForwardPass& pass);

  std::string name_;
  AttentionSettings settings_;
  AttentionLayerOptions options_;
  int64_t kv_heads_, head_size_;
  bool attend_to_self_;
  std::unique_ptr<Linear> query_key_value_, query_, key_value_;  // self attention: the first; cross: the others
  Parameter query_bias_, key_bias_;                              // undefined unless query_key_bias
  std::unique_ptr<Module> query_norm_, key_norm_;
  std::optional<PointwiseFunction> function_, gate_function_;  // of scores; of the gate
  std::unique_ptr<Linear> gate_;
  std::unique_ptr<Span> span_;
  std::unique_ptr<Slots> slots_;
  Linear output_;
};

// Throws if the pass has a cache that this attention, `name`, cannot continue.
void check_cache(std::string_view name, const ForwardPass& pass, bool causal);
// With a cache in the pass: prepends the cached keys and values and caches all for the next pass,
// under the path of `attention`. If `reach` is not 0, drops keys at distances of `reach` or more
// (masked for all queries) in steps of 64. Throws for a cache of states.
void append_to_cache(const Module& attention, AttentionInputs& inputs, ForwardPass& pass, int64_t reach = 0);
// Narrows `mask`, whose offsets are set, by `named`, which may be null, in a pass over these tokens.
// Throws if the cache divides tokens that see each other.
void narrow_to_named(const NamedMask* named, const AttentionInputs& in, const ForwardPass& pass, AttentionMask& mask);
// Adds the score terms of `position`, which may be null, in the dtypes that attention takes.
void add_relative_positions(const Position* position, int64_t distances, AttentionInputs& inputs);

// Returns the catalogue entries of the layer's settings, one for each setting with a formula.
const std::vector<Info>& attention_settings();

using AttentionEntry = Entry<Sublayer, const AttentionLayerOptions&>;
Registry<AttentionEntry>& attentions();
// Makes an attention (B, T, width) -> (B, T, width) from a spec such as "softmax(dropout=0.1)".
std::unique_ptr<Sublayer> make_attention(const Spec& spec, const AttentionLayerOptions& options);
Spec resolved_attention(const Spec& spec);  // with all settings by name, including those of span and slots

// Adds gradient cases of whole layers for each spec: causal and full, with lengths, packed
// documents, grouped kv heads and odd sizes, and cross if supported; the reference is the layer in
// reference mode. Specs that differ only in layer settings need not be listed for every attention.
bool add_attention_cases(std::string_view name, const std::vector<std::string>& specs, bool cross = true);

#define REGISTER_ATTENTION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::attentions())

}  // namespace orrery::nn
