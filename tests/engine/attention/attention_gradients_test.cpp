// Properties of the gradients of attention, and identities between its options.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/attention_choices.h"
#include "tests/support/fused_attention.h"
#include "tests/support/plain_attention.h"

namespace orrery {
namespace {

using namespace testing;

// <do, o> + <dS, S> + <dH, H>
double loss_of(const Case& c) {
  const Results r = attention_of<double>(c);
  double loss = 0;
  const auto add = [&](const Numbers& gradient, const Numbers& x) {
    for (size_t i = 0; i < gradient.size(); ++i) loss += gradient[i] * x[i];
  };
  add(c.output_gradient, r.output), add(c.sum_gradient, r.sum), add(c.entropy_gradient, r.entropy);
  return loss;
}

const char* const names[] = {"query",         "key", "value", "slot_key", "slot_value", "relative_embedding",
                             "relative_bias", "span"};

// Checks each operand's gradient along a random direction with finite differences.
void check_derivatives(const Case& c) {
  const Results r = attention_of<double>(c);
  for (size_t n = 0; n < std::size(names); ++n) {
    const auto loss = [&](double t) {
      Case moved = c;
      Numbers& x = *moved.operands.all()[n];
      for (size_t i = 0; i < x.size(); ++i) x[i] += t * random_number(20 + n, i);
      return loss_of(moved);
    };
    const double h = 1e-3, finite_difference = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h);
    const Numbers& gradient = *r.gradients.all()[n];
    double derivative = 0;
    for (size_t i = 0; i < gradient.size(); ++i) derivative += gradient[i] * random_number(20 + n, i);
    CAPTURE(std::string(names[n]));
    CHECK(std::abs(derivative - finite_difference) <= 1e-7 * std::max(1., std::abs(derivative)));
    if (!gradient.empty()) CHECK(derivative != 0);
  }
}

Case with_everything(Kind kind) {
  Case c{.sizes = {.batch = 2,
                   .queries = 9,
                   .keys = 11,
                   .query_heads = 4,
                   .kv_heads = 2,
                   .head_size = 5,
                   .value_size = 3,
                   .slots = 6},
         .options = {.scale = 0.6, .causal = true, .query_offset = 2, .soft_cap = 2, .ramp = 5.3, .dropout = 0.3},
         .kind = kind};
  c.options.rng_key = RandomKey{11, 12};
  c.biased = c.positioned = c.spanned = c.regularized = true;
  return c;
}

Numbers sums_of_keys(const Case& c) {  // returns scale * sum_j ds_ij for each row; component 0 of every key is 1
  Numbers sums;
  const auto D = static_cast<size_t>(c.sizes.head_size);
  const Numbers dq = attention_of<double>(c).gradients.query;
  for (size_t i = 0; i < dq.size(); i += D) sums.push_back(dq[i]);
  return sums;
}
double largest(const Numbers& x) {
  double found = 0;
  for (const double e : x) found = std::max(found, std::abs(e));
  return found;
}

}  // namespace

TEST_CASE("attention: every gradient agrees with finite differences, also those through the statistics") {
  for (const Kind kind : {Kind::softmax, Kind::gelu_tanh})
    for (const bool per_query : {false, true}) {
      Case c = with_everything(kind);
      c.options.span_per_query = per_query;
      // The entropy of signed weights has kinks at weight 0; other tests compare it with the plain loop.
      if (kind == Kind::gelu_tanh) c.regularized = false;
      c.fill();
      check_derivatives(c);
    }
}

TEST_CASE("attention: gradients through statistics of positive pointwise weights agree with finite differences") {
  Case c = with_everything(Kind::gelu_tanh);
  c.options.soft_cap = 0;
  c.fill();
  for (double& b : c.operands.relative_bias) b += 40;  // all scores far above zero
  for (Numbers* x : {&c.operands.query, &c.operands.slot_key})
    for (double& e : *x) e = std::abs(e);
  check_derivatives(c);
}

TEST_CASE("attention: score gradients of a row add up to 0 for softmax, also with spans and with slots") {
  for (const bool spanned : {false, true})
    for (const int64_t slots : {0, 20})
      for (const Kind kind : kinds) {
        Case c{.sizes = {.batch = 2,
                         .queries = 70,
                         .keys = 70,
                         .query_heads = 2,
                         .kv_heads = 1,
                         .head_size = 8,
                         .value_size = 8,
                         .slots = slots},
               .options = {.scale = 0.5, .causal = true, .ramp = 7},
               .kind = kind};
        c.spanned = spanned, c.regularized = true;
        c.fill();
        for (Numbers* x : {&c.operands.key, &c.operands.slot_key})
          for (size_t i = 0; i < x->size(); i += 8) (*x)[i] = 1;
        if (kind == Kind::softmax)
          CHECK(largest(sums_of_keys(c)) < 1e-13);
        else
          CHECK(largest(sums_of_keys(c)) > 0.1);
      }
}

