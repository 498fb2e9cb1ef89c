// Attention kernels, on a GPU or its emulation, against a plain f64 loop over queries and keys.
#include <algorithm>

#include "engine/loops/loops.h"  // so that nvcc compiles this file
#include "tests/cuda/attention/on_gpu.h"
#include "tests/support/attention_choices.h"

namespace orrery {
namespace {

template <class T>
void check_case(Case& c, double tolerance) {
  c.fill(std::is_same_v<T, bf16>);
  const Results expected = plain(c);
  const Results moved = c.regularized ? plain_moved(c, std::numeric_limits<Arithmetic<T>>::epsilon()) : Results();
  check_equal(c, attention_on_gpu<T>(c), expected, tolerance, c.regularized ? &moved : nullptr);
}
template <class T>
void check_some(const Sizes& sizes, uint64_t n, double tolerance) {
  for (const Kind kind : kinds)
    for (uint64_t i = 0; i < n; i += one_of(6)) {
      const auto bits = RandomKey{static_cast<uint64_t>(kind), 9}.bits(i)[0];
      CAPTURE(bits % all_choices);
      Case c = case_of(bits % all_choices, sizes, kind);
      check_case<T>(c, tolerance);
    }
}

const Sizes wide{.batch = 1,  // heads with several panels and more than one chunk
                 .queries = 33,
                 .keys = 40,
                 .query_heads = 2,
                 .kv_heads = 1,
                 .head_size = 131,
                 .value_size = 147,
                 .slots = 2},
    long_row{.batch = 1,
             .queries = 150,
             .keys = 211,
             .query_heads = 2,
             .kv_heads = 1,
             .head_size = 16,
             .value_size = 16,
             .slots = 67};

TEST_CASE("attention on a GPU: every combination of options agrees with a plain loop") {
  if (no_gpu()) return;
  for (uint32_t bits = 0; bits < all_choices; bits += one_of(97)) {
    CAPTURE(bits);
    Case c = case_of(bits, small, kinds[(bits ^ bits >> 4 ^ bits >> 8) % 3]);
    check_case<double>(c, 1e-12);
  }
}

TEST_CASE("attention on a GPU: combinations of options at every size") {
  if (no_gpu()) return;
  for (const Sizes& sizes : {one, medium, wide, long_row}) {
    CAPTURE(name_of(sizes));
    check_some<double>(sizes, sizes.queries < 33 ? 30 : 6, 1e-12);
    check_some<float>(sizes, sizes.queries < 33 ? 30 : 6, 2e-4);
  }
  check_some<bf16>(medium, 4, 0.1);
}

TEST_CASE("attention on a GPU: all masks and all options at once") {
  if (no_gpu()) return;
  for (const Sizes& sizes : {small, medium, wide, long_row})
    for (const Kind kind : kinds) {
      CAPTURE(name_of(sizes));
      Case c = all_options_at_once(sizes, kind);
      check_case<double>(c, 1e-12);
      check_case<float>(c, 2e-4);
    }
}

// ---- exact cases

double worst_difference(const Results& a, const Results& b) {
  double worst = std::max(difference(a.output, b.output), difference(a.log_sum, b.log_sum));
  const auto of_a = a.gradients.all(), of_b = b.gradients.all();
  for (size_t i = 0; i < of_a.size(); ++i) worst = std::max(worst, difference(*of_a[i], *of_b[i]));
  for (const auto statistic :
       {&Results::sum, &Results::positive_sum, &Results::entropy, &Results::zero_fraction, &Results::maximum})
    worst = std::max(worst, difference(a.*statistic, b.*statistic));
  return worst;
}

void make_whole(Case& c) {
  uint64_t seed = 31;
  for (Numbers* x :
       {&c.operands.query, &c.operands.key, &c.operands.value, &c.operands.slot_key, &c.operands.slot_value,
        &c.operands.relative_embedding, &c.operands.relative_bias, &c.operands.span, &c.output_gradient}) {
    ++seed;
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] = std::round(2.4 * random_number(seed, i));
  }
  for (double& z : c.operands.span) z += 20;
}
bool same_sums(const Results& a, const Results& b) {
  const auto of_a = a.gradients.all(), of_b = b.gradients.all();
  bool same = a.output == b.output && a.sum == b.sum && a.maximum == b.maximum;
  for (size_t i = 0; i < of_a.size(); ++i) same = same && *of_a[i] == *of_b[i];
  return same;
}

// Whole numbers make relu, its sums and gradients exact in f32 in any order; ramps use quarters.
Case whole_case(Sizes sizes, bool with_span) {
  Case c{.sizes = sizes, .options = {.query_offset = 2, .window = 45}, .kind = Kind::relu};
  c.biased = c.positioned = true, c.spanned = with_span, c.options.ramp = with_span ? 4 : 0;
  c.options.dropout = 0.5, c.options.rng_key = RandomKey{3, 4};
  for (int64_t b = 0; b < sizes.batch; ++b) c.lengths.push_back(static_cast<int32_t>(sizes.keys - 7 * b));
  c.fill();
  make_whole(c);
  return c;
}

TEST_CASE("attention on a GPU: integers give exactly the results of the plain loop, in every order of threads") {
  if (no_gpu()) return;
  for (const Sizes& sizes : {small, medium, wide})
    for (const bool with_span : {false, true}) {
      CAPTURE(name_of(sizes));
      const Case c = whole_case(sizes, with_span);
      const Results expected = plain(c);
      in_every_order([&] {
        CHECK(same_sums(attention_on_gpu<float>(c), expected));
        CHECK(same_sums(attention_on_gpu<double>(c), expected));
      });
    }
}

TEST_CASE("attention on a GPU: a span has a gradient at both ends of its ramp") {
  if (no_gpu()) return;
  for (const Kind kind : kinds)
    for (const bool per_query : {false, true}) {
      Case c = all_options_at_once(small, kind);
      c.options.span_per_query = per_query, c.options.ramp = 5;
      c.fill();
      for (size_t i = 0; i < c.operands.span.size(); ++i) c.operands.span[i] = static_cast<double>(i % 7) - 5;
      CAPTURE(per_query);
      check_equal(c, attention_on_gpu<double>(c), plain(c), 1e-12);
    }
}

TEST_CASE("attention on a GPU: windows and offsets that end at the edges of tiles") {
  if (no_gpu()) return;
  const Sizes sizes{
      .batch = 1, .queries = 70, .keys = 135, .query_heads = 1, .kv_heads = 1, .head_size = 3, .value_size = 3};
  for (const int64_t window : {0, 1, 2, 31, 32, 33, 34, 64, 65, 66}) {
    if (thread_sanitizer && window != 33) continue;
    for (const int64_t offset : {-33, -1, 0, 1, 31, 32, 63, 65, 200}) {
      CAPTURE(window);
      CAPTURE(offset);
      Case c = whole_case(sizes, false);
      c.options.window = window, c.options.query_offset = offset, c.options.causal = (window + offset) % 2 == 0;
      c.fill();
      make_whole(c);
      const Results expected = plain(c);
      CHECK(same_sums(attention_on_gpu<float>(c), expected));
      CHECK(same_sums(attention_on_gpu<double>(c), expected));
    }
  }
}

TEST_CASE("attention on a GPU: a score of minus infinity has weight 0 and gradient 0") {
  if (no_gpu()) return;
  Case c{.sizes = medium, .options = {.scale = 0.3}, .kind = Kind::softmax};
  c.biased = true, c.regularized = true;
  c.fill();
  for (size_t distance = 3; distance < c.operands.relative_bias.size(); distance += 4)
    c.operands.relative_bias[distance] = -INFINITY;
  const Results expected = plain(c);
  CHECK(difference(expected.gradients.query, expected.gradients.query) == 0);  // no NaN
  Results found = attention_on_gpu<double>(c);
  found.zero_fraction = expected.zero_fraction;  // the plain loop counts no zeros of softmax
  check_equal(c, found, expected, 1e-12);
}

TEST_CASE("attention on a GPU: results are bit-identical in every order of threads and in every run") {
  if (no_gpu()) return;
  for (const Kind kind : kinds) {
    Case c = all_options_at_once(medium, kind);
    c.fill();
    const Results first = attention_on_gpu<float>(c), first_of_doubles = attention_on_gpu<double>(c);
    in_every_order([&] {
      CHECK(worst_difference(attention_on_gpu<float>(c), first) == 0);
      CHECK(worst_difference(attention_on_gpu<double>(c), first_of_doubles) == 0);
    });
  }
}

// ---- masked keys and queries

TEST_CASE("attention on a GPU: a fully masked query has output 0 and zero gradients") {
  if (no_gpu()) return;
  for (const Kind kind : kinds) {
    Case c{.sizes = medium, .options = {.scale = 0.3}, .kind = kind};
    c.sizes.slots = 0, c.regularized = true, c.lengths = {0, 70};
    c.fill();
    const Results r = attention_on_gpu<float>(c);
    const auto zero = [](const Numbers& x, size_t n) {
      return std::all_of(x.begin(), x.begin() + static_cast<int64_t>(n), [](double e) { return e == 0; });
    };
    CHECK(zero(r.output, r.output.size() / 2));
    CHECK(zero(r.gradients.query, r.gradients.query.size() / 2));
    CHECK(zero(r.gradients.key, r.gradients.key.size() / 2));
    CHECK(zero(r.gradients.value, r.gradients.value.size() / 2));
    for (const auto statistic :
         {&Results::sum, &Results::positive_sum, &Results::entropy, &Results::zero_fraction, &Results::maximum})
      CHECK(zero(r.*statistic, (r.*statistic).size() / 2));
    if (kind == Kind::softmax) CHECK(r.log_sum[0] == -INFINITY);
    CHECK_FALSE(zero(r.output, r.output.size()));
  }
}

TEST_CASE("attention on a GPU: no keys, no queries, no sequences") {
  if (no_gpu()) return;
  for (const Kind kind : kinds)
    for (const int nothing : {0, 1, 2}) {
      Case c = case_of(all_choices - 1 - 1024, small, kind);
      (nothing == 0 ? c.sizes.keys : nothing == 1 ? c.sizes.queries : c.sizes.batch) = 0;
      check_case<double>(c, 1e-12);
    }
}

TEST_CASE("attention on a GPU: NaN in masked keys and values has no influence") {
  if (no_gpu()) return;
  for (const Kind kind : kinds) {
    Case c = case_with_masked_operands(kind);
    const Results clean = attention_on_gpu<float>(c);
    spoil_masked_operands(c);
    const Results dirty = attention_on_gpu<float>(c);
    const auto same = [](const Numbers& a, const Numbers& b, size_t begin, size_t end) {
      return std::equal(a.begin() + static_cast<int64_t>(begin), a.begin() + static_cast<int64_t>(end),
                        b.begin() + static_cast<int64_t>(begin));
    };
    const size_t token = 2 * 20, read = 2 * 8;  // elements of a token in q and in o
    for (const size_t first : {40, 65}) {       // the rest of sequence 0, and sequence 1
      const size_t end = first == 40 ? 65 : 130;
      CHECK(same(dirty.output, clean.output, first * read, end * read));
      CHECK(same(dirty.gradients.query, clean.gradients.query, first * token, end * token));
    }
    CHECK(same(dirty.gradients.key, clean.gradients.key, 70 * token, 140 * token));
    CHECK(std::isnan(dirty.output[4 * read]) == (kind != Kind::relu));  // query 4 attends to key 3; relu maps NaN to 0
  }
}

#if defined(EMULATE_CUDA)
TEST_CASE("every barrier of attention is needed") {
  if (thread_sanitizer) return;
  // Skipped tiles between others: the votes must be those of the whole block.
  Sizes sizes = medium;
  sizes.batch = 1;
  Case c = whole_case(sizes, true);
  const Results expected = plain(c);
  check_that_every_barrier_is_needed("cuda/attention/tile.cuh",
                                     [&] { return same_sums(attention_on_gpu<double>(c), expected); });
}
#endif

}  // namespace
}  // namespace orrery
