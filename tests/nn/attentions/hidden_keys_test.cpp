// Keys that a query does not attend to have no influence on its output and gradients, even if NaN.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "tests/support/attention_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

constexpr int64_t keys = 7, width = 8, head_count = 2;
const double not_a_number = std::numeric_limits<double>::quiet_NaN();

// An attention mask, and the keys that hold NaN.
struct Mask {
  const char* name;
  bool causal, attend_to_self;
  std::vector<int32_t> lengths;  // length of the single sequence
  std::vector<int32_t> documents;
  std::set<int64_t> poisoned;  // keys
  std::string span = "";       // masks keys
  int64_t window = keys;       // masks keys at this distance and beyond

  bool attends_to(int64_t i, int64_t j) const {
    return !(causal && j > i) && (attend_to_self || i != j) && std::abs(i - j) < window &&
           (lengths.empty() || j < lengths[0]) &&
           (documents.empty() || documents[static_cast<size_t>(i)] == documents[static_cast<size_t>(j)]);
  }
  bool attends_to_nothing(int64_t i) const {
    for (int64_t j = 0; j < keys; ++j)
      if (attends_to(i, j)) return false;
    return true;
  }
  bool poisons(int64_t i) const {  // query i attends to a NaN
    return std::any_of(poisoned.begin(), poisoned.end(), [&](int64_t j) { return attends_to(i, j); });
  }
  bool reaches(int64_t j) const {  // a query that attends to a NaN also attends to key j, so j's gradients are NaN
    for (int64_t i = 0; i < keys; ++i)
      if (attends_to(i, j) && poisons(i)) return true;
    return false;
  }
};
std::vector<Mask> mask_cases() {
  const std::vector<int32_t> two = {4, 4, 4, 7, 7, 7, 7};
  return {{"lengths, causal", true, true, {4}, {}, {4, 5, 6}},
          {"lengths, full", false, true, {4}, {}, {4, 6}},
          {"no key at all", false, true, {0}, {}, {0, 1, 2, 3, 4, 5, 6}},
          {"causal", true, true, {}, {}, {5}},
          {"attend_to_self=no, causal", true, false, {}, {}, {0, 5}},
          {"attend_to_self=no, full", false, false, {}, {}, {3}},
          {"attend_to_self=no, full, lengths", false, false, {6}, {}, {2}},
          {"documents, causal", true, true, {}, two, {1}},
          {"documents, full", false, true, {}, two, {5}},
          {"documents, full, attend_to_self=no", false, false, {}, two, {5}},
          {"window", true, true, {}, {}, {2}, "span=fixed(2)", 2},
          {"a span's end", true, true, {}, {}, {0}, "span=adaptive_span(6, R=1)", 6}};
}

std::string with_setting(std::string spec, const std::string& more) {
  if (spec.back() != ')') return spec + "(" + more + ")";
  spec.pop_back();
  return spec + ", " + more + ")";
}

