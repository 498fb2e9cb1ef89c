// How far back a head reads: a soft mask over the distance x between a query and a key.
//   m(x) = clip((R + z + 1 - x) / R, 0, 1)
// Sukhbaatar et al. 2019, arXiv:1905.07799; as in their code, distance 1 is the start of the ramp, so at z = 0 the R
// most recent tokens are visible, not R - 1.  The mask and its derivative stand in engine/attention_formula/problem.h,
// which is handed z + 1.
//
//   fixed(S)                  no ramp: S keys are visible, the own one included if it is visible
//   adaptive_span(S, R=32)    z = S z',  z' in [0, 1] learned for each head, from 0
//   dynamic_span(S, R=32)     z = S sigmoid(v.x + b), from the token x that asks, v and b for each head, b from -4
//
// Trimming: a cache drops the keys that no later query can reach, those at a distance of S or, under adaptive_span, of
// max z' S + R and beyond, in steps of 64 as in the authors' code, so it holds at most 62 more than can be reached; one
// of states holds 64 more than these, which a span can grow by in a step.
//
// Beyond S nothing is visible.  Conventions: a token's own position is masked under any span unless
// attend_to_self=yes; the slope of m is that of the ramp at both of its ends too, as the authors' clamp has it: at
// z' = 0, where heads begin and most stay, both ends fall on whole tokens.
#pragma once

#include "nn/attentions/base/fused.h"
#include "nn/base/entry.h"
#include "nn/layers/linear.h"

namespace orrery::nn {

std::vector<Info> span_settings();     // catalogue rows of the three
Spec resolved_span(const Spec& spec);  // with all settings by name; none stays

class Span final : public Module {
 public:
  // `context` is the most tokens there can be; 0: unknown.  Errors: S below 1 or beyond it, R below 1.
  Span(const Spec& spec, int64_t width, int64_t heads, int64_t context);
  bool learned() const { return kind_ != Kind::fixed; }
  // Adds the span of queries x (B, Tq, width) to the inputs, and the penalty "span_penalty" if the pass wants it.
  void add_to(AttentionInputs& inputs, const Tensor& x, Pass& pass);
  void limit(AttentionOptions& options) const;  // window and ramp
  // How far back heads read, in tokens, the ramp included: min(z + R, S) for z + 1 as `span`, which is shown to who
  // watches path.span; of a fixed span, S.
  Tensor tokens_read(const Tensor& span) const;
  int64_t limit() const { return limit_; }
  // So many distances, from 0, can be visible with the parameters as they are: a cache may drop keys beyond.
  int64_t reach(const AttentionOptions& limited) const;
  Tensor forward(const Tensor& x, Pass& pass) override;  // z + 1: (H) or (B, H, Tq)
  void visit(Visitor& v) override;

 private:
  enum class Kind { fixed, adaptive, dynamic } kind_;
  int64_t limit_;
  double ramp_ = 0;
  Parameter fraction_;  // z' (H)
  std::unique_ptr<Linear> fraction_of_token_;
};

}  // namespace orrery::nn
