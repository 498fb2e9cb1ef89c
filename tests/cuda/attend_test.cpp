// The kernels of attention, on a card or on its emulation, against a plain loop over queries and keys in f64.
#include "cuda/attend.cuh"

#include <memory>

#include "tests/cuda/kernel_testing.h"
#include "tests/support/fused_attention.h"
#include "tests/support/plain_attention.h"

namespace orrery {
namespace {

using namespace testing;
using Case = testing::Case;

struct Relu {
  template <class A>
  HOST_DEVICE A value(A s) const {
    return s > 0 ? s : A(0);
  }
  template <class A>
  HOST_DEVICE A derivative(A s) const {
    return s > 0 ? A(1) : A(0);
  }
};
struct GeluTanh {
  static constexpr double c = 1.5957691216057308;
  template <class A>
  HOST_DEVICE A value(A s) const {
    return s * scalar::sigmoid(A(c) * s * (1 + A(0.044715) * s * s));
  }
  template <class A>
  HOST_DEVICE A derivative(A s) const {
    const A g = scalar::sigmoid(A(c) * s * (1 + A(0.044715) * s * s));
    return g + s * g * (1 - g) * A(c) * (1 + A(0.134145) * s * s);
  }
};

// A tensor with gaps between its tokens, on the device, with guards around it.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(Gapped<T>& host) : host_(host), device_(Device::cuda, host.data) {}
  Tokens<const T> in() {
    return host_.in().data ? Tokens<const T>{device_.data() + host_.gap, host_.stride} : host_.in();
  }
  Tokens<T> out() { return host_.out().data ? Tokens<T>{device_.data() + host_.gap, host_.stride} : host_.out(); }
  void fetch() {
    const Numbers all = device_.read();
    REQUIRE(all.size() == host_.data.size());  // the guards are as they were
    for (size_t i = 0; i < all.size(); ++i) host_.data[i] = static_cast<T>(static_cast<Arithmetic<T>>(all[i]));
  }

 private:
  Gapped<T>& host_;
  DeviceArray<T> device_;
};
template <class A>
class NumbersOnDevice {
 public:
  explicit NumbersOnDevice(const std::vector<A>& host) : empty_(host.empty()), device_(Device::cuda, host) {}
  A* data() { return empty_ ? nullptr : device_.data(); }
  Numbers read() { return device_.read(); }

