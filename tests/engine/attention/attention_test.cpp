#include "engine/attention/attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "engine/system/parallel.h"
#include "tests/support/fused_attention.h"
#include "tests/support/message.h"
#include "tests/support/plain_attention.h"
#include "tests/support/rounded_attention.h"

namespace orrery {
namespace {

using namespace testing;

// Returns cases for these sizes with every mask, alone and combined.
std::vector<Case> masks(const Sizes& s) {
  const int64_t offset = s.keys - s.queries;
  const auto with = [&](CaseOptions o) { return Case{.sizes = s, .options = o}; };
  std::vector<Case> cases = {with({.scale = 0.3}),
                             with({.scale = 0.3, .causal = true}),
                             with({.scale = 0.3, .causal = true, .query_offset = offset}),
                             with({.scale = 0.3, .causal = true, .query_offset = -1}),
                             with({.scale = 0.3, .causal = true, .attend_to_self = false}),
                             with({.scale = 0.3, .attend_to_self = false, .query_offset = offset}),
                             with({.scale = 0.3, .query_offset = offset / 2, .window = 20}),
                             with({.scale = 0.3, .causal = true, .query_offset = offset, .window = 9})};
  Case lengths = with({.scale = 0.3}), documents = with({.scale = 0.3}),
       together = with({.scale = 0.3, .causal = true, .window = 70});
  for (int64_t b = 0; b < s.batch; ++b) {
    lengths.lengths.push_back(static_cast<int32_t>(s.keys * (b + 1) / (s.batch + 1)));
    for (int64_t i = 0; i < s.queries; ++i)
      documents.query_document_ids.push_back(static_cast<int32_t>((i + offset + 3 * b) / 25));
    for (int64_t j = 0; j < s.keys; ++j) documents.key_document_ids.push_back(static_cast<int32_t>((j + 3 * b) / 25));
  }
  together.lengths = lengths.lengths, together.options.dropout = 0.2, together.options.rng_key = RandomKey{5, 6};
  together.query_document_ids = documents.query_document_ids, together.key_document_ids = documents.key_document_ids;
  Case table = with({.scale = 0.3}), in_table = together;
  table.table = in_table.table = mixed_table(s.queries, s.keys);
  cases.insert(cases.end(), {lengths, documents, together, table, in_table});
  return cases;
}

const Sizes ragged[] = {
    {.batch = 2, .queries = 65, .keys = 65, .query_heads = 2, .kv_heads = 2, .head_size = 16, .value_size = 16},
    {.batch = 1, .queries = 300, .keys = 300, .query_heads = 2, .kv_heads = 1, .head_size = 32, .value_size = 16},
    {.batch = 2, .queries = 1, .keys = 150, .query_heads = 4, .kv_heads = 2, .head_size = 24, .value_size = 40},
    {.batch = 1, .queries = 70, .keys = 131, .query_heads = 6, .kv_heads = 2, .head_size = 3, .value_size = 5}};

template <class T>
void check_all(double tolerance) {
  for (const Sizes& sizes : ragged)
    for (Case& c : masks(sizes))
      for (const Kind kind : kinds) {
        c.kind = kind;
        c.fill(std::is_same_v<T, bf16>);
        const Results expected = plain(c);
        for (const char* set : instruction_sets<T>()) {
          use_attention_instruction_set(set);
          const Results found = attention_of<T>(c);
          if (std::string(set) == "avx512_bf16")
            check_rounded_twice(c, found, expected);
          else
            check_equal(c, found, expected, tolerance);
        }
      }
}

}  // namespace

TEST_CASE("attention agrees with a plain loop under every mask") {
  SUBCASE("f64") { check_all<double>(1e-12); }
  SUBCASE("f32") { check_all<float>(6e-5); }
  SUBCASE("bf16") { check_all<bf16>(3e-2); }
}

TEST_CASE("attention is bit-identical for any number of threads") {
  const Sizes few{1, 520, 391, 2, 1, 32, 48}, many{7, 70, 70, 4, 4, 16, 16};  // scheduled in rounds of groups; by head
  for (const Sizes& sizes : {few, many})
    for (const Kind kind : kinds) {
      Case c{.sizes = sizes, .options = {.scale = 0.2, .causal = true, .dropout = 0.1}, .kind = kind};
      c.fill();
      const int before = thread_count();
      set_thread_count(1);
      const Results one = attention_of<float>(c);
      for (const int threads : {2, 3}) {
        set_thread_count(threads);
        check_equal(c, attention_of<float>(c), one, 0);
      }
      set_thread_count(before);
    }
}

TEST_CASE("attention: a fully masked query has output 0 and zero gradients, for any values") {
  for (const Kind kind : kinds) {
    Case c{.sizes = {2, 70, 40, 2, 2, 16, 24},
           .options = {.scale = 0.3, .causal = true, .query_offset = -1},
           .kind = kind};
    c.lengths = {40, 0};
    c.fill();
    Case clean = c;
    const auto poison = [](Numbers& x, size_t begin, size_t n) {
      std::fill_n(x.begin() + static_cast<int64_t>(begin), n, not_a_number);
    };
    poison(c.operands.key, c.operands.key.size() / 2, c.operands.key.size() / 2),
        poison(c.operands.value, c.operands.value.size() / 2, c.operands.value.size() / 2);  // sequence 1
    poison(c.operands.query, c.operands.query.size() / 2, c.operands.query.size() / 2),
        poison(c.operands.query, 0, 32);  // query 0 of sequence 0
    poison(c.output_gradient, c.output_gradient.size() / 2, c.output_gradient.size() / 2),
        poison(c.output_gradient, 0, 48);
    for (const char* set : instruction_sets()) {
      use_attention_instruction_set(set);
      const Results expected = plain(clean), dirty = attention_of<float>(c);
      check_equal(c, dirty, expected, 6e-5);
      for (size_t i = 0; i < 48; ++i) CHECK(dirty.output[i] == 0);
      for (size_t i = dirty.output.size() / 2; i < dirty.output.size(); ++i) CHECK(dirty.output[i] == 0);
      for (size_t i = dirty.gradients.key.size() / 2; i < dirty.gradients.key.size(); ++i)
        CHECK(dirty.gradients.key[i] == 0);
      if (kind == Kind::softmax) CHECK(dirty.log_sum[0] == -INFINITY);
    }
  }
}

// avx512_bf16 does not round a tile with NaN or infinity, so its other rows round differently.
template <class T>
void check_reach_of_nonfinite(Kind kind, double bad, double tolerance) {
  Case c{.sizes = {1, 100, 100, 1, 1, 16, 16}, .options = {.scale = 0.3, .causal = true}, .kind = kind};
  for (int i = 0; i < 100; ++i) c.query_document_ids.push_back(i >= 37 && i < 80);  // document 1 is inside document 0
  c.key_document_ids = c.query_document_ids;
  c.fill(std::is_same_v<T, bf16>);
  const Results clean = attention_of<T>(c);
  for (Numbers* x : {&c.operands.query, &c.operands.key, &c.operands.value, &c.output_gradient})
    std::fill_n(x->begin() + 40 * 16, 16, bad);  // token 40
  const Results dirty = attention_of<T>(c);
  const auto untouched = [&](const Numbers& a, const Numbers& b, size_t begin, size_t end) {
    for (size_t i = begin * 16; i < end * 16; ++i)
      CHECK(std::abs(a[i] - b[i]) <= tolerance * std::max(1., std::abs(b[i])));
  };
  const auto untouched_outside = [&](const Numbers& a, const Numbers& b) {
    untouched(a, b, 0, 37), untouched(a, b, 80, 100);
  };
  untouched_outside(dirty.output, clean.output), untouched_outside(dirty.gradients.query, clean.gradients.query);
  untouched_outside(dirty.gradients.key, clean.gradients.key);
  untouched_outside(dirty.gradients.value, clean.gradients.value);
  untouched(dirty.output, clean.output, 37, 40);                         // tokens before 40, by causality
  if (kind != Kind::relu) CHECK(!std::isfinite(dirty.output[40 * 16]));  // relu may skip NaN
}

TEST_CASE("attention: NaN and infinity reach only queries that attend to them") {
  for (const Kind kind : kinds)
    for (const double bad : {not_a_number, double{INFINITY}}) {
      check_reach_of_nonfinite<float>(kind, bad, 0);
      for (const char* set : instruction_sets<bf16>()) {
        use_attention_instruction_set(set);
        check_reach_of_nonfinite<bf16>(kind, bad, std::string(set) == "avx512_bf16" ? 3e-2 : 0);
      }
    }
}

TEST_CASE("attention in bf16: a key masked for every query has zero gradients, even if it is NaN") {
  for (const char* set : instruction_sets<bf16>()) {
    use_attention_instruction_set(set);
    for (const Kind kind : kinds)
      for (const int64_t queries : {16, 17, 63, 99}) {
        Case c{.sizes = {1, queries, 40, 1, 1, 16, 16}, .options = {.scale = 0.3}, .kind = kind};
        c.query_document_ids.assign(static_cast<size_t>(queries), 1);
        c.key_document_ids.assign(40, 1), c.key_document_ids[5] = 0;
        c.fill(true);
        std::fill_n(c.operands.key.begin() + 5 * 16, 16, not_a_number);
        const Results found = attention_of<bf16>(c);
        for (size_t i = 5 * 16; i < 6 * 16; ++i) {
          CHECK(found.gradients.key[i] == 0);
          CHECK(found.gradients.value[i] == 0);
        }
        for (const double o : found.output) CHECK(std::isfinite(o));
      }
  }
}

TEST_CASE("attention: dropout keeps the mean and the fraction 1 - p of the weights") {
  Case c{.sizes = {2, 200, 300, 2, 2, 4, 1}, .options = {.scale = 0, .dropout = 0.25}};
  c.options.rng_key = RandomKey{3, 4};
  c.fill();
  std::fill(c.operands.value.begin(), c.operands.value.end(), 1.);  // o_i = (number kept) / (0.75 * 300)
  double mean = 0, square = 0;
  const Numbers output = attention_of<float>(c).output;
  for (const double o : output) mean += o / static_cast<double>(output.size());
  for (const double o : output) square += (o - mean) * (o - mean) / static_cast<double>(output.size());
  CHECK(std::abs(mean - 1) < 0.005);                         // standard error 0.0012
  CHECK(std::abs(square / (0.25 / 0.75 / 300) - 1) < 0.25);  // variance of independent draws
}

TEST_CASE("attention: a feed-forward is attention over weights") {
  const int64_t tokens = 37, width = 20, hidden = 130;
  Case c{.sizes = {1, tokens, hidden, 1, 1, width, width}, .kind = Kind::gelu_tanh};
  c.fill();
  for (Numbers* x : {&c.operands.query, &c.operands.key, &c.operands.value})
    for (double& e : *x) e *= 0.5;
  Numbers y(c.operands.query.size()), dx = y, dw_in(c.operands.key.size()), dw_out = dw_in;
  const auto at = [&](int64_t row, int64_t column) { return static_cast<size_t>(row * width + column); };
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t n = 0; n < hidden; ++n) {
      double z = 0, dh = 0;
      for (int64_t d = 0; d < width; ++d)
        z += c.operands.query[at(t, d)] * c.operands.key[at(n, d)],
            dh += c.output_gradient[at(t, d)] * c.operands.value[at(n, d)];
      const Slope<double> f = evaluate(Kind::gelu_tanh, z);
      for (int64_t d = 0; d < width; ++d) {
        y[at(t, d)] += f.value * c.operands.value[at(n, d)], dw_out[at(n, d)] += f.value * c.output_gradient[at(t, d)];
        dx[at(t, d)] += dh * f.derivative * c.operands.key[at(n, d)],
            dw_in[at(n, d)] += dh * f.derivative * c.operands.query[at(t, d)];
      }
    }
  const Results r = attention_of<double>(c);
  CHECK(difference(r.output, y) <= 1e-12);
  CHECK(difference(r.gradients.query, dx) <= 1e-12);
  CHECK(difference(r.gradients.key, dw_in) <= 1e-12);
  CHECK(difference(r.gradients.value, dw_out) <= 1e-12);
}

