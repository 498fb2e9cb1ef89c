// Terms of the distance, spans, soft caps, slots and statistics that the loss depends on, crossed with one another and
// with the masks.
#include <doctest/doctest.h>

#include "engine/base/parallel.h"
#include "engine/tensor/storage.h"
#include "tests/support/attention_choices.h"
#include "tests/support/fused_attention.h"

namespace orrery {
namespace {

using namespace testing;

template <class T>
void check_case(Case& c, double tolerance) {
  c.fill(std::is_same_v<T, bf16>);
  const Results expected = plain(c), moved = std::is_same_v<T, float> && c.judged ? plain_moved(c, 0x1p-23) : Results();
  for (const char* set : instruction_sets()) {
    use_attend_instruction_set(set);
    check_equal(c, attend<T>(c), expected, tolerance, moved.output.empty() ? nullptr : &moved);
  }
}

// `n` of the choices, another selection for every kind
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

const AttendSizes large{.batch = 2,
                        .queries = 130,
                        .keys = 130,
                        .query_heads = 4,
                        .key_heads = 2,
                        .head_size = 64,
                        .value_size = 32,
                        .slots = 131},
    long_row{.batch = 1,
             .queries = 300,
             .keys = 411,
             .query_heads = 2,
             .key_heads = 1,
             .head_size = 16,
             .value_size = 16,
             .slots = 7};

}  // namespace

TEST_CASE("attend: every combination of options agrees with a plain loop") {
  for (const Kind kind : kinds)
    for (uint32_t bits = 0; bits < all_choices; ++bits) {
      CAPTURE(bits);
      Case c = case_of(bits, small, kind);
      check_case<double>(c, 1e-12);
    }
}

TEST_CASE("attend: combinations of options at every size") {
  for (const AttendSizes& sizes : {one, medium, large, long_row}) {
    CAPTURE(name_of(sizes));
    check_some<double>(sizes, sizes.queries < 100 ? 60 : 12, 1e-12);
    check_some<float>(sizes, sizes.queries < 100 ? 30 : 6, 2e-4);
  }
  check_some<bf16>(medium, 10, 0.1);
}

TEST_CASE("attend: all masks and all options at once") {
  for (const AttendSizes& sizes : {small, medium, large, long_row})
    for (const Kind kind : kinds) {
      CAPTURE(name_of(sizes));
      Case c = everything_at_once(sizes, kind);
      check_case<double>(c, 1e-12);
    }
}

TEST_CASE("attend: all options give the same bits for any number of threads") {
  AttendSizes many = medium;
  many.batch = 9, many.query_heads = many.key_heads = 4;
  for (const AttendSizes& sizes : {long_row, many})
    for (const Kind kind : kinds) {
      Case c = everything_at_once(sizes, kind);
      c.fill();
      const int before = thread_count();
      set_thread_count(1);
      const Results single = attend<float>(c);
      for (const int threads : {2, 3}) {
        set_thread_count(threads);
        const Results several = attend<float>(c);
        check_equal(c, several, single, 0);
        CHECK(several.work == single.work);
      }
      set_thread_count(before);
    }
}

TEST_CASE("attend: NaN in what a query does not see has no influence, with terms of the distance and spans") {
  for (const Kind kind : kinds) {
    Case c = case_with_unseen_parts(kind);
    const Results clean = attend<float>(c);
    spoil_what_nobody_sees(c);
    const Results dirty = attend<float>(c);
    const auto same = [](const Numbers& a, const Numbers& b, size_t begin, size_t end) {
      const auto part = [&](const Numbers& x) {
        return Numbers(x.begin() + static_cast<int64_t>(begin), x.begin() + static_cast<int64_t>(end));
      };
      CHECK(difference(part(a), part(b)) < 1e-5);
    };
    const size_t token = 2 * 20, read = 2 * 8;  // elements of a token in q and in o
    for (const size_t first : {40, 65}) {       // the rest of sequence 0, and sequence 1
      const size_t end = first == 40 ? 65 : 130;
      same(dirty.output, clean.output, first * read, end * read);
      same(dirty.gradients.query, clean.gradients.query, first * token, end * token);
    }
    same(dirty.gradients.key, clean.gradients.key, 70 * token, 140 * token);
    // The test has teeth: query 4 sees key 3; relu may skip NaN.
    if (kind != Kind::relu) CHECK(std::isnan(dirty.output[4 * read]));
  }
}

TEST_CASE("attend: a span counts, and saves work") {
  const AttendSizes sizes{
      .batch = 1, .queries = 512, .keys = 1024, .query_heads = 2, .key_heads = 2, .head_size = 16, .value_size = 16};
  const auto work = [&](double z, bool positioned) {
    Case c{.sizes = sizes, .options = {.scale = 0.3, .causal = true, .query_offset = 512, .ramp = 16}};
    c.spanned = true, c.positioned = positioned;
    c.fill();
    std::fill(c.operands.span.begin(), c.operands.span.end(), z);
    return attend<float>(c).work;
  };
  Case c{.sizes = sizes, .options = {.scale = 0.3, .causal = true, .query_offset = 512}};
  c.fill();
  const int64_t all = attend<float>(c).work, visible = 512 * (513 + 1024) / 2;
  CHECK(all >= visible * 2 * 16 * 7);  // two products forward, five backward, 2 heads of 16
  CHECK(all <= visible * 2 * 16 * 7 * 1.1);
  CHECK(work(1024, false) == all);
  CHECK(work(0, false) < all / 8);
  CHECK(work(64, false) > work(0, false));
  CHECK(work(0, true) > work(0, false));
  CHECK(work(0, true) < work(1024, true) / 8);

  c.operands.span = {0, 1000}, c.spanned = true, c.options.ramp = 16;  // each head for itself
  CHECK(attend<float>(c).work < all * 0.6);
  CHECK(attend<float>(c).work > all * 0.5);
}

TEST_CASE("attend: memory of its own does not grow with the length") {
  const auto extra = [](int64_t length) {
    Case c{.sizes = {1, length, length, 2, 2, 16, 16}, .options = {.scale = 0.3, .causal = true}};
    c.fill();
    StoredOperands<float> operands(c.sizes, c.operands), gradients(c.sizes, c.operands);
    const Gapped<float> output_gradient(c.output_gradient, 32);
    Gapped<float> output(c.output_gradient.size(), 32);
    std::vector<float> log_sum(static_cast<size_t>(c.rows()));
    reset_peak(Device::cpu);
    const int64_t before = memory_use(Device::cpu).held;
    attend_forward<float>(c.sizes, c.options, {}, operands.inputs(), output.out(), log_sum.data());
    attend_backward<float>(c.sizes, c.options, {}, operands.inputs(), output.in(), log_sum.data(), output_gradient.in(),
                           gradients.gradients());
    return memory_use(Device::cpu).peak - before;
  };
  const int before = thread_count();
  set_thread_count(1);
  CHECK(extra(2048) == extra(512));
  CHECK(extra(512) < 512 * 512 * int64_t{sizeof(float)});
  set_thread_count(before);
}

TEST_CASE("attend: options that do not fit are named") {
  const AttendSizes good{
      .batch = 1, .queries = 4, .keys = 6, .query_heads = 1, .key_heads = 1, .head_size = 16, .value_size = 16};
  std::vector<float> x(64 * 64), z(8, 3.f), log_sum(8);
  const AttendInputs<float> plain_inputs{{x.data(), 16}, {x.data(), 16}, {x.data(), 16}};
  const auto error = [&](AttendSizes s, AttendOptions o, AttendInputs<float> inputs) {
    return error_of([&] { attend_forward<float>(s, o, {}, inputs, {x.data(), 16}, log_sum.data()); });
  };
  const auto inputs = [&](auto change) {
    AttendInputs<float> changed = plain_inputs;
    change(changed);
    return changed;
  };
  const auto with = [&](int64_t slots, int64_t distances) {
    AttendSizes s = good;
    s.slots = slots, s.distances = distances;
    return s;
  };
  const auto bias = inputs([&](auto& i) { i.relative_bias = x.data(); });
  const auto span = inputs([&](auto& i) { i.span = z.data(); });
  const auto both = inputs([&](auto& i) { i.span = z.data(), i.relative_bias = x.data(); });
  CHECK(error(good, {.soft_cap = -1}, plain_inputs) ==
        "attend: soft cap is -1; a positive number is needed, or 0 for none");
  CHECK(error(good, {}, span) == "attend: a span is given without a ramp; its length in tokens is needed");
  CHECK(error(good, {.ramp = -2}, span) == "attend: ramp is -2; a positive number of tokens is needed");
  CHECK(error(with(3, 0), {}, plain_inputs) == "attend: 3 slots are given without keys and values");
  CHECK(error(with(3, 0), {}, inputs([&](auto& i) {
                i.slot_key = {x.data(), 16};
              })) == "attend: 3 slots are given without values");
  CHECK(error(with(-3, 0), {}, plain_inputs) == "attend: slots (-3) and distances (0) must not be negative");
  CHECK(error(with(3, 0), {}, inputs([&](auto& i) {
                i.slot_key = i.slot_value = {x.data(), 15};
              })) == "attend: slot keys have a stride of 15; a token of 1 heads of 16 has 16 elements");
  CHECK(error(with(0, 9), {}, plain_inputs) == "attend: 9 distances are given without a bias or keys for them");
  CHECK(error(good, {}, bias) == "attend: terms of the distance are given with 0 rows; at least 1 is needed");
  const auto too_few = [](int rows, int query, int distance) {
    return "attend: the terms of the distance have " + std::to_string(rows) + " rows, but query " +
           std::to_string(query) + " of sequence 0 sees a key at distance " + std::to_string(distance) + "; at least " +
           std::to_string(distance + 1) + " are needed";
  };
  CHECK(error(with(0, 5), {}, bias) == too_few(5, 0, 5));
  CHECK(error(with(0, 6), {}, bias) == "no error");
  CHECK(error(with(0, 3), {.causal = true}, bias) == too_few(3, 3, 3));
  CHECK(error(with(0, 4), {.causal = true}, bias) == "no error");
  CHECK(error(with(0, 4), {.window = 4}, bias) == "no error");
  CHECK(error(with(0, 4), {.ramp = 1}, both) == "no error");  // sees distances below 4
  CHECK(error(with(0, 4), {.ramp = 1.5}, both) == too_few(4, 0, 4));
  const int32_t documents[6] = {0, 0, 0, 1, 1, 1}, length = 4;
  CHECK(error(with(0, 3), {.query_document_ids = documents, .key_document_ids = documents}, bias) == "no error");
  CHECK(error(with(0, 2), {.query_document_ids = documents, .key_document_ids = documents}, bias) == too_few(2, 0, 2));
  CHECK(error(with(0, 4), {.key_lengths = &length}, bias) == "no error");

  const auto backward_error = [&](AttendGradients<float> gradients, StatisticsGradients<float> statistics) {
    return error_of([&] {
      attend_backward<float>(good, {}, {}, plain_inputs, {x.data(), 16}, log_sum.data(), {x.data(), 16}, gradients,
                             statistics);
    });
  };
  CHECK(backward_error({.span = z.data()}, {}) == "attend: gradients of the span are wanted, but it is not given");
  CHECK(backward_error({}, {.entropy_gradient = z.data()}) ==
        "attend: gradients of the entropy are given without the entropy and the positive sum that attend_statistics "
        "wrote");
}

}  // namespace orrery