 private:
  bool empty_;
  DeviceArray<A> device_;
};

template <class T>
struct OperandsOnDevice {
  using A = Arithmetic<T>;
  explicit OperandsOnDevice(StoredOperands<T>& x)
      : host(x),
        query(x.query),
        key(x.key),
        value(x.value),
        slot_key(x.slot_key),
        slot_value(x.slot_value),
        distance_key(x.distance_key),
        distance_bias(x.distance_bias),
        span(x.span) {}
  AttendInputs<T> inputs() {
    return {query.in(),      key.in(),          value.in(),           slot_key.in(),
            slot_value.in(), distance_key.in(), distance_bias.data(), span.data()};
  }
  AttendGradients<T> gradients() {
    return {query.out(),      key.out(),          value.out(),          slot_key.out(),
            slot_value.out(), distance_key.out(), distance_bias.data(), span.data()};
  }
  Operands operands() {
    for (OnDevice<T>* x : {&query, &key, &value, &slot_key, &slot_value, &distance_key}) x->fetch();
    Operands result = host.operands();
    result.distance_bias = distance_bias.read(), result.span = span.read();
    return result;
  }
  StoredOperands<T>& host;
  OnDevice<T> query, key, value, slot_key, slot_value, distance_key;
  NumbersOnDevice<A> distance_bias, span;
};

template <class T, class Weights>
Results attend_on_card(const Case& c, const Weights& weights) {
  using A = Arithmetic<T>;
  const AttendSizes& s = c.sizes;
  const int64_t width = s.query_heads * s.value_size;
  Operands room = c.operands;
  for (Numbers* x : room.all()) std::fill(x->begin(), x->end(), not_a_number);
  StoredOperands<T> stored(s, c.operands), results(s, room);
  OperandsOnDevice<T> operands(stored), gradients(results);
  Gapped<T> host_output_gradient(c.output_gradient, width), host_output(c.output_gradient.size(), width);
  OnDevice<T> output_gradient(host_output_gradient), output(host_output);
  const std::vector<A> rows(static_cast<size_t>(c.rows()));
  NumbersOnDevice<A> log_sum(rows), sum(rows), positive_sum(rows), entropy(rows), zero_share(rows), maximum(rows);
  NumbersOnDevice<A> sum_gradient(converted<A>(c.sum_gradient)), entropy_gradient(converted<A>(c.entropy_gradient));
  NumbersOnDevice<int32_t> lengths(c.lengths), of_queries(c.query_documents), of_keys(c.key_documents);
  AttendOptions o = c.options;
  o.key_lengths = lengths.data(), o.query_documents = of_queries.data(), o.key_documents = of_keys.data();

  cuda::attend_forward<T>(s, o, weights, operands.inputs(), output.out(), log_sum.data());
  cuda::attend_statistics<T>(s, o, weights, operands.inputs(), log_sum.data(),
                             {sum.data(), positive_sum.data(), entropy.data(), zero_share.data(), maximum.data()});
  cuda::attend_backward<T>(s, o, weights, operands.inputs(), output.in(), log_sum.data(), output_gradient.in(),
                           gradients.gradients(),
                           {positive_sum.data(), entropy.data(), sum_gradient.data(), entropy_gradient.data()});
  output.fetch();
  return {host_output.numbers(), log_sum.read(), gradients.operands(), sum.read(),
          positive_sum.read(),   entropy.read(), zero_share.read(),    maximum.read()};
}
template <class T>
Results attend_on_card(const Case& c) {
  switch (c.kind) {
    case Kind::softmax:
      return attend_on_card<T>(c, cuda::SoftmaxWeights{});
    case Kind::relu:
      return attend_on_card<T>(c, cuda::PointwiseWeights<Relu>{});
    case Kind::gelu_tanh:
      break;
  }
  return attend_on_card<T>(c, cuda::PointwiseWeights<GeluTanh>{});
}

// The choices that `bits` stands for, eleven bits in all.
constexpr uint32_t all_choices = 1 << 11;
Case case_of(uint32_t bits, AttendSizes sizes, Kind kind) {
  const auto next = [&] {
    const bool bit = bits & 1;
    bits >>= 1;
    return bit;
  };
  Case c{.sizes = sizes, .options = {.scale = 0.9 / std::sqrt(sizes.head_size)}, .kind = kind};
  c.options.causal = next(), c.options.own = next();
  c.biased = next(), c.positioned = next(), c.spanned = next(), c.options.span_per_query = next();
  c.options.soft_cap = next() ? 1.5 : 0;
  c.sizes.slots = next() ? sizes.slots : 0;
  c.judged = next();
  if (next()) c.options.dropout = 0.2, c.options.random_key = {5, 6};
  c.options.query_offset = next() ? sizes.keys - sizes.queries : 0;
  c.options.ramp = c.spanned ? 5.3 : 0;
  return c;
}

// An entropy depends on ln w: where w is all but 0, the rounding of its score moves the gradient of the entropy by more
// than any fixed tolerance.  What movement is due is what the plain loop shows for operands moved by one unit.
Results plain_moved(Case c, double unit) {
  uint64_t seed = 21;
  for (Numbers* x : c.operands.all()) {
    ++seed;
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] *= 1 + unit * (random_number(seed, i) > 0 ? 1 : -1);
  }
  return plain(c);
}

template <class T>
void check_case(Case& c, double tolerance) {
  c.fill(std::is_same_v<T, bf16>);
  const Results expected = plain(c);
  const Results moved = c.judged ? plain_moved(c, std::numeric_limits<Arithmetic<T>>::epsilon()) : Results();
  check_equal(c, attend_on_card<T>(c), expected, tolerance, c.judged ? &moved : nullptr);
}
template <class T>
void check_some(const AttendSizes& sizes, uint64_t n, double tolerance) {
  for (const Kind kind : kinds)
    for (uint64_t i = 0; i < n; ++i) {
      const auto bits = RandomKey{static_cast<uint64_t>(kind), 9}.bits(i)[0];
      CAPTURE(bits % all_choices);
      Case c = case_of(bits % all_choices, sizes, kind);
      check_case<T>(c, tolerance);
    }
}

const AttendSizes one{.batch = 2,
                      .queries = 1,
                      .keys = 17,
                      .query_heads = 4,
                      .key_heads = 2,
                      .head_size = 8,
                      .value_size = 20,
                      .slots = 5},
    small{.batch = 2,
          .queries = 17,
          .keys = 17,
          .query_heads = 2,
          .key_heads = 1,
          .head_size = 8,
          .value_size = 5,
          .slots = 3},
    medium{.batch = 2,
           .queries = 65,
           .keys = 70,
           .query_heads = 2,
           .key_heads = 2,
           .head_size = 20,
           .value_size = 8,
           .slots = 18},
    wide{.batch = 1,  // heads of several panels, and of more than one chunk
         .queries = 33,
         .keys = 40,
         .query_heads = 2,
         .key_heads = 1,
         .head_size = 131,
         .value_size = 147,
         .slots = 2},
    long_row{.batch = 1,
             .queries = 150,
             .keys = 211,
             .query_heads = 2,
             .key_heads = 1,
             .head_size = 16,
             .value_size = 16,
             .slots = 67};