TEST_CASE("attention: large scores, underflow and skipped tiles") {
  Case c{.sizes = {1, 64, 300, 1, 1, 16, 16}, .options = {.scale = 40}};
  c.fill();
  const Results r = attention_of<double>(c), expected = plain(c);  // scores of several hundred
  CHECK(difference(r.output, expected.output) <= 1e-11);
  CHECK(difference(r.gradients.key, expected.gradients.key) <= 1e-10);
  CHECK(difference(r.entropy, expected.entropy) <= 1e-11);
  const Results narrow = attention_of<float>(c);
  for (const double fraction : narrow.zero_fraction) CHECK(fraction > 0.5);
  CHECK(difference(narrow.sum, Numbers(64, 1.)) < 1e-4);  // the rounding of these scores

  c.kind = Kind::relu, c.options.scale = 0.25;
  for (size_t i = 0; i < c.operands.query.size(); ++i) c.operands.query[i] = std::abs(c.operands.query[i]);
  for (size_t i = 128 * 16; i < c.operands.key.size(); ++i)
    c.operands.key[i] = -std::abs(c.operands.key[i]);  // no positive score beyond the first tile
  tiles_pulled_back = 0;
  check_equal(c, attention_of<double>(c), plain(c), 1e-12);
  CHECK(tiles_pulled_back == 1);
}

