// Attentions with row-wise weighting, one struct and one line each. Weights need whole score rows.
//
//   struct TopK {
//     static inline const Info info{.name = "top_k", ...};
//     int64_t k = 8;                                                    its settings, if it has any; numbers only
//     template <class V> void visit(V& v) { v("k", k, "keys attended to", between(1, 65536)); }
//
//     template <class Row, class T>
//     HOST_DEVICE void forward(Row row, In<T> s, Out<T> w) const;               the weights of one row
//     template <class Row, class T>
//     HOST_DEVICE void backward(Row row, In<T> w, In<T> dw, Out<T> ds) const;   from the saved weights
//   };
//   Tensor reference(const Tensor& s, const TopK& rule);                the weights from simple operations
//   REGISTER_ROW_RULE(TopK, reference, "top_k(k=2)");
//
// s is -infinity where masked, and w must be 0 there; a whole row may be masked. `static constexpr
// bool saves_scores = true` saves the scores too: backward(row, s, w, dw, ds). The macro adds the
// operation, the layer (attention.h; its settings follow the rule's), the name, and gradient cases
// of the defaults and of each further spec. The struct is in its file's anonymous namespace.
#pragma once

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/cases.h"

namespace orrery::nn {

template <class Rule>
struct RowRuleOperation {
  static inline const char* const name = Rule::info.name.data();
  static constexpr bool saves_scores = requires { requires Rule::saves_scores; };
  Rule rule;

  struct Forward {
    Rule rule;
    template <class Row, class T>
    HOST_DEVICE void operator()(Row row, In<T> s, Out<T> w) const {
      rule.forward(row, s, w);
    }
  };
  struct Backward {
    Rule rule;
    template <class Row, class... Operand>
    HOST_DEVICE void operator()(Row row, Operand... operands) const {
      rule.backward(row, operands...);
    }
  };

  Tensor forward(Saved& saved, const Tensor& s) const {
    const Tensor w = Tensor::empty_like(s);
    each_row(name, Forward{rule}, row_of(s), out_row(w));
    saved.save(w, saves_scores ? s : Tensor());
    return w;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dw) const {
    const Tensor &w = saved[0], ds = Tensor::empty_like(w);
    if constexpr (saves_scores)
      each_row(name, Backward{rule}, row_of(saved[1]), row_of(w), row_of(dw), out_row(ds));
    else
      each_row(name, Backward{rule}, row_of(w), row_of(dw), out_row(ds));
    return {ds};
  }
};

// Returns the weights (..., n) of scores (..., n).
template <class Rule>
Tensor weights_by(const Rule& rule, const Tensor& scores) {
  return record(RowRuleOperation<Rule>{rule}, scores);
}

template <class Rule, auto reference>
class RowRuleAttention final : public AttentionLayer {
 public:
  struct Settings {
    Rule rule;
    AttentionSettings layer;
    template <class V>
    void visit(V& v) {
      if constexpr (requires { rule.visit(v); }) rule.visit(v);
      layer.visit(v);
    }
  };
  static inline const Info info = Rule::info;

  RowRuleAttention(const Spec& spec, const AttentionLayerOptions& options)
      : RowRuleAttention(settings_from<Settings>(spec), options) {}
  RowRuleAttention(const Settings& settings, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings.layer, options, {.span = false, .slots = false}), rule_(settings.rule) {}

 private:
  Tensor attend(const AttentionInputs& in, const AttentionOptions& o, ForwardPass&) override {
    return apply_weights(weights(in, o), in, o);
  }
  Tensor weights(const AttentionInputs& in, const AttentionOptions& o) override {
    const Tensor s = masked_scores(in, o);
    if (!in_reference_mode()) return weights_by(rule_, s);
    if constexpr (requires { reference(s, rule_); })
      return reference(s, rule_);
    else
      return reference(s);
  }
  Rule rule_;
};

template <class Rule, auto reference>
bool register_row_rule(const std::vector<std::string>& more_specs = {}) {
  const std::string name(Rule::info.name);
  register_type<RowRuleAttention<Rule, reference>>(attentions());
  add_attention_cases(name, {name, name + "(gate=sigmoid, scale=1)"});
  add_attention_case("attention", name, {.spec = name + "(dropout=0.3)", .dropout = true, .cross = true});
  return add_attention_cases(name, more_specs);
}

#define REGISTER_ROW_RULE(Rule, reference, ...) \
  [[maybe_unused]] static const bool registered_##Rule = ::orrery::nn::register_row_rule<Rule, reference>({__VA_ARGS__})

}  // namespace orrery::nn
