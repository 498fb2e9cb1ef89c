// The attention span of a head: a soft mask over the distance x, in tokens, from query to key.
//   m(x) = clip((R + z + 1 - x) / R, 0, 1)
// Sukhbaatar et al. 2019, arXiv:1905.07799. As in their code the ramp starts at distance 1, so at
// z = 0 the R most recent tokens are visible, not R - 1. engine/attention_formula/problem.h has the
// mask and its derivative; it takes z + 1.
//
//   fixed(S)                  no ramp: S keys, including the query's own unless it is masked
//   adaptive_span(S, R=32)    z = S z',  z' in [0, 1] learned for each head, from 0
//   dynamic_span(S, R=32)     z = S sigmoid(v.x + b), from the query's token x, v and b for each head, b from -4
//
// Trimming: a cache drops keys that no later query can reach, in steps of 64 as in the authors'
// code: at distances from S on or, under adaptive_span, from max z' S + R on. It holds at most 62
// keys more than can be reached. A cache of states holds 64 more, a span's growth per step.
//
// No key beyond S is visible. Conventions: with a span, a token does not attend to itself unless
// attend_to_self=yes. At both ends m has the ramp's derivative, as in the authors' clamp: at
// z' = 0, where heads begin and most stay, both ends are at whole tokens.
#pragma once

#include "nn/attentions/base/fused.h"
#include "nn/base/entry.h"
#include "nn/layers/linear.h"

namespace orrery::nn {

std::vector<Info> span_settings();     // catalogue rows of the three spans
Spec resolved_span(const Spec& spec);  // with all settings by name; none stays

class Span final : public Module {
 public:
  // `context`: maximum number of tokens, 0: unknown. Throws unless S is in [1, context] and R >= 1.
  Span(const Spec& spec, int64_t width, int64_t heads, int64_t context);
  bool learned() const { return kind_ != Kind::fixed; }
  // Adds the span of queries x (B, Tq, width), and the loss "span_penalty" if the pass requests it.
  void add_to(AttentionInputs& inputs, const Tensor& x, ForwardPass& pass);
  void set_window_and_ramp(AttentionOptions& options) const;
  // Returns how far back heads attend, in tokens, ramp included: min(z + R, S) for `span` = z + 1,
  // the value of hook path.span; S for a fixed span.
  Tensor attended_tokens(const Tensor& span) const;
  int64_t max_span() const { return max_span_; }  // S, in tokens
  // Returns how many distances, from 0, are visible now, given the window; a cache drops the rest.
  int64_t reach(const AttentionOptions& options) const;
  Tensor forward(const Tensor& x, ForwardPass& pass) override;  // z + 1: (H) or (B, H, Tq)
  void visit(Visitor& v) override;

 private:
  enum class Kind { fixed, adaptive, dynamic } kind_;
  int64_t max_span_;
  double ramp_ = 0;
  Parameter fraction_;  // z' (H)
  std::unique_ptr<Linear> fraction_projection_;
};

}  // namespace orrery::nn