// Tiles of a CPU have 128 keys; a table also hides one half of such a tile.
TEST_CASE("attention: forward and backward compute no tile that the mask's table hides") {
  for (const Kind kind : {Kind::softmax, Kind::gelu_tanh})
    for (const int64_t side : {64, 128, 256}) {
      Case c{.sizes = {1, 512, 512, 1, 1, 16, 16}, .options = {.scale = 0.3}, .kind = kind};
      c.fill();
      const int64_t whole = attention_of<float>(c).work;
      c.table = TestTable(512, 512, [=](int64_t i, int64_t j) { return (i / side + j / side) % 2 == 0; });
      check_equal(c, attention_of<float>(c), plain(c), 6e-5);
      CHECK(2 * attention_of<float>(c).work == whole);
    }
}

TEST_CASE("attention: unrequested gradients, and empty sizes") {
  Case c{.sizes = {1, 20, 30, 1, 1, 16, 16}};
  c.fill();
  const Results all = attention_of<double>(c);
  Numbers output(c.operands.query.size()), log_sum(20), dk(c.operands.key.size());
  const auto run = [&](AttentionProblem<double> p, const AttentionGradients<double>& gradients) {
    p.query = {c.operands.query.data(), 16}, p.key = {c.operands.key.data(), 16},
    p.value = {c.operands.value.data(), 16};
    p.output = {output.data(), 16}, p.log_sum = log_sum.data();
    if (p.queries > 0) attention_forward(p, {});
    p.output_gradient = {c.output_gradient.data(), 16}, p.gradients = gradients;
    attention_backward(p, {});
  };
  AttentionProblem<double> p = c.problem<double>();
  run(p, {.key = {dk.data(), 16}});
  CHECK(dk == all.gradients.key);

  Numbers dq(c.operands.query.size(), not_a_number);
  p.keys = 0;
  run(p, {.query = {dq.data(), 16}});
  CHECK(output == Numbers(output.size()));
  CHECK(dq == Numbers(dq.size()));
  p.keys = 30, p.queries = 0;
  run(p, {.key = {dk.data(), 16}});
  CHECK(dk == Numbers(dk.size()));
}