TEST_CASE("attention: a span as long as the window equals the window, and a span of 0 shows the last R keys") {
  for (const Kind kind : kinds) {
    Case window{
        .sizes = {1, 150, 150, 2, 2, 16, 16}, .options = {.scale = 0.4, .causal = true, .window = 40}, .kind = kind};
    window.fill();
    Case span = window;
    span.spanned = true, span.options.ramp = 8, span.operands.span = {40, 40};
    Results spanned = attention_of<double>(span);
    CHECK(spanned.gradients.span == Numbers{0, 0});
    spanned.gradients.span.clear();
    check_equal(window, spanned, attention_of<double>(window), 0);

    span.options.window = 0, span.operands.span = {0, 0};
    const Results shortest = attention_of<double>(span);
    for (Numbers* x : {&span.operands.key, &span.operands.value})
      std::fill_n(x->begin(), 100 * 32, not_a_number);  // keys 0 to 99; query 107 attends to keys 100 to 107
    const Results dirty = attention_of<double>(span);
    for (size_t i = 107 * 32; i < dirty.output.size(); ++i) CHECK(dirty.output[i] == shortest.output[i]);
    if (kind != Kind::relu) CHECK(std::isnan(dirty.output[106 * 32]));  // relu may skip NaN
  }
}

TEST_CASE("attention: a span's gradient adds up over all tiles of keys that its ramp crosses") {
  for (const char* const set : instruction_sets())
    for (const Kind kind : kinds)
      for (const bool per_query : {false, true}) {
        use_attention_instruction_set(set);
        Case c{.sizes = {.batch = 2,
                         .queries = 20,
                         .keys = 600,
                         .query_heads = 2,
                         .kv_heads = 1,
                         .head_size = 8,
                         .value_size = 5},
               .options = {.scale = 0.1, .causal = true, .query_offset = 580, .ramp = 550},
               .kind = kind};
        c.spanned = true, c.options.span_per_query = per_query;
        c.fill();
        for (Numbers* x : {&c.operands.key, &c.operands.value})
          for (double& e : *x) e = std::abs(e);  // so that contributions of keys do not cancel
        check_equal(c, attention_of<double>(c), plain(c), 1e-12);
      }
  use_attention_instruction_set(instruction_sets().back());
}

TEST_CASE("attention: a span has a gradient at both ends of its ramp") {
  // One query with F(s) = s = 1 and v = 1: o is the sum of m, and dz = (keys on the ramp) / R.
  Case ones{.sizes = {1, 1, 12, 1, 1, 1, 1}, .options = {.query_offset = 11, .ramp = 4}, .kind = Kind::relu};
  ones.spanned = true;
  ones.fill();
  Operands& x = ones.operands;
  x.query = {1}, x.key = x.value = Numbers(12, 1), x.span = {3};
  ones.output_gradient = {1};
  for (const char* const set : instruction_sets()) {
    use_attention_instruction_set(set);
    CHECK(attention_of<double>(ones).output == Numbers{4 + 0.75 + 0.5 + 0.25});  // distances 0 to 3, 4, 5, 6
    CHECK(attention_of<double>(ones).gradients.span == Numbers{5. / 4});         // distances 3 to 7
    CHECK(attention_of<float>(ones).gradients.span == Numbers{5. / 4});
    ones.operands.span = {2.5};
    CHECK(attention_of<float>(ones).gradients.span == Numbers{4. / 4});  // distances 3 to 6
    ones.operands.span = {3};
  }
  for (const Kind kind : kinds)
    for (const bool per_query : {false, true}) {
      Case c = all_options_at_once(small, kind);  // integer z down to -5, where only the ramp's far end remains
      c.options.span_per_query = per_query, c.options.ramp = 5;
      c.fill();
      for (size_t i = 0; i < c.operands.span.size(); ++i) c.operands.span[i] = static_cast<double>(i % 7) - 5;
      CAPTURE(per_query);
      const Results expected = plain(c);
      for (const char* const set : instruction_sets()) {
        use_attention_instruction_set(set);
        check_equal(c, attention_of<double>(c), expected, 1e-12);
      }
    }
  use_attention_instruction_set(instruction_sets().back());
}

