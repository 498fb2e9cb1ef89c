// The gated attention unit, a whole layer: FLASH-Quad of Hua et al. 2022, arXiv:2202.10447.
//   u = swish(x W_u),  v = swish(x W_v)   (T, E),   z = swish(x W_z)   (T, S)
//   q = z gamma_q + beta_q,   k = z gamma_k + beta_k,   both rotated if the position is rotary
//   a_ij = relu(<q_i, k_j> / n_i + b_|i-j|)^2,   y = (u (A v)) W_o + r
// With o = A v, g = dy W_o^T and the residual r:
//   du = g o,   do = g u,   dv = A^T do,   da = do v^T,   ds = 2 relu(s) da,   db_x = sum of ds at distance x
//   dq_i = sum_j ds_ij k_j / n_i,   dk_j = sum_i ds_ij q_i / n_i,   dgamma_q = sum dq z,   dbeta_q = sum dq   (k alike)
// This is pointwise attention with one head and F = relu^2; q is divided by n_i, by default the
// number of visible keys (nn/attentions/base/length_scale.h). n_i is inside the square, so a model
// trained at one length changes at another. b: the bias of the position, relative(S, bias).
// The mask sets weights to 0 after the square. Two such layers replace attention and feed-forward.
// Saved for backward: x, u, v, z, q, k, o and what swish saves. No (T, T) array exists.
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/cases.h"
#include "nn/attentions/base/length_scale.h"

namespace orrery::nn {
namespace {

class Gau final : public Sublayer {
 public:
  struct Settings {
    int64_t size = 128, d_ff = 0;
    Spec length = parse_spec("keys_visible");
    AttentionSettings layer;
    template <class V>
    void visit(V& v) {
      v("size", size, "S, channels of queries and keys", between(1, 65536));
      v("d_ff|inner", d_ff, "E, channels of u and v; 0: 2 width", between(0, 262144));
      v("length", length, "n, divisor of the scores: keys_visible, row_index, padded_length or fixed(n)");
      layer.visit(v);
    }
  };
  static inline const Info info{.name = "gau",
                                .formula = "y = (u * sum_j relu(<q_i, k_j> / n_i + b)^2 v_j) W_o, u, v, z by swish",
                                .source = "Hua et al. 2022, arXiv:2202.10447",
                                .parameters = "weights as softmax; gammas N(0, 0.02^2), betas 0",
                                .saves = "x, u, v, z, q, k, attention output"};

  Gau(const Spec& spec, const AttentionLayerOptions& options) : Gau(settings_from<Settings>(spec), options) {}
  Gau(const Settings& s, const AttentionLayerOptions& o)
      : settings_(s),
        options_(o),
        size_(s.size),
        expanded_(s.d_ff ? s.d_ff : product_of_sizes("gau: d_ff", {2, o.width})),
        length_(info.name, s.length, o.causal),
        input_(o.width, sum_of_sizes("gau: 2 d_ff + size", {expanded_, expanded_, size_}),
               {.bias = o.bias,
                .weight = o.initial_weights.hidden(o.width, expanded_, o.layers),
                .packed_rows = {expanded_, expanded_, size_}}),
        query_gain_(Shape{size_}, normal(0.02)),
        query_bias_(Shape{size_}, constant(0)),
        key_gain_(Shape{size_}, normal(0.02)),
        key_bias_(Shape{size_}, constant(0)),
        output_(expanded_, o.width,
                {.bias = o.bias, .weight = o.initial_weights.residual_output(expanded_, o.width, o.layers)}) {
    check_settings();
  }

  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) override {
    const std::vector<Tensor> uvz =
        linear_split(x, input_.weight.value, input_.bias.value, {expanded_, expanded_, size_});
    const Tensor u = swish_(uvz[0]), z = swish_(uvz[2]);
    AttentionInputs in{.query = one_head(z * query_gain_.value + query_bias_.value),
                       .key = one_head(z * key_gain_.value + key_bias_.value),
                       .value = one_head(swish_(uvz[1]))};
    check_cache(info.name, pass, options_.causal);
    if (options_.position)
      in.query = options_.position->rotate(in.query, pass), in.key = options_.position->rotate(in.key, pass);
    append_to_cache(*this, in, pass);
    add_relative_positions(options_.position, pass.offset() + x.size(1), in);
    AttentionOptions o{
        .mask = {.causal = options_.causal,
                 .attend_to_self = settings_.layer.attend_to_self != "no",
                 .query_offset = pass.offset(),
                 .lengths = pass.lengths,
                 .query_document_ids = pass.document_ids,
                 .key_document_ids = pass.document_ids},
        .dropout = pass.training ? settings_.layer.dropout : 0,
        .rng_key = pass.training && settings_.layer.dropout > 0 ? rng_key(pass) : DeviceRandomKey{}};
    narrow_to_named(options_.mask.get(), in, pass, o.mask);
    const Tensor n = length_.length(in, o.mask);
    in.query = (in.query.to(n.dtype()) / n).to(in.query.dtype());
    const Tensor output = attention(in, o, square_).output.reshape(u.shape());
    return linear(u * output, output_.weight.value, output_.bias.value, residual);
  }
  void visit(Visitor& v) override {
    v("input", input_);
    v("query_gain", query_gain_);
    v("query_bias", query_bias_);
    v("key_gain", key_gain_);
    v("key_bias", key_bias_);
    v("output", output_);
  }

 private:
  void check_settings() const {
    const AttentionSettings& s = settings_.layer;
    check(options_.encoder_width == 0,
          "gau: attends to its own sequence only, so it cannot be a cross attention; use softmax");
    check(options_.head_size == 0,
          "gau: head_size must be 0, because size sets the size of its one head; use gau(size=128)");
    check(s.gate.name == "none", "gau: has its own gate, so gate must be none, not ", s.gate);
    check(s.qk_norm.name == "none", "gau: queries and keys have their own gains, so qk_norm must be none, not ",
          s.qk_norm);
    check(s.scale == 0, "gau: scores are divided by n, so scale must be 0, not ", s.scale);
    check(s.span.name == "none", "gau: cannot be combined with span=", s.span, "; use pointwise(relu_squared)");
    check(s.persistent.name == "none", "gau: cannot be combined with persistent=", s.persistent,
          "; use pointwise(relu_squared)");
    check(!options_.position || !options_.position->relative_embedding(1),
          "gau: position=relative(S, keys) is not supported; use relative(S, bias), rotary or another position");
    check(!options_.position || !options_.position->acts_on_scores() || options_.heads == 1,
          "gau: has one head, but the position has biases for ", options_.heads, "; set heads=1");
    if (!options_.position) return;
    options_.position->check_head_size(size_);
    if (options_.context > 0) options_.position->check_reach(options_.context);
  }
  Tensor one_head(const Tensor& x) const { return x.reshape(Shape{x.size(0), x.size(1), 1, x.size(2)}); }

  Settings settings_;
  AttentionLayerOptions options_;
  int64_t size_, expanded_;
  LengthScale length_;
  Linear input_;
  Parameter query_gain_, query_bias_, key_gain_, key_bias_;
  Linear output_;
  Activation swish_{"silu"}, square_{"relu_squared"};
};
REGISTER_ATTENTION(Gau);
const bool cases =
    add_attention_cases("gau", {"gau(size=8)", "gau(size=20, d_ff=7, length=fixed(3))", "gau(size=64, d_ff=5)"}, false);
const bool dropout_cases =
    add_attention_case("attention", "gau", {.spec = "gau(size=6, dropout=0.3)", .dropout = true});

}  // namespace
}  // namespace orrery::nn
