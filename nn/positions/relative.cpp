// Relative positions: a learned score term for each distance d = |i - j|, in two forms.
//   relative(S, keys)    s_ij = scale <q_i, k_j + p_d>     p (S + 1, D), initially N(0, 1), shared by heads and layers:
//                                                          Sukhbaatar et al. 2019, arXiv:1905.07799, equation 1
//   relative(S, bias)    s_ij = scale <q_i, k_j> + b_hd    b (H, S + 1), initially 0, shared by layers:
//                                                          Raffel et al. 2020, arXiv:1910.10683, without buckets
// With ds the gradient of the scores:  dp_d = scale sum ds_ij q_i  and  db_hd = sum ds_ij  over the pairs at distance d
// (nn/attentions/base/fused.h). The terms here are a slice of the first distances, whose backward
// is zero for the others. S is the largest distance with a term, so the table has S + 1 rows. Row 0
// is for a token that attends to itself. relative(S) matches a span of S; a longer context needs
// such a span. Content and position are scaled together, as in the authors' code. Full attention
// uses |i - j| on both sides. Saved for backward: nothing.
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {
namespace {

class RelativePositions final : public Position {
 public:
  struct Settings {
    Spec largest = parse_spec("context");
    std::string form = "keys";
    template <class V>
    void visit(V& v) {
      v("S", largest, "largest distance, at least 1; context: the largest one in the context");
      v("form", form, "keys: a vector per distance; bias: a number per head and distance", one_of({"keys", "bias"}));
    }
  };
  static inline const Info info{.name = "relative",
                                .formula = "score + <q, p[distance]>, or score + b[head, distance]",
                                .source = "Sukhbaatar et al. 2019, arXiv:1905.07799; Raffel et al. 2020",
                                .parameters = "p N(0, 1), or b 0",
                                .saves = "nothing"};

  RelativePositions(const Spec& spec, const PositionOptions& options) : spec_(spec) {
    const auto s = settings_from<Settings>(spec);
    if (s.largest.name == "context") {
      largest_ = options.context - 1;
    } else {
      largest_ = parse_whole_number(print(spec) + ": S", print(s.largest));
      check(largest_ >= 1, spec, ": S is the largest distance and must be at least 1, not ", largest_);
      check(largest_ <= 16777216, spec, ": S is the largest distance and must be at most 16777216, not ", largest_);
    }
    const int64_t terms = sum_of_sizes(print(spec) + ": S", {largest_, 1});  // includes distance 0
    const int64_t head_size = options.head_size ? options.head_size : options.width / options.heads;
    if (s.form == "keys")
      keys_ = Parameter(Shape{terms, head_size}, normal(1));
    else
      bias_ = Parameter(Shape{options.heads, terms}, constant(0));
    keys_.is_lookup_table = bias_.is_lookup_table = true;
  }
  Tensor relative_embedding(int64_t distances) const override {
    if (!keys_.value) return {};
    check_reach(distances);
    return keys_.value.slice(0, distances);
  }
  Tensor relative_bias(int64_t distances, Device) const override {
    if (!bias_.value) return {};
    check_reach(distances);
    return slice(bias_.value, 1, 0, distances);
  }
  bool acts_on_scores() const override { return true; }
  void check_reach(int64_t distances) const override {
    check(distances <= largest_ + 1, spec_, ": has terms for distances up to ", largest_,
          ", but tokens attend over distances up to ", distances - 1, "; use relative(", distances - 1,
          ") or a span of at most ", largest_);
  }
  void visit(Visitor& v) override {
    v("keys", keys_);
    v("bias", bias_);
  }

 private:
  Spec spec_;
  int64_t largest_ = 0;
  Parameter keys_, bias_;  // (S + 1, D), (H, S + 1)
};
REGISTER_POSITION(RelativePositions);

// The table has more distances than are in use; the unused ones must have zero gradient.
GradientCase case_with(const std::string& spec, const CaseTensors& random) {
  constexpr int64_t tokens = 4, distances = 6, size = 3, heads = 2;
  const bool keys = spec == "relative(5, keys)";
  const PositionOptions options{.context = tokens, .width = heads * size, .heads = heads};
  const std::shared_ptr<Position> position = make_position(parse_spec(spec), options);
  const Tensor table = keys ? random({distances, size}) : random({heads, distances});
  return {{{"table", table}, {"weight", keys ? random({tokens, size}) : random({heads, tokens})}},
          [=](const auto& in) {
            parameters_of(*position)[0].parameter->value = in[0];
            return (keys ? position->relative_embedding(tokens) : position->relative_bias(tokens, in[0].device())) *
                   in[1];
          },
          [=](const auto& in) {
            const Tensor indices = Tensor::from(Shape{tokens}, std::vector<int32_t>{0, 1, 2, 3});
            const Tensor chosen = one_hot(indices, distances, Dtype::f64);
            return (keys ? matmul(chosen, in[0]) : matmul(in[0], chosen, {.b = true})) * in[1];
          }};
}
GradientCase keys_case(const CaseTensors& random) { return case_with("relative(5, keys)", random); }
REGISTER_GRADIENT_CASE("position", "relative", keys_case);
GradientCase bias_case(const CaseTensors& random) { return case_with("relative(5, bias)", random); }
REGISTER_GRADIENT_CASE("position", "relative", bias_case);

}  // namespace
}  // namespace orrery::nn