std::string name_of(const AttendSizes& s) {
  return std::to_string(s.queries) + " queries, " + std::to_string(s.keys) + " keys";
}

// Every option at once, with all masks.
Case everything_at_once(const AttendSizes& sizes, Kind kind) {
  Case c = case_of(all_choices - 1, sizes, kind);
  c.options.causal = false, c.options.own = false, c.options.window = 60;
  for (int64_t b = 0; b < sizes.batch; ++b) {
    c.lengths.push_back(static_cast<int32_t>(sizes.keys - 4 * b));
    for (int64_t i = 0; i < sizes.queries; ++i) c.query_documents.push_back(static_cast<int32_t>((i + 3 * b) / 50));
    for (int64_t j = 0; j < sizes.keys; ++j) c.key_documents.push_back(static_cast<int32_t>((j + 3 * b) / 50));
  }
  return c;
}

TEST_CASE("attention on a card: every combination of options agrees with a plain loop") {
  if (no_card()) return;
  for (uint32_t bits = 0; bits < all_choices; ++bits) {
    CAPTURE(bits);
    Case c = case_of(bits, small, kinds[(bits ^ bits >> 4 ^ bits >> 8) % 3]);
    check_case<double>(c, 1e-12);
  }
}

TEST_CASE("attention on a card: combinations of options at every size") {
  if (no_card()) return;
  for (const AttendSizes& sizes : {one, medium, wide, long_row}) {
    CAPTURE(name_of(sizes));
    check_some<double>(sizes, sizes.queries < 33 ? 30 : 6, 1e-12);
    check_some<float>(sizes, sizes.queries < 33 ? 30 : 6, 2e-4);
  }
  check_some<bf16>(medium, 4, 0.1);
}

TEST_CASE("attention on a card: all masks and all options at once") {
  if (no_card()) return;
  for (const AttendSizes& sizes : {small, medium, wide, long_row})
    for (const Kind kind : kinds) {
      CAPTURE(name_of(sizes));
      Case c = everything_at_once(sizes, kind);
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
       {&Results::sum, &Results::positive_sum, &Results::entropy, &Results::zero_share, &Results::maximum})
    worst = std::max(worst, difference(a.*statistic, b.*statistic));
  return worst;
}

// With whole numbers relu, its sums and gradients are exact in f32 whatever their order; the ramp takes quarters.
Case whole_case(AttendSizes sizes, bool with_span) {
  Case c{.sizes = sizes, .options = {.query_offset = 2, .window = 45}, .kind = Kind::relu};
  c.biased = c.positioned = true, c.spanned = with_span, c.options.ramp = with_span ? 4 : 0;
  c.options.dropout = 0.5, c.options.random_key = {3, 4};
  for (int64_t b = 0; b < sizes.batch; ++b) c.lengths.push_back(static_cast<int32_t>(sizes.keys - 7 * b));
  c.fill();
  uint64_t seed = 31;
  for (Numbers* x :
       {&c.operands.query, &c.operands.key, &c.operands.value, &c.operands.slot_key, &c.operands.slot_value,
        &c.operands.distance_key, &c.operands.distance_bias, &c.operands.span, &c.output_gradient}) {
    ++seed;
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] = std::round(2.4 * random_number(seed, i));
  }
  for (double& z : c.operands.span) z += 20;
  return c;
}

TEST_CASE("attention on a card: whole numbers give exactly what the plain loop gives, in every order of threads") {
  if (no_card()) return;
  for (const AttendSizes& sizes : {small, medium, wide})
    for (const bool with_span : {false, true}) {
      CAPTURE(name_of(sizes));
      const Case c = whole_case(sizes, with_span);
      const Results expected = plain(c);
      const auto check = [&](const Results& a) {
        CHECK(a.output == expected.output);
        const auto found = a.gradients.all(), right = expected.gradients.all();
        for (size_t i = 0; i < found.size(); ++i) CHECK(*found[i] == *right[i]);
        CHECK(a.sum == expected.sum);
        CHECK(a.maximum == expected.maximum);
      };
      in_every_order([&] { check(attend_on_card<float>(c)), check(attend_on_card<double>(c)); });
    }
}

