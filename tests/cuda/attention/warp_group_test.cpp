// Attention by warp groups, of a GPU or its emulation, against a plain loop in f64.
#include <algorithm>

#include "engine/loops/loops.h"  // so that nvcc compiles this file
#include "tests/cuda/attention/tensor_core_cases.h"

namespace orrery {
namespace {

bool has_no_warp_groups() { return no_gpu() || !cuda::warp_groups() || !cuda::has_tensor_maps(); }

// More tiles of 128 rows than the emulated GPU has multiprocessors, and GPUs that have 132 at 34 sequences.
Sizes many_tiles(int64_t size) {
  Sizes sizes = sizes_of(260, 300, size, size);
  sizes.batch = cuda::device_properties().multiprocessors > 8 ? 34 : 1;
  return sizes;
}

// Blocks of the emulated GPU have three tiles. The first queries see no key and the last keys are masked, and both have
// NaN; all other numbers are whole.
Case with_hidden_nans(int64_t size) {
  Sizes sizes = sizes_of(130, 140, size, size);
  sizes.batch = 1, sizes.query_heads = sizes.kv_heads = cuda::device_properties().multiprocessors + 1;
  Case c = whole_case(sizes, causal);
  c.options.query_offset = -20, c.lengths = {100};
  const int64_t width = sizes.query_heads * size;
  for (Numbers* x : {&c.operands.query, &c.output_gradient}) (*x)[static_cast<size_t>(5 * width)] = NAN;
  for (Numbers* x : {&c.operands.key, &c.operands.value}) (*x)[static_cast<size_t>(105 * width)] = NAN;
  return c;
}

// More tiles of keys than stages. No query sees key 5 of the first tile, which has NaN; all other numbers are whole.
Case with_many_stages(int64_t size) {
  Sizes sizes = sizes_of(65, 700, size, size);
  sizes.batch = sizes.query_heads = sizes.kv_heads = 1;
  Case c = whole_case(sizes, causal);
  c.options.query_offset = 635, c.options.window = 620;
  for (Numbers* x : {&c.operands.key, &c.operands.value}) (*x)[static_cast<size_t>(5 * size)] = NAN;
  return c;
}

TEST_CASE("attention by warp groups: every option, for short and long heads") {
  if (has_no_warp_groups()) return;
  for (const Kind kind : kinds)
    for (int choice = 0; choice < choices; ++choice) {
      CAPTURE(choice);
      check_case(case_with(choice % 2 ? sizes_of(65, 130, 16, 8) : sizes_of(65, 130, 24, 72), kind, choice));
    }
}

TEST_CASE("attention by warp groups: windows and hidden tiles, over several tiles of a block") {
  if (has_no_warp_groups()) return;
  for (const int64_t width : {1, 64, 65, 128})
    for (const int64_t at : {-70, 0, 64, 300}) {
      CAPTURE(width);
      CAPTURE(at);
      Case c = case_with(many_tiles(8), kinds[static_cast<size_t>(width + at + 70) % 3], nothing);
      c.options.window = width, c.options.query_offset = at, c.options.causal = (width + at) % 2 == 0;
      check_case(c);
    }
}

TEST_CASE("attention by warp groups: integers give exactly the results of the plain loop, in every order of threads") {
  if (has_no_warp_groups()) return;
  for (const int64_t size : {64, 128})
    for (const int choice : {causal, everything}) {
      CAPTURE(size);
      CAPTURE(choice);
      Sizes sizes = many_tiles(size);
      sizes.query_heads = sizes.kv_heads = 2;
      const Case c = whole_case(sizes, choice);
      const Results expected = plain(c);
      in_every_order([&] { at_every_landing([&] { CHECK(same_when_rounded(on_tensor_cores(c), expected)); }); });
    }
}

TEST_CASE("attention by warp groups: results are bit-identical in every run") {
  if (has_no_warp_groups()) return;
  for (const Kind kind : kinds) {
    Case c = case_with(many_tiles(64), kind, everything);
    c.fill(true);
    const Results first = on_tensor_cores(c);
    at_every_landing([&] { CHECK(same_bits(on_tensor_cores(c), first)); });
  }
}

// Scores of rows grow by `exponents` powers of two from each tile of 128 keys to the next, or within the second tile.
// Those of every third row fall instead, and every third has constant ones. Row 47 of its warp is the first that does
// not see the first tile, if some are `late`.
Case with_growing_scores(int64_t size, double exponents, bool within, bool late) {
  Sizes sizes = sizes_of(65, 390, size, size);
  sizes.batch = 1, sizes.query_heads = sizes.kv_heads = 2;
  Case c = case_with(sizes, Kind::softmax, nothing);
  c.options.scale = 1;
  if (late) c.options.causal = true, c.options.query_offset = 325, c.options.window = 245;
  c.fill(true);
  const auto rounded = [](double x) { return static_cast<double>(static_cast<float>(bf16(static_cast<float>(x)))); };
  for (double& x : c.operands.query) x = rounded(x / 16);
  const auto first_of_rows = [&](Numbers& x, const auto& value) {
    for (size_t i = 0; i < x.size(); i += static_cast<size_t>(size))
      x[i] = rounded(value(static_cast<double>(i / static_cast<size_t>(2 * size))));
  };
  first_of_rows(c.operands.query, [](double row) { return 1 - std::fmod(row, 3); });
  first_of_rows(c.operands.key, [&](double row) {
    const double tile = within ? std::clamp(row / 128 - 1, 0., 1.) : std::floor(row / 128);
    return std::log(2) * exponents * tile;
  });
  return c;
}
TEST_CASE("attention by warp groups: softmax of scores that grow beyond the first tile's powers") {
  if (has_no_warp_groups()) return;
  for (const double exponents : {10., 70., 200.})
    for (const int n : {0, 1, 2, 3}) {
      CAPTURE(exponents);
      CAPTURE(n);
      const Case c = with_growing_scores(n % 2 ? 64 : 128, exponents, n / 2, n % 2);
      const Results expected = plain(c);
      Results found = on_tensor_cores(c);
      found.gradients.query = expected.gradients.query;  // sums of rounded dt that cancel, times keys of up to 277
      check_rounded_twice(c, found, expected);
    }
}

// F(s) = a s^2
struct Square {
  using tensor_cores = void;
  float a = 1;
  template <class A>
  HOST_DEVICE A value(A s) const {
    return static_cast<A>(a) * s * s;
  }
  template <class A>
  HOST_DEVICE A derivative(A s) const {
    return 2 * static_cast<A>(a) * s;
  }
  template <class A>
  HOST_DEVICE void parameter_derivatives(A s, A* derivatives) const {
    derivatives[0] = s * s;
  }
};
struct SquareOfHead {
  static constexpr int count = 1;
  template <class A>
  HOST_DEVICE static Square of(const Square&, const A* parameters) {
    return {static_cast<float>(*parameters)};
  }
};
TEST_CASE("attention by warp groups: the gradient of a factor of F is <do, o> divided by it") {
  if (has_no_warp_groups()) return;
  for (const int64_t size : {16, 72})
    for (const int choice : {causal, dropout}) {
      Case c = case_with(many_tiles(size), Kind::gelu_tanh, choice);
      c.fill(true);
      const auto heads = static_cast<size_t>(c.sizes.query_heads);
      const std::vector<float> factors = {0.5f, 1, 1.5f, 2};
      REQUIRE(factors.size() == heads);
      NumbersOnDevice<float> parameters(factors), gradients(std::vector<float>(heads, NAN));
      const Results r = attention_on_gpu<bf16>(c, cuda::LearnedWeights<Square, SquareOfHead>{}, [&](auto& p) {
        p.parameters = parameters.data(), p.parameter_count = 1, p.gradients.parameters = gradients.data();
      });
      Numbers expected(heads), sizes(heads);
      for (size_t i = 0; i < r.output.size(); ++i) {
        const size_t head = i / static_cast<size_t>(size) % heads;
        const double term = c.output_gradient[i] * r.output[i] / static_cast<double>(factors[head]);
        expected[head] += term, sizes[head] += term * term;
      }
      const Numbers found = gradients.read();
      for (size_t head = 0; head < heads; ++head)  // o is rounded to bf16
        CHECK(std::abs(found[head] - expected[head]) <= 0.02 * std::sqrt(sizes[head]));
    }
}

using SoftmaxProblem = cuda::WeightedProblem<float, cuda::SoftmaxWeights>;

TEST_CASE("attention by warp groups: the kernel of queries writes c and L of all queries") {
  if (has_no_warp_groups()) return;
  for (const int64_t size : {16, 64, 72, 128}) {
    CAPTURE(size);
    Case c = case_with(many_tiles(size), Kind::softmax, causal);
    c.options.query_offset = -20;  // the first queries see no key
    c.fill(true);
    const size_t of_head = (static_cast<size_t>(c.sizes.queries) + 63) / 64 * 64, heads = 4;
    const std::vector<float> unset(2 * of_head * heads * static_cast<size_t>(c.sizes.batch), NAN);
    DeviceArray<float> found(Device::cuda, unset), by_their_kernel(Device::cuda, unset);
    const Results r = attention_on_gpu<bf16>(c, cuda::SoftmaxWeights{}, [&](const auto& problem) {
      if (!problem.output_gradient.data) return;  // before forward
      SoftmaxProblem p{problem, {}};
      const auto terms_in = [](auto& array) { return reinterpret_cast<cuda::TensorCoreRowTerms*>(array.data()); };
      cuda::with_tensor_core_size(p, [&]<int Size>() {
        launch(cuda::group_attention_launch<cuda::GroupQueriesTiles<Size>>("queries", cuda::query_tiles_of(p)),
               cuda::warp_group_attention_backward_queries_kernel<SoftmaxProblem, Size>, p, *attention_maps(p),
               terms_in(found), nullptr);
      });
      const dim3 blocks(static_cast<unsigned>(heads * static_cast<size_t>(c.sizes.batch)),
                        static_cast<unsigned>(of_head) / cuda::queries_of_terms);
      launch({"terms", blocks, cuda::attention_threads}, cuda::tensor_core_attention_terms_kernel<SoftmaxProblem>, p,
             terms_in(by_their_kernel));
    });
    const Numbers terms = found.read();
    CHECK(terms == by_their_kernel.read());
    REQUIRE(terms.size() == unset.size());
    for (size_t n = 0; n < terms.size() / 2; ++n) {
      const size_t head = n / of_head, i = n % of_head, queries = static_cast<size_t>(c.sizes.queries);
      double log_sum = 0, inner = 0, largest = 0;
      if (i < queries) {
        const double sum = r.log_sum[head * queries + i];
        log_sum = std::isinf(sum) ? INFINITY : sum / std::log(2.0);
        for (size_t v = 0; v < static_cast<size_t>(size); ++v) {
          const size_t at = ((head / heads * queries + i) * heads + head % heads) * static_cast<size_t>(size) + v;
          inner += c.output_gradient[at] * r.output[at], largest += std::abs(c.output_gradient[at] * r.output[at]);
        }
      }
      CHECK((terms[2 * n] == log_sum || std::abs(terms[2 * n] - log_sum) <= 1e-6 * std::abs(log_sum)));
      CHECK(std::abs(terms[2 * n + 1] + inner) <= 1e-6 * largest);
    }
  }
}

TEST_CASE("attention by warp groups: NaN in queries and keys without a visible pair has no influence") {
  if (has_no_warp_groups()) return;
  for (const int64_t size : {64, 128}) {
    for (const Case& c : {with_hidden_nans(size), with_many_stages(size)})
      CHECK(same_when_rounded(on_tensor_cores(c), plain(c)));
  }
}

TEST_CASE("attention by warp groups: other problems and older drivers use the other kernels") {
  if (has_no_warp_groups()) return;
  alignas(16) static bf16 array[64] = {};
  AttentionProblem<float> p = Case{.sizes = sizes_of(130, 130, 64, 128)}.problem<float>();
  const TensorView<const float> aligned{reinterpret_cast<const float*>(array), 512};
  p.query = p.key = p.value = p.output_gradient = aligned;
  const auto fits = [&](const auto& change) {
    AttentionProblem<float> other = p;
    change(other);
    return cuda::attention_maps(other).has_value();
  };
  CHECK(fits([](auto&) {}));
  CHECK_FALSE(fits([](auto& q) { q.head_size = 60; }));
  CHECK_FALSE(fits([](auto& q) { q.value_size = 100; }));
  CHECK_FALSE(fits([](auto& q) { q.query.stride = 516; }));
  CHECK_FALSE(fits([](auto& q) { q.output.stride = 516; }));
  CHECK_FALSE(fits([](auto& q) { q.output.data = reinterpret_cast<float*>(array + 1); }));
  CHECK_FALSE(fits([](auto& q) { q.key.data = reinterpret_cast<const float*>(array + 1); }));
  CHECK_FALSE(fits([](auto& q) { q.keys = 0; }));
#if defined(EMULATE_CUDA)
  cuda_on_cpu::options.has_tensor_maps = false;
  CHECK_FALSE(fits([](auto&) {}));
  cuda_on_cpu::options = {};
#endif
}

#if defined(EMULATE_CUDA)
TEST_CASE("attention by warp groups: terms take another kernel only without gradients of queries") {
  if (has_no_warp_groups()) return;
  Case c = case_with(sizes_of(130, 140, 24, 72), Kind::softmax, causal);
  c.fill(true);
  const auto launches_terms = [&](bool of_queries, Results& r) {
    cuda_on_cpu::options.closed_memory = true;  // to reach the waits for earlier kernels
    const auto sites = cuda_on_cpu::barriers_reached([&] {
      r = attention_on_gpu<bf16>(c, cuda::SoftmaxWeights{}, [&](auto& p) {
        if (!of_queries) p.gradients.query = {};
      });
    });
    cuda_on_cpu::options.closed_memory = false;
    return std::any_of(sites.begin(), sites.end(), [](const cuda_on_cpu::Site& site) {
      return std::string(site.file).ends_with("cuda/attention/tensor_core_backward.cuh");
    });
  };
  Results all, of_keys;
  CHECK_FALSE(launches_terms(true, all));
  CHECK(launches_terms(false, of_keys));
  CHECK(all.gradients.key == of_keys.gradients.key);
  CHECK(all.gradients.value == of_keys.gradients.value);
}

TEST_CASE("attention by warp groups: every barrier, arrival, wait and fence is needed") {
  if (thread_sanitizer || has_no_warp_groups()) return;
  std::vector<Case> cases;
  for (const int64_t size : {64, 128}) cases.push_back(with_hidden_nans(size)), cases.push_back(with_many_stages(size));
  std::vector<Results> expected;
  for (const Case& c : cases) expected.push_back(plain(c));
  const auto all_right = [&] {
    for (size_t i = 0; i < cases.size(); ++i)
      if (!same_when_rounded(on_tensor_cores(cases[i]), expected[i])) return false;
    return true;
  };
  const auto right = [&] { return right_at_every_landing(all_right); };
  for (const char* const file : {"walk", "forward", "queries", "keys"})
    check_that_every_barrier_is_needed("cuda/attention/warp_group_" + std::string(file) + ".cuh", right, all_barriers);
}
#endif

}  // namespace
}  // namespace orrery