TEST_CASE("attention: a key at the far end of the ramp influences only the gradient of the span") {
  for (const char* const set : instruction_sets())
    for (const Kind kind : kinds) {
      use_attention_instruction_set(set);
      CAPTURE(static_cast<int>(kind));
      Case c{.sizes = {1, 1, 70, 1, 1, 8, 8}, .options = {.query_offset = 69, .soft_cap = 3, .ramp = 9}, .kind = kind};
      c.spanned = c.biased = c.regularized = true;
      c.fill();
      c.operands.span = {20};  // key 40 is 29 tokens back
      const Results clean = attention_of<double>(c);
      for (const double bad : {not_a_number, 1e200, -1e200}) {
        Case dirty = c;
        std::fill_n(dirty.operands.key.begin() + 40 * 8, 8, bad);
        Results found = attention_of<double>(dirty);
        found.gradients.span = clean.gradients.span;
        check_equal(c, found, clean, 0);
        std::fill_n(dirty.operands.value.begin() + 40 * 8, 8, bad);
        found = attention_of<double>(dirty);
        found.gradients.span = clean.gradients.span;
        check_equal(c, found, clean, 0);
      }
      // The masked score is far above all visible ones: exp(s - L) is finite (20) or infinite (1e4).
      if (kind != Kind::softmax) continue;
      c.options.soft_cap = 0, c.biased = c.regularized = false;
      c.fill();
      c.operands.span = {20};
      for (const auto& each : {std::array{20., 1e4, 1e12}, {1e4, INFINITY, INFINITY}}) {
        const double score = each[0], low = each[1], high = each[2];
        for (size_t i = 0; i < 8; ++i) c.operands.key[40 * 8 + i] = score / c.operands.query[i] / 8;
        std::fill_n(c.operands.value.begin() + 40 * 8, 8, 0);
        const double dz = std::abs(attention_of<double>(c).gradients.span[0]);
        CAPTURE(score);
        CHECK(dz >= low);
        CHECK(dz <= high);
      }
    }
  use_attention_instruction_set(instruction_sets().back());
}

TEST_CASE("attention: slots without a context are softmax over the slots") {
  for (const Kind kind : kinds) {
    Case slots{.sizes = {.batch = 3,
                         .queries = 70,
                         .keys = 0,
                         .query_heads = 4,
                         .kv_heads = 2,
                         .head_size = 12,
                         .value_size = 20,
                         .slots = 150},
               .options = {.scale = 0.4, .causal = true, .attend_to_self = false},
               .kind = kind};
    slots.fill();
    Case keys{.sizes = {1, 210, 150, 4, 2, 12, 20}, .options = {.scale = 0.4}, .kind = kind};
    keys.fill();
    keys.operands.query = slots.operands.query, keys.output_gradient = slots.output_gradient;
    keys.operands.key = slots.operands.slot_key, keys.operands.value = slots.operands.slot_value;
    const Results a = attention_of<double>(slots), b = attention_of<double>(keys);
    CHECK(difference(a.output, b.output) <= 1e-13);
    CHECK(difference(a.gradients.query, b.gradients.query) <= 1e-13);
    CHECK(difference(a.gradients.slot_key, b.gradients.key) <= 1e-12);
    CHECK(difference(a.gradients.slot_value, b.gradients.value) <= 1e-12);
  }
}

TEST_CASE("attention: slots are visible to every query, and a NaN in a slot reaches every output") {
  for (const Kind kind : kinds) {
    Case c{.sizes = {.batch = 2,
                     .queries = 40,
                     .keys = 40,
                     .query_heads = 2,
                     .kv_heads = 2,
                     .head_size = 16,
                     .value_size = 16,
                     .slots = 3},
           .options = {.scale = 0.4},
           .kind = kind};
    c.lengths = {0, 40};
    c.fill();
    check_equal(c, attention_of<double>(c), plain(c), 1e-12);
    std::fill_n(c.operands.key.begin(), 40 * 32, not_a_number);  // sequence 0, whose keys are all masked
    check_equal(
        c, attention_of<double>(c),
        [&] {
          Case clean = c;
          std::fill_n(clean.operands.key.begin(), 40 * 32, 0.);
          return plain(clean);
        }(),
        1e-12);
    std::fill_n(c.operands.slot_value.begin(), 1, not_a_number);
    const Results r = attention_of<double>(c);
    for (size_t row = 0; row < 80; ++row) CHECK(std::isnan(r.output[row * 32]));
  }
}

TEST_CASE("attention: unrequested gradients do not change the others") {
  Case c = with_everything(Kind::softmax);
  c.fill();
  const Results all = attention_of<double>(c);
  StoredOperands<double> operands(c.sizes, c.operands);
  std::vector<double> output = all.output, log_sum = all.log_sum;
  const int64_t width = c.sizes.query_heads * c.sizes.value_size;
  Numbers bias(c.operands.relative_bias.size(), not_a_number), span(c.operands.span.size(), not_a_number),
      slots(c.operands.slot_key.size(), not_a_number);
  const int64_t slot_stride = c.sizes.kv_heads * c.sizes.head_size;
  AttentionProblem<double> p = c.problem<double>();
  operands.give_to(p);
  p.output = {output.data(), width}, p.log_sum = log_sum.data(), p.output_gradient = {c.output_gradient.data(), width};
  p.statistics_gradients = {all.positive_sum.data(), all.entropy.data(), c.sum_gradient.data(),
                            c.entropy_gradient.data()};
  p.gradients = {.slot_key = {slots.data(), slot_stride}, .relative_bias = bias.data(), .span = span.data()};
  attention_backward(p, {});
  CHECK(difference(bias, all.gradients.relative_bias) == 0);
  CHECK(difference(span, all.gradients.span) == 0);
  CHECK(difference(slots, all.gradients.slot_key) == 0);
}

}  // namespace orrery