TEST_CASE("attention on a card: the same bits in every order of threads and in every run") {
  if (no_card()) return;
  for (const Kind kind : kinds) {
    Case c = everything_at_once(medium, kind);
    c.fill();
    const Results first = attend_on_card<float>(c), first_of_doubles = attend_on_card<double>(c);
    in_every_order([&] {
      CHECK(worst_difference(attend_on_card<float>(c), first) == 0);
      CHECK(worst_difference(attend_on_card<double>(c), first_of_doubles) == 0);
    });
  }
}

// ---- what is not seen

TEST_CASE("attention on a card: a query that sees nothing gives zeros, and so do its gradients") {
  if (no_card()) return;
  for (const Kind kind : kinds) {
    Case c{.sizes = medium, .options = {.scale = 0.3}, .kind = kind};
    c.sizes.slots = 0, c.judged = true, c.lengths = {0, 70};
    c.fill();
    const Results r = attend_on_card<float>(c);
    const auto zero = [](const Numbers& x, size_t n) {
      return std::all_of(x.begin(), x.begin() + static_cast<int64_t>(n), [](double e) { return e == 0; });
    };
    CHECK(zero(r.output, r.output.size() / 2));
    CHECK(zero(r.gradients.query, r.gradients.query.size() / 2));
    CHECK(zero(r.gradients.key, r.gradients.key.size() / 2));
    CHECK(zero(r.gradients.value, r.gradients.value.size() / 2));
    for (const auto statistic :
         {&Results::sum, &Results::positive_sum, &Results::entropy, &Results::zero_share, &Results::maximum})
      CHECK(zero(r.*statistic, (r.*statistic).size() / 2));
    if (kind == Kind::softmax) CHECK(r.log_sum[0] == -INFINITY);
    CHECK_FALSE(zero(r.output, r.output.size()));
  }
}

TEST_CASE("attention on a card: no keys, no queries, no sequences") {
  if (no_card()) return;
  for (const Kind kind : kinds)
    for (const int nothing : {0, 1, 2}) {
      Case c = case_of(all_choices - 1 - 1024, small, kind);
      (nothing == 0 ? c.sizes.keys : nothing == 1 ? c.sizes.queries : c.sizes.batch) = 0;
      check_case<double>(c, 1e-12);
    }
}

TEST_CASE("attention on a card: NaN in what a query does not see has no influence") {
  if (no_card()) return;
  for (const Kind kind : kinds) {
    Case c{.sizes = medium, .options = {.scale = 0.3, .own = false, .ramp = 5.3}, .kind = kind};
    c.biased = c.positioned = c.spanned = c.judged = true;
    c.fill();
    const Results clean = attend_on_card<float>(c);
    // Nobody reads distance 0, nor distances from the end of the longest span on; from query 40 on nobody reads key 3.
    const int64_t width = c.sizes.head_size;
    std::fill_n(c.operands.distance_key.begin(), width, not_a_number);
    std::fill(c.operands.distance_key.begin() + 30 * width, c.operands.distance_key.end(), not_a_number);
    for (int64_t h = 0; h < 2; ++h) {
      const auto bias = c.operands.distance_bias.begin() + h * c.sizes.distances;
      bias[0] = not_a_number;
      std::fill(bias + 30, bias + c.sizes.distances, not_a_number);
    }
    for (Numbers* x : {&c.operands.key, &c.operands.value})
      std::fill_n(x->begin() + 3 * static_cast<int64_t>(x->size()) / (2 * 70), 4, not_a_number);
    const Results dirty = attend_on_card<float>(c);
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
    CHECK(std::isnan(dirty.output[4 * read]) == (kind != Kind::relu));  // query 4 sees key 3; relu takes NaN for zero
  }
}

#if defined(EMULATE_CUDA)
TEST_CASE("every barrier of attention is needed") {
  if (thread_sanitizer) return;
  // Tiles that are skipped between others that are not: the votes must be the whole block's.
  AttendSizes sizes = medium;
  sizes.batch = 1;
  Case c = whole_case(sizes, true);
  const Results expected = plain(c);
  const auto right = [&] {
    const Results r = attend_on_card<double>(c);
    const auto found = r.gradients.all(), wanted = expected.gradients.all();
    bool same = r.output == expected.output;
    for (size_t i = 0; i < found.size(); ++i) same = same && *found[i] == *wanted[i];
    return same;
  };
  check_that_every_barrier_is_needed("cuda/attend_tile.cuh", right);
}
#endif

}  // namespace
}  // namespace orrery