// Returns whether an attention accepts the setting; attention_refusals_test.cpp has the others.
bool can_have(const std::string& spec, const std::string& setting) {
  try {
    layer_of(with_setting(spec, setting), {.width = width, .heads = head_count, .causal = true, .context = 7});
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Returns `spec` with further settings; empty if it does not accept them.
std::string with_settings(const std::string& spec, const Mask& mask) {
  if (!mask.span.empty() && (spec.find("span=") != std::string::npos || !can_have(spec, mask.span))) return "";
  if (!mask.causal && needs_causal(spec)) return "";
  const std::string more = std::string("attend_to_self=") + (mask.attend_to_self ? "yes" : "no") +
                           (mask.span.empty() ? "" : ", ") + mask.span;
  return with_setting(spec, more);
}

struct Operands {
  Tensor query, key, value;
};
struct ReadResult {
  Tensor y, dq, dk, dv;
};
ForwardPass pass_of(const Mask& mask) {
  ForwardPass pass;
  if (!mask.lengths.empty()) pass.lengths = whole({1}, mask.lengths);
  if (!mask.documents.empty()) pass.document_ids = whole({1, keys}, mask.documents);
  return pass;
}
// Returns the output of `f` and its gradients.
template <class F>
ReadResult read(const Operands& x, const F& f) {
  const Tensor q = x.query.clone().set_requires_grad(), k = x.key.clone().set_requires_grad(),
               v = x.value.clone().set_requires_grad();
  const Tensor y = f(AttentionInputs{.query = q, .key = k, .value = v});
  backward(y, random_tensor(y.shape(), 4));
  return {y.detach(), q.grad(), k.grad(), v.grad()};
}
Tensor poisoned(const Tensor& x, const Mask& mask) {
  std::vector<double> values = x.to_vector();
  const auto row = values.size() / keys;
  for (const int64_t j : mask.poisoned) std::fill_n(values.begin() + j * static_cast<int64_t>(row), row, not_a_number);
  return Tensor::from(x.shape(), values, Dtype::f64);
}

template <class F>
void check_hidden(const Mask& mask, bool slots, int64_t kv_heads, const F& f, bool keys_first_normalized = false) {
  const int64_t size = width / head_count;
  const Operands clean = {random_tensor({1, keys, head_count, size}, 1), random_tensor({1, keys, kv_heads, size}, 2),
                          random_tensor({1, keys, kv_heads, size}, 3)};
  const ReadResult expected = read(clean, f),
                   by_values = read({clean.query, clean.key, poisoned(clean.value, mask)}, f),
                   by_both = read({clean.query, poisoned(clean.key, mask), poisoned(clean.value, mask)}, f);
  for (const ReadResult& got : {by_values, by_both})
    for (int64_t i = 0; i < keys; ++i) {
      CAPTURE(i);
      const auto same = [&](const Tensor& a, const Tensor& b) {
        return largest_difference(tokens(a, 0, i, i + 1), tokens(b, 0, i, i + 1)) == 0;
      };
      if (!mask.poisons(i)) {
        CHECK(same(expected.y, got.y));
        CHECK(same(expected.dq, got.dq));
      }
      if (!mask.reaches(i)) {
        // the backward of a normalization multiplies a zero gradient by the NaN input
        if (!keys_first_normalized || !mask.poisoned.contains(i)) CHECK(same(expected.dk, got.dk));
        CHECK(same(expected.dv, got.dv));
      }
      if (mask.attends_to_nothing(i) && !slots) {
        CHECK(same(Tensor::zeros_like(got.y), got.y));
        CHECK(same(Tensor::zeros_like(got.dq), got.dq));
      }
    }
}

void check_layers(bool simple) {
  for (const Mask& mask : mask_cases())
    for (const std::string& plain : attention_specs())
      for (const int64_t kv_heads : {1, 2}) {
        const std::string spec = with_settings(plain, mask);
        if (spec.empty()) continue;
        INFO(spec, ", ", std::string(mask.name), ", kv heads ", kv_heads);
        const auto layer = layer_of(
            spec, {.width = width, .heads = head_count, .kv_heads = kv_heads, .causal = mask.causal, .context = 7});
        auto* const between = dynamic_cast<AttentionLayer*>(layer.get());
        if (!between) continue;  // gau has no attend_heads
        check_hidden(
            mask, spec.find("persistent") != std::string::npos, kv_heads,
            [&](const AttentionInputs& in) {
              std::unique_ptr<ReferenceMode> guard;
              if (simple) guard = std::make_unique<ReferenceMode>();
              ForwardPass pass = pass_of(mask);
              return between->attend_heads(in, random_tensor({1, keys, width}, 9), pass);
            },
            spec.find("qk_norm") != std::string::npos);
      }
}

}  // namespace

TEST_CASE("masked keys have no influence on a query's output and gradients, NaN or not: every attention") {
  check_layers(false);
}
TEST_CASE("masked keys have no influence on a query's output and gradients, NaN or not: reference mode") {
  check_layers(true);
}

TEST_CASE("visible keys do have an influence: a NaN among the values makes the output NaN") {
  const Mask mask{"causal", true, true, {}, {}, {3}};
  for (const char* spec : {"softmax", "sparsemax(scale=0.01)", "entmax15(scale=0.01)", "linear",
                           "linear(normalize=yes)", "pointwise(sigmoid)", "rela"}) {
    INFO(std::string(spec));
    const auto layer = layer_of(spec, {.width = width, .heads = head_count});
    const Operands x = {random_tensor({1, keys, 2, 4}, 1), random_tensor({1, keys, 2, 4}, 2),
                        poisoned(random_tensor({1, keys, 2, 4}, 3), mask)};
    ForwardPass pass;
    const Tensor y = dynamic_cast<AttentionLayer&>(*layer).attend_heads(
        {.query = abs(x.query), .key = abs(x.key), .value = x.value}, {}, pass);
    for (const double last : tokens(y, 0, 6, 7).to_vector()) CHECK(std::isnan(last));
  }
}

TEST_CASE("gau: masked tokens have no influence on a query's output, NaN or not") {
  for (const Mask& mask : mask_cases()) {
    const std::string spec = with_settings("gau", mask);
    if (spec.empty()) continue;
    INFO(std::string(mask.name));
    const auto layer = layer_of(spec, {.width = width, .heads = 1, .causal = mask.causal});
    const Tensor x = random_tensor({1, keys, width}, 1);
    ForwardPass pass = pass_of(mask);
    const Tensor clean = (*layer)(x, pass).detach(), dirty = (*layer)(poisoned(x, mask), pass).detach();
    for (int64_t i = 0; i < keys; ++i)
      if (!mask.poisons(i) && !mask.poisoned.contains(i))
        CHECK(largest_difference(tokens(clean, 0, i, i + 1), tokens(dirty, 0, i, i + 1)) == 0);
    // the attention inside gau, with gradients
    const Activation square("relu_squared");
    check_hidden(mask, false, 2, [&](const AttentionInputs& in) {
      return attention(in,
                       {.mask = {.causal = mask.causal,
                                 .attend_to_self = mask.attend_to_self,
                                 .lengths = pass.lengths,
                                 .query_document_ids = pass.document_ids,
                                 .key_document_ids = pass.document_ids}},
                       square)
          .output;
    });
  }
}

TEST_CASE("cross attention: keys beyond the encoder output's length have no influence, NaN or not") {
  for (const std::string& spec : attention_specs()) {
    if (spec == "gau" || spec.find("span=") != std::string::npos || needs_causal(spec)) continue;
    INFO(spec);
    const auto layer = layer_of(spec, {.width = width, .heads = head_count, .kv_heads = 1, .encoder_width = 6});
    const Tensor x = random_tensor({2, 4, width}, 1), encoder_output = random_tensor({2, keys, 6}, 2);
    std::vector<double> dirty = encoder_output.to_vector();
    std::fill_n(dirty.begin() + 3 * 6, 4 * 6, not_a_number),
        std::fill_n(dirty.begin() + keys * 6, keys * 6, not_a_number);
    std::vector<LayerResult> results;
    for (const Tensor& m : {encoder_output, Tensor::from({2, keys, 6}, dirty, Dtype::f64)}) {
      ForwardPass pass;
      pass.encoder_output = m, pass.encoder_lengths = whole({2}, {3, 0});
      results.push_back(run(*layer, x, random_tensor({2, 4, width}, 3), pass));
    }
    CHECK(largest_difference(results[0].y, results[1].y) == 0);
    CHECK(largest_difference(results[0].dx, results[1].dx) == 0);
  }
}