TEST_CASE("attention: errors name inputs that do not fit") {
  const auto tokens = [](int64_t time, int64_t heads, int64_t size) { return Tensor::zeros({1, time, heads, size}); };
  const auto run = [&](const AttentionOptions& o, const Tensor& query) {
    const Tensor key = tokens(4, 2, query.size(3));
    attention_forward({.query = query, .key = key, .value = key}, o, {});
  };
  const auto error = [&](const AttentionOptions& o, const Tensor& query) {
    return expect_error([&] { run(o, query); });
  };
  const Tensor good = tokens(4, 2, 16), length = Tensor::from({1}, std::vector<int32_t>{5}),
               documents = Tensor::zeros({1, 4}, Dtype::i32);
  CHECK_NOTHROW(run({}, good));
  const std::string of_keys = "(1, 4, 2, 16)", axes = "(batch, time, heads, size)";
  error({}, tokens(4, 3, 16)).value("(1, 4, 3, 16)").value(of_keys).value(of_keys).offers(axes).offers("multiple");
  error({}, tokens(4, 2, 0)).names("head size").value(0).names("value size").value(0).offers(1);
  error({.mask = {.window = -1}}, good).names("attention").names("window").value(-1).offers("keys").offers(0);
  error({.dropout = 1}, good).names("attention").names("dropout").value(1).offers("[0, 1)");
  error({.mask = {.lengths = length}}, good).names("length").value(5).names("sequence 0").offers("[0, 4]");
  const AttentionMask of_half{.key_document_ids = documents};
  error({.mask = of_half}, good).names("attention").names("document ids").value("keys").value("queries").offers("both");
  const auto use_mmx = [] { use_attention_instruction_set("mmx"); };
  expect_error(use_mmx).names("attention").value("mmx").offers("avx2").offers("avx512").offers("avx512_bf16");
}

}  // namespace orrery
