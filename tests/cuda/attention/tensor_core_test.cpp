// Attention on tensor cores, of a GPU or its emulation, against a plain loop in f64.
#include <algorithm>

#include "engine/loops/loops.h"  // so that nvcc compiles this file
#include "tests/cuda/attention/tensor_core_cases.h"

namespace orrery {
namespace {

// Calls f with the kernels that a driver with tensor maps uses, and in the emulation with the others, too.
template <class F>
void with_all_kernels(const F& f) {
  f();
#if defined(EMULATE_CUDA)
  cuda_on_cpu::options.has_tensor_maps = false;
  f();
  cuda_on_cpu::options.has_tensor_maps = true;
#endif
}

TEST_CASE("attention on tensor cores: every option") {
  if (no_gpu()) return;
  for (const Kind kind : kinds)
    for (int choice = 0; choice < choices; ++choice) {
      CAPTURE(choice);
      check_case(case_with(sizes_of(65, 130, 20, 8), kind, choice));
    }
}

TEST_CASE("attention on tensor cores: every size") {
  if (no_gpu()) return;
  const int64_t tokens[] = {1, 17, 65, 130}, heads[] = {8, 20, 64, 96, 128};
  for (int n = 0; n < 20; ++n) {
    const Sizes sizes = sizes_of(tokens[n % 4], tokens[n / 4 % 4], heads[n % 5], heads[(n / 5 + n) % 5]);
    CAPTURE(sizes.queries);
    CAPTURE(sizes.keys);
    CAPTURE(sizes.head_size);
    CAPTURE(sizes.value_size);
    check_case(case_with(sizes, kinds[n % 3], n % 2 == 0 ? nothing : n % 4 == 1 ? causal : dropout));
  }
  for (const Kind kind : kinds) check_case(case_with(sizes_of(130, 130, 128, 96), kind, everything));
}

TEST_CASE("attention on tensor cores: tiles that are hidden, and window edges between them") {
  if (no_gpu()) return;
  Sizes sizes = sizes_of(200, 330, 8, 8);
  sizes.batch = sizes.query_heads = sizes.kv_heads = 1;
  for (const int64_t width : {1, 31, 32, 33, 64, 65, 128})
    for (const int64_t at : {-70, -1, 0, 63, 64, 128, 300}) {
      CAPTURE(width);
      CAPTURE(at);
      Case c = case_with(sizes, Kind::gelu_tanh, nothing);
      c.options.window = width, c.options.query_offset = at, c.options.causal = (width + at) % 2 == 0;
      check_case(c);
    }
}

TEST_CASE("attention on tensor cores: a mask's table over many tiles, alone and with a band") {
  if (no_gpu()) return;
  for (const Kind kind : kinds)
    for (const bool is_causal : {false, true})
      for (const int64_t size : {64, 128}) {
        Sizes sizes = sizes_of(300, 330, size, size);
        sizes.batch = 1, sizes.query_heads = 2, sizes.kv_heads = 1;
        Case c = case_with(sizes, kind, table);
        c.options.causal = is_causal, c.options.query_offset = is_causal ? 30 : 0;
        with_all_kernels([&] { check_case(c); });
      }
}

// ---- exact cases

TEST_CASE("attention on tensor cores: integers give exactly the results of the plain loop, in every order of threads") {
  if (no_gpu()) return;
  for (const int64_t head_size : {20, 64, 128})
    for (const int choice : {causal, everything}) {
      CAPTURE(head_size);
      CAPTURE(choice);
      const Case c = whole_case(sizes_of(65, 130, head_size, head_size), choice);
      const Results expected = plain(c);
      with_all_kernels([&] { in_every_order([&] { CHECK(same_when_rounded(on_tensor_cores(c), expected)); }); });
    }
}

TEST_CASE("attention on tensor cores: results are bit-identical in every order of threads and in every run") {
  if (no_gpu()) return;
  for (const Kind kind : kinds) {
    Case c = case_with(sizes_of(65, 130, 64, 20), kind, everything);
    c.fill(true);
    const Results first = on_tensor_cores(c);
    in_every_order([&] { CHECK(same_bits(on_tensor_cores(c), first)); });
  }
}

// ---- masked keys and queries

TEST_CASE("attention on tensor cores: a fully masked query has output 0 and zero gradients") {
  if (no_gpu()) return;
  for (const Kind kind : kinds) {
    Case c = case_with(sizes_of(17, 70, 20, 8), kind, nothing);
    c.lengths = {0, 70};
    c.fill(true);
    const Results r = on_tensor_cores(c);
    each_result_of(r, r, [](const char* name, const Numbers& x, const Numbers&) {
      CAPTURE(name);
      const auto zero = [](double e) { return e == 0; };
      CHECK(std::all_of(x.begin(), x.begin() + static_cast<int64_t>(x.size()) / 2, zero));
      CHECK_FALSE(std::all_of(x.begin(), x.end(), zero));
    });
    if (kind == Kind::softmax) CHECK(r.log_sum[0] == -INFINITY);
  }
}

TEST_CASE("attention on tensor cores: no keys, no queries, no sequences") {
  if (no_gpu()) return;
  for (const Kind kind : kinds)
    for (const int none : {0, 1, 2}) {
      Sizes sizes = sizes_of(17, 17, 8, 20);
      (none == 0 ? sizes.keys : none == 1 ? sizes.queries : sizes.batch) = 0;
      Case c = case_with(sizes, kind, nothing);
      c.fill(true);
      const Results found = on_tensor_cores(c), expected = plain(c);
      each_result_of(found, expected, [](const char*, const Numbers& a, const Numbers& b) { CHECK(a == b); });
    }
}

TEST_CASE("attention on tensor cores: NaN in masked keys and values has no influence") {
  if (no_gpu()) return;
  for (const Kind kind : kinds)
    for (const int64_t width : {8, 96}) {
      Sizes sizes = sizes_of(70, 70, width, width);
      sizes.batch = 1, sizes.query_heads = sizes.kv_heads = 1;
      Case c = case_with(sizes, kind, causal);
      c.fill(true);
      const Results clean = on_tensor_cores(c);
      const auto equal = [&](const Numbers& a, const Numbers& b, int64_t begin, int64_t end) {
        return std::equal(a.begin() + begin * width, a.begin() + end * width, b.begin() + begin * width);
      };
      Case later = c;  // visible from query 40 on
      for (Numbers* x : {&later.operands.key, &later.operands.value}) (*x)[static_cast<size_t>(40 * width)] = NAN;
      const Results of_key = on_tensor_cores(later);
      CHECK(equal(of_key.output, clean.output, 0, 40));
      CHECK(equal(of_key.gradients.query, clean.gradients.query, 0, 40));
      if (kind != Kind::relu) CHECK_FALSE(finite(of_key.output, 40 * width, 41 * width));  // relu maps NaN to 0

      Case earlier = c;  // query 20 attends to keys up to 20
      for (Numbers* x : {&earlier.operands.query, &earlier.output_gradient})
        (*x)[static_cast<size_t>(20 * width)] = NAN;
      const Results of_query = on_tensor_cores(earlier);
      CHECK(equal(of_query.gradients.key, clean.gradients.key, 21, 70));
      CHECK(equal(of_query.gradients.value, clean.gradients.value, 21, 70));
      CHECK(equal(of_query.output, clean.output, 21, 70));
      CHECK_FALSE(finite(of_query.gradients.key, 20 * width, 21 * width));
    }
}

TEST_CASE("attention on tensor cores: tiles without a positive score are skipped if that does not change the result") {
  if (no_gpu()) return;
  Case c = case_with(sizes_of(65, 130, 60, 60), Kind::relu, causal);  // by warps: groups skip no tile for its scores
  c.fill(true);
  CHECK(same_bits(attention_on_gpu<bf16>(c, MarkedRelu{{}, true}), attention_on_gpu<bf16>(c, MarkedRelu{{}, false})));
  c.options.causal = false;
  std::fill(c.operands.query.begin(), c.operands.query.end(), 1.);
  std::fill(c.operands.key.begin(), c.operands.key.end(), -1.);
  std::fill(c.operands.value.begin(), c.operands.value.end(), not_a_number);
  const auto size = [](const Numbers& x) { return static_cast<int64_t>(x.size()); };
  const Results skipped = attention_on_gpu<bf16>(c, MarkedRelu{{}, true});
  CHECK(finite(skipped.output, 0, size(skipped.output)));  // adding 0 x NaN would give NaN
  CHECK(finite(skipped.gradients.query, 0, size(skipped.gradients.query)));
}

TEST_CASE("attention on tensor cores: fits_tensor_cores rejects unsupported cases") {
  const float number = 0;
  const auto fits = [](auto change) {
    AttentionProblem<float> p = Case{.sizes = sizes_of(1, 1, 128, 128)}.problem<float>();
    p.is_bf16 = true;
    change(p);
    return cuda::fits_tensor_cores(p);
  };
  CHECK(fits([](auto&) {}));
  CHECK_FALSE(fits([](auto& p) { p.is_bf16 = false; }));
  CHECK_FALSE(fits([](auto& p) { p.slots = 1; }));
  CHECK_FALSE(fits([](auto& p) { p.head_size = 129; }));
  CHECK_FALSE(fits([](auto& p) { p.value_size = 129; }));
  CHECK_FALSE(fits([&](auto& p) { p.relative_embedding = {&number, 1}; }));
  CHECK_FALSE(fits([&](auto& p) { p.relative_bias = &number; }));
  CHECK_FALSE(fits([&](auto& p) { p.span = &number; }));
  CHECK_FALSE(fits([&](auto& p) { p.statistics_gradients.sum_gradient = &number; }));
  CHECK_FALSE(fits([&](auto& p) { p.statistics_gradients.entropy_gradient = &number; }));
  CHECK(cuda::tensor_core_weighting<float, MarkedRelu>);
  CHECK_FALSE(cuda::tensor_core_weighting<double, MarkedRelu>);
  CHECK_FALSE(cuda::tensor_core_weighting<float, cuda::PointwiseWeights<Relu>>);
}

#if defined(EMULATE_CUDA)
bool one_sequence_is_right(int64_t width) {
  Sizes sizes = sizes_of(65, 130, width, width);
  sizes.batch = 1;
  const Case c = whole_case(sizes, causal);
  return same_when_rounded(on_tensor_cores(c), plain(c));
}
TEST_CASE("every barrier of attention on tensor cores is needed") {
  if (thread_sanitizer) return;
  check_that_every_barrier_is_needed("cuda/attention/tensor_core_tile.cuh", [] { return one_sequence_is_right(20); });
}
TEST_CASE("an insufficient wait for copies changes attention on tensor cores") {
  if (thread_sanitizer) return;
  cuda_on_cpu::options.has_tensor_maps = false;  // else these copies are not used
  CHECK(one_sequence_is_right(24));
  cuda_on_cpu::options.lax_waits = true;
  CHECK_FALSE(one_sequence_is_right(24));
  cuda_on_cpu::options = {};
}
#endif

}  // namespace
}  // namespace orrery
