// Relative-position terms, spans, soft caps, slots and differentiable statistics, combined with
// each other and with the masks.
#include <doctest/doctest.h>

#include <algorithm>

#include "engine/system/parallel.h"
#include "engine/tensor/storage.h"
#include "tests/support/attention_choices.h"
#include "tests/support/fused_attention.h"
#include "tests/support/message.h"

namespace orrery {
namespace {

using namespace testing;

template <class T>
void check_case(Case& c, double tolerance) {
  c.fill(std::is_same_v<T, bf16>);
  const Results expected = plain(c),
                moved = std::is_same_v<T, float> && c.regularized ? plain_moved(c, 0x1p-23) : Results();
  for (const char* set : instruction_sets<T>()) {
    use_attention_instruction_set(set);
    check_equal(c, attention_of<T>(c), expected, tolerance, moved.output.empty() ? nullptr : &moved);
  }
}

// Checks `n` random combinations of options for every kind.
template <class T>
void check_some(const Sizes& sizes, uint64_t n, double tolerance) {
  for (const Kind kind : kinds)
    for (uint64_t i = 0; i < n; ++i) {
      const auto bits = RandomKey{static_cast<uint64_t>(kind), 9}.bits(i)[0];
      CAPTURE(bits % all_choices);
      Case c = case_of(bits % all_choices, sizes, kind);
      check_case<T>(c, tolerance);
    }
}

const Sizes large{.batch = 2,
                  .queries = 130,
                  .keys = 130,
                  .query_heads = 4,
                  .kv_heads = 2,
                  .head_size = 64,
                  .value_size = 32,
                  .slots = 131},
    long_row{.batch = 1,
             .queries = 300,
             .keys = 411,
             .query_heads = 2,
             .kv_heads = 1,
             .head_size = 16,
             .value_size = 16,
             .slots = 7};

}  // namespace

TEST_CASE("attention: every combination of options agrees with a plain loop") {
  for (const Kind kind : kinds)
    for (uint32_t bits = 0; bits < all_choices; ++bits) {
      CAPTURE(bits);
      Case c = case_of(bits, small, kind);
      check_case<double>(c, 1e-12);
    }
}

TEST_CASE("attention: combinations of options at every size") {
  for (const Sizes& sizes : {one, medium, large, long_row}) {
    CAPTURE(name_of(sizes));
    check_some<double>(sizes, sizes.queries < 100 ? 60 : 12, 1e-12);
    check_some<float>(sizes, sizes.queries < 100 ? 30 : 6, 2e-4);
  }
  check_some<bf16>(medium, 10, 0.1);
}

TEST_CASE("attention: all masks and all options at once") {
  for (const Sizes& sizes : {small, medium, large, long_row})
    for (const Kind kind : kinds) {
      CAPTURE(name_of(sizes));
      Case c = all_options_at_once(sizes, kind);
      check_case<double>(c, 1e-12);
    }
}

template <class T>
void check_threads(Case& c) {
  c.fill(std::is_same_v<T, bf16>);
  const int before = thread_count();
  for (const char* set : instruction_sets<T>()) {
    use_attention_instruction_set(set);
    set_thread_count(1);
    const Results single = attention_of<T>(c);
    for (const int threads : {2, 3}) {
      set_thread_count(threads);
      const Results several = attention_of<T>(c);
      check_equal(c, several, single, 0);
      CHECK(several.work == single.work);
    }
  }
  set_thread_count(before);
}

TEST_CASE("attention: with all options, results are bit-identical for any number of threads") {
  Sizes many = medium;
  many.batch = 9, many.query_heads = many.kv_heads = 4;
  for (const Sizes& sizes : {long_row, many})
    for (const Kind kind : kinds) {
      Case c = all_options_at_once(sizes, kind);
      check_threads<float>(c), check_threads<bf16>(c);
    }
}

TEST_CASE("attention: NaN in masked keys has no influence, also with relative positions and spans") {
  for (const Kind kind : kinds) {
    Case c = case_with_masked_operands(kind);
    const Results clean = attention_of<float>(c);
    spoil_masked_operands(c);
    const Results dirty = attention_of<float>(c);
    const auto same = [](const Numbers& a, const Numbers& b, size_t begin, size_t end) {
      const auto values = [&](const Numbers& x) {
        return Numbers(x.begin() + static_cast<int64_t>(begin), x.begin() + static_cast<int64_t>(end));
      };
      CHECK(difference(values(a), values(b)) < 1e-5);
    };
    const size_t token = 2 * 20, read = 2 * 8;  // elements of a token in q and in o
    for (const size_t first : {40, 65}) {       // the rest of sequence 0, and sequence 1
      const size_t end = first == 40 ? 65 : 130;
      same(dirty.output, clean.output, first * read, end * read);
      same(dirty.gradients.query, clean.gradients.query, first * token, end * token);
    }
    same(dirty.gradients.key, clean.gradients.key, 70 * token, 140 * token);
    // Control: query 4 attends to key 3; relu may skip NaN.
    if (kind != Kind::relu) CHECK(std::isnan(dirty.output[4 * read]));
  }
}

TEST_CASE("attention: shorter spans need less work") {
  const Sizes sizes{
      .batch = 1, .queries = 512, .keys = 1024, .query_heads = 2, .kv_heads = 2, .head_size = 16, .value_size = 16};
  const auto work = [&](double z, bool positioned) {
    Case c{.sizes = sizes, .options = {.scale = 0.3, .causal = true, .query_offset = 512, .ramp = 16}};
    c.spanned = true, c.positioned = positioned;
    c.fill();
    std::fill(c.operands.span.begin(), c.operands.span.end(), z);
    return attention_of<float>(c).work;
  };
  Case c{.sizes = sizes, .options = {.scale = 0.3, .causal = true, .query_offset = 512}};
  c.fill();
  const int64_t all = attention_of<float>(c).work, visible = 512 * (513 + 1024) / 2;
  CHECK(all >= visible * 2 * 16 * 7);  // two products forward, five backward, 2 heads of 16
  CHECK(all <= visible * 2 * 16 * 7 * 1.1);
  CHECK(work(1024, false) == all);
  CHECK(work(0, false) < all / 8);
  CHECK(work(64, false) > work(0, false));
  CHECK(work(0, true) > work(0, false));
  CHECK(work(0, true) < work(1024, true) / 8);

  c.operands.span = {0, 1000}, c.spanned = true, c.options.ramp = 16;  // one span per head
  CHECK(attention_of<float>(c).work < all * 0.6);
  CHECK(attention_of<float>(c).work > all * 0.5);
}

// Returns the peak memory (bytes) of forward and backward besides their tensors, on one thread.
template <class T>
int64_t extra_memory(int64_t batch, int64_t length) {
  using A = Arithmetic<T>;
  Case c{.sizes = {batch, length, length, 2, 2, 16, 16}, .options = {.scale = 0.3, .causal = true}};
  c.fill();
  StoredOperands<T> operands(c.sizes, c.operands), gradients(c.sizes, c.operands);
  const Gapped<T> output_gradient(c.output_gradient, 32);
  Gapped<T> output(c.output_gradient.size(), 32);
  std::vector<A> log_sum(static_cast<size_t>(c.rows()));
  AttentionProblem<A> p = c.problem<A>();
  operands.give_to(p);
  p.is_bf16 = std::is_same_v<T, bf16>, p.output = output.out(), p.log_sum = log_sum.data();
  const int before = thread_count();
  set_thread_count(1);
  reset_peak(Device::cpu);
  const int64_t allocated = memory_use(Device::cpu).allocated;
  attention_forward(p, {});
  p.output_gradient = output_gradient.in(), p.gradients = gradients.gradients();
  attention_backward(p, {});
  set_thread_count(before);
  return memory_use(Device::cpu).peak - allocated;
}

TEST_CASE("attention: extra memory does not grow with the length") {
  CHECK(extra_memory<float>(1, 2048) == extra_memory<float>(1, 512));
  CHECK(extra_memory<float>(1, 512) < 512 * 512 * int64_t{sizeof(float)});
}

TEST_CASE("attention in bf16: extra memory with many heads is the gradient sums of one head's keys and values") {
  const int64_t one = extra_memory<bf16>(8, 512);
  CHECK(extra_memory<bf16>(16, 512) == one);
  CHECK(extra_memory<bf16>(8, 1024) - one < 2 * 512 * (16 + 16) * int64_t{sizeof(float)});  // the pool rounds up
}

TEST_CASE("attention: errors name options that do not fit together") {
  const Tensor x = Tensor::zeros({1, 4, 1, 16}), y = Tensor::zeros({1, 6, 1, 16});
  const auto run = [&](AttentionOptions o, AttentionInputs inputs) {
    inputs.query = x, inputs.key = inputs.value = y;
    attention_forward(inputs, o, {});
  };
  const auto error = [&](AttentionOptions o, const AttentionInputs& inputs) {
    return expect_error([&] { run(o, inputs); });
  };
  const auto mask = [](AttentionMask m) { return AttentionOptions{.mask = m}; };
  const AttentionMask full{.causal = false};
  const AttentionInputs span{.span = Tensor::full({1}, 3)};
  const auto bias = [](int64_t distances) { return AttentionInputs{.relative_bias = Tensor::zeros({1, distances})}; };
  const auto both = [](int64_t distances) {
    return AttentionInputs{.relative_bias = Tensor::zeros({1, distances}), .span = Tensor::full({1}, 3)};
  };
  error({.soft_cap = -1}, {}).names("attention").names("soft_cap").value(-1).offers("positive").offers(0);
  error({}, span).names("attention").names("span").value("ramp").offers("tokens");
  error({.ramp = -2}, span).names("attention").names("ramp").value(-2).offers("positive");
  error({}, {.slot_value = Tensor::zeros({3, 1, 16})}).names("attention").names("slot_value").offers("slot_key");
  error({}, {.slot_key = Tensor::zeros({3, 1, 16})}).names("attention").names("slot_key").offers("slot_value");
  const AttentionInputs narrow_keys{.slot_key = Tensor::zeros({3, 1, 15}), .slot_value = Tensor::zeros({3, 1, 16})};
  error({}, narrow_keys).names("slot keys").value("(3, 1, 15)").value("f32").offers("(3, 1, 16)").offers("f32");
  AttentionInputs terms{.relative_embedding = Tensor::zeros({9, 15})};
  error({}, terms).names("relative embeddings").value("(9, 15)").value("f32").offers("(9, 16)").offers("f32");
  terms = {.relative_embedding = Tensor::zeros({9, 16}), .relative_bias = Tensor::zeros({1, 8})};
  error({}, terms).names("attention").names("embeddings").value(9).names("biases").value(8);
  error({}, bias(0)).names("attention").names("relative-position terms").value(0).offers(1);
  const auto too_few = [&](const AttentionOptions& o, const AttentionInputs& inputs, int rows, int query, int visible) {
    const std::string at = text("query ", query, " of sequence 0"), distance = text("distance ", visible);
    error(o, inputs).names("relative-position terms").value(rows).names(at).value(distance).offers(visible + 1);
  };
  too_few(mask(full), bias(5), 5, 0, 5);
  CHECK_NOTHROW(run(mask(full), bias(6)));
  too_few({}, bias(3), 3, 3, 3);
  CHECK_NOTHROW(run({}, bias(4)));
  CHECK_NOTHROW(run(mask({.causal = false, .window = 4}), bias(4)));
  CHECK_NOTHROW(run({.mask = full, .ramp = 1}, both(5)));  // distance 4 is the far end of the ramp
  too_few({.mask = full, .ramp = 1}, both(4), 4, 0, 4);
  CHECK_NOTHROW(run({.mask = full, .ramp = 0.75}, both(4)));
  too_few({.mask = full, .ramp = 1.5}, both(4), 4, 0, 4);
  const Tensor of_queries = Tensor::from({1, 4}, std::vector<int32_t>{0, 0, 0, 1}),
               of_keys = Tensor::from({1, 6}, std::vector<int32_t>{0, 0, 0, 1, 1, 1});
  const AttentionMask documents{.causal = false, .query_document_ids = of_queries, .key_document_ids = of_keys};
  CHECK_NOTHROW(run(mask(documents), bias(3)));
  too_few(mask(documents), bias(2), 2, 0, 2);
  const Tensor length = Tensor::from({1}, std::vector<int32_t>{4});
  CHECK_NOTHROW(run(mask({.causal = false, .lengths = length}), bias(4)));

  const auto backward_error = [&](const AttentionInputs& gradients, const AttentionOutput& dy) {
    return expect_error([&] { attention_backward({.query = x, .key = y, .value = y}, {}, {}, {}, dy, gradients); });
  };
  backward_error({.span = Tensor::zeros({1})}, {}).names("attention").names("gradients").value("span");
  const AttentionOutput entropy{.entropy = Tensor::zeros({1, 1, 4})};
  backward_error({}, entropy).names("gradients of the entropy").value("positive sum").offers("attention_statistics");
}

}  // namespace orrery
