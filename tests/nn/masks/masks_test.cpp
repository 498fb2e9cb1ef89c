// Every registered mask, taken from the registry: its formula, its table, its facts, and attention under it.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/attention/work.h"
#include "engine/autograd/autograd.h"
#include "nn/attentions/base/length_scale.h"
#include "nn/base/reference_mode.h"
#include "nn/masks/base/mask.h"
#include "tests/support/attention_layers.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

// Every mask with its defaults, with small settings, and joined with others.
std::vector<std::string> expressions() {
  std::vector<std::string> all = masks().names();
  for (const char* more :
       {"window(5)", "dilated(3)", "strided(7)", "fixed_blocks(16, 3)", "fixed_blocks(128, c=0)", "sinks(2)",
        "random_blocks(8, r=2)", "prefix(9)", "causal and window(20)", "causal or prefix(20)",
        "causal and (sinks(4) or window(6))", "window(40) and (dilated(2) or sinks(3) and strided(11)) and causal",
        "causal and fixed_blocks(64, 4) and (random_blocks(16, 3) or window(8))"})
    all.emplace_back(more);
  return all;
}
std::string causal(const std::string& expression) { return "causal and (" + expression + ")"; }

std::shared_ptr<const NamedMask> mask_of(const std::string& expression) {
  return std::make_shared<const NamedMask>(expression, 80);
}

bool in_table(const MaskTable& table, int64_t i, int64_t j) {
  const int64_t words = table.bits.size(1);
  return static_cast<uint32_t>(table.bits.data<int32_t>()[i * words + j / 32]) >> j % 32 & 1u;
}
// Compares band and table with the formulas pair by pair, and coverage with the bits.
void check_narrowed(const NamedMask& mask, const MaskArea& area) {
  AttentionMask narrowed{.causal = false};
  mask.narrow(narrowed, area, Device::cpu);
  int64_t wrong = 0;
  for (int64_t i = 0; i < area.queries; ++i)
    for (int64_t j = 0; j < area.keys; ++j) {
      const int64_t x = area.first_query + i - area.first_key - j;
      const bool in_band = !(narrowed.causal && x < 0) && (narrowed.window == 0 || std::abs(x) < narrowed.window);
      const bool left = in_band && (!narrowed.table.bits || in_table(narrowed.table, i, j));
      wrong += left != mask.visible(area.first_query + i, area.first_key + j);
    }
  CHECK(wrong == 0);
  if (!narrowed.table.bits) return;
  CHECK(mask.has_table());
  const auto* coverage = reinterpret_cast<const uint8_t*>(narrowed.table.coverage.data<int32_t>());
  for (int64_t a = 0; a < narrowed.table.bits.size(0) / 64; ++a)
    for (int64_t b = 0; b < narrowed.table.bits.size(1) / 2; ++b) {
      int64_t visible = 0, pairs = 0;
      for (int64_t i = 64 * a; i < std::min(area.queries, 64 * a + 64); ++i)
        for (int64_t j = 64 * b; j < std::min(area.keys, 64 * b + 64); ++j)
          visible += in_table(narrowed.table, i, j), ++pairs;
      const int found = coverage[a * (narrowed.table.bits.size(1) / 2) + b];
      const bool inner = 64 * a + 64 <= area.queries && 64 * b + 64 <= area.keys;  // the table may have more tokens
      if (inner) CHECK(found == (visible == 0 ? 0 : visible == pairs ? 2 : 1));
      CHECK((visible == 0 || found != 0));
      CHECK((visible == pairs || found != 2));
    }
}

}  // namespace

TEST_CASE("mask: band and table together leave the pairs of the formulas, at any positions") {
  for (const std::string& expression : expressions()) {
    CAPTURE(expression);
    const NamedMask mask(expression, 200);
    check_narrowed(mask, {200, 200});
    check_narrowed(mask, {130, 130});
    check_narrowed(mask, {1, 150, 149, 0});
    check_narrowed(mask, {70, 161, 300, 209});
  }
}

TEST_CASE("mask: what a formula states of itself agrees with its pairs") {
  constexpr int64_t tokens = 160;
  for (const std::string& expression : expressions()) {
    CAPTURE(expression);
    const NamedMask mask(expression);
    const std::optional<int64_t> later = mask.facts().later;
    for (int64_t i = later.value_or(tokens); i < tokens; ++i)
      for (int64_t j = i + 1; j < tokens; ++j) CHECK_FALSE(mask.visible(i, j));
  }
  for (const std::string& name : masks().names()) {
    CAPTURE(name);
    const auto formula = make_from(masks(), parse_spec(name));
    for (const int64_t side : {1, 8, 16, 64})
      for (int64_t i = 0; i < 512; i += 64)
        for (int64_t j = 0; j < 512; j += 64) {
          const auto stated = formula->coverage({i, i + side}, {j, j + side});
          if (!stated || *stated == Coverage::some) continue;
          for (int64_t a = i; a < i + side; ++a)
            for (int64_t b = j; b < j + side; ++b) CHECK(formula->visible(a, b) == (*stated == Coverage::all));
        }
  }
}

TEST_CASE("mask: every attention agrees with its reference, forward and backward") {
  for (const std::string& expression : expressions()) {
    CAPTURE(expression);
    for (const std::string& spec : attention_specs()) {
      CAPTURE(spec);
      if (spec.starts_with("linear") && expression != "full" && expression != "causal") continue;
      const AttentionLayerOptions options{.width = 8, .heads = 2, .context = 80, .mask = mask_of(expression)};
      const auto layer = layer_of(spec, options);
      const Tensor x = random_tensor({2, 70, 8}, 3), dy = random_tensor({2, 70, 8}, 4);
      ForwardPass pass;
      pass.lengths = whole({2}, {70, 45});
      const LayerResult got = run(*layer, x, dy, pass);
      const ReferenceMode reference;
      const LayerResult expected = run(*layer, x, dy, pass);
      CHECK(largest_difference(got.y, expected.y) <= 1e-10);
      CHECK(largest_difference(got.dx, expected.dx) <= 1e-9);
    }
  }
}

// The lengths of the sequences end within a word of the table, at its first bit and at its last.
TEST_CASE("mask: the number of keys that each query sees equals the formulas, also if an attention hides more") {
  constexpr int64_t first_query = 37, queries = 70, keys = first_query + queries;
  const std::vector<int32_t> lengths = {107, 1, 64, 97, 0};
  const AttentionInputs in{.query = random_tensor({5, queries, 1, 4}, 8), .key = random_tensor({5, keys, 1, 4}, 9)};
  for (const std::string& expression : expressions())
    for (const bool attend_to_self : {true, false})
      for (const int64_t window : {0, 1, 33}) {
        INFO(expression, ", attend_to_self ", attend_to_self, ", window ", window);
        AttentionMask mask{.attend_to_self = attend_to_self, .query_offset = first_query, .window = window};
        mask.lengths = whole({5}, lengths);
        const NamedMask named(expression, 200);
        named.narrow(mask, {queries, keys, first_query, 0}, Device::cpu);
        const std::vector<double> counted = visible_keys(in, mask, Dtype::f64).to_vector();
        REQUIRE(counted.size() == 5 * queries);
        int64_t wrong = 0;
        for (int64_t sequence = 0; sequence < 5; ++sequence)
          for (int64_t i = 0; i < queries; ++i) {
            const int64_t position = first_query + i;
            int64_t n = 0;
            for (int64_t j = 0; j < lengths[static_cast<size_t>(sequence)]; ++j)
              n += named.visible(position, j) && (attend_to_self || j != position) &&
                   (window == 0 || std::abs(position - j) < window);
            wrong += counted[static_cast<size_t>(sequence * queries + i)] != static_cast<double>(n);
          }
        CHECK(wrong == 0);
      }
}

// The time follows the multiply-adds. A tile that a mask hides wholly costs none, and dilated hides none wholly.
TEST_CASE("mask: blocks that hide half of 4,096 tokens take half of the multiply-adds, a window its share") {
  constexpr int64_t tokens = 4096, window = 256;
  for (const char* spec : {"softmax", "pointwise(relu)", "pointwise(prelu)"}) {
    CAPTURE(spec);
    const Tensor x = random_tensor({1, tokens, 4}, 10).to(Dtype::f32), dy = random_tensor(x.shape(), 11).to(Dtype::f32);
    const auto work = [&](const std::string& expression) {
      const auto layer = make_attention(parse_spec(spec), {.width = 4, .heads = 1, .mask = mask_of(expression)});
      initialize(*layer, 0);
      const int64_t before = attention_multiply_adds();
      run(*layer, x, dy, {});
      return static_cast<double>(attention_multiply_adds() - before);
    };
    const double full = work("full");
    CHECK(work("fixed_blocks(2048, c=0)") <= 0.5 * full);
    CHECK(work("fixed_blocks(128, c=0)") <= 0.04 * full);
    CHECK(work("window(256)") <= (2 * window + 256.) / tokens * full);  // the edges of the band lie within tiles
    CHECK(work("dilated(2)") == full);
  }
}

TEST_CASE("mask: a text continued from a cache gives the outputs of the whole text, with every attention") {
  const NoGrad guard;
  for (const std::string& name : expressions()) {
    const std::string expression = name.find("prefix") == name.npos ? causal(name) : "causal or prefix(9)";
    CAPTURE(expression);
    for (const std::string& spec : attention_specs()) {
      CAPTURE(spec);
      if (spec.starts_with("linear") || spec.find("batch") != spec.npos) continue;
      const auto layer = layer_of(spec, {.width = 8, .heads = 2, .context = 80, .mask = mask_of(expression)});
      const Tensor x = random_tensor({1, 76, 8}, 5);
      ForwardPass pass;
      const Tensor all = (*layer)(x, pass);
      Cache cache;
      int64_t begin = 0;
      for (const int64_t count : {11, 1, 1, 40, 22, 1}) {
        ForwardPass part;
        part.cache = &cache;
        const Tensor y = (*layer)(tokens(x, 0, begin, begin + count), part);
        CHECK(largest_difference(y, tokens(all, 0, begin, begin + count)) <= 1e-10);
        cache.length = begin += count;
      }
    }
  }
}

TEST_CASE("mask: a query that sees no key has output 0 and gradients without NaN, under every attention") {
  for (const std::string& spec : attention_specs()) {
    CAPTURE(spec);
    if (spec.starts_with("linear")) continue;
    // Queries from position 16 on see no key.
    const auto layer = layer_of(
        spec, {.width = 8, .heads = 2, .bias = false, .mask = mask_of("fixed_blocks(16, 0) and sinks(16)")});
    const Tensor x = random_tensor({1, 40, 8}, 6);
    const LayerResult got = run(*layer, x, random_tensor({1, 40, 8}, 7), {});
    for (const double value : got.y.to_vector()) CHECK(std::isfinite(value));
    for (const double value : got.dx.to_vector()) CHECK(std::isfinite(value));
    if (spec.find("persistent") == spec.npos && spec.find("gate") == spec.npos)
      CHECK(largest_difference(tokens(got.y, 0, 20, 40), Tensor::zeros_like(tokens(got.y, 0, 20, 40))) == 0);
  }
}

TEST_CASE("mask: and binds tighter than or, and parentheses change that") {
  const NamedMask plain("sinks(1) or window(2) and dilated(5)"), grouped("(sinks(1) or window(2)) and dilated(5)");
  CHECK(plain.visible(7, 0));
  CHECK_FALSE(grouped.visible(7, 0));
  CHECK(grouped.visible(10, 0));
  CHECK_FALSE(plain.visible(7, 6));
  CHECK(plain.visible(7, 7));
}

TEST_CASE("mask: causal and window are a band of distances, without a table") {
  for (const char* expression : {"causal", "full", "window(8)", "causal and window(8) and window(12)"}) {
    CAPTURE(expression);
    CHECK_FALSE(NamedMask(expression).has_table());
  }
  CHECK(NamedMask("window(12) and causal and window(8)").band().window == 8);
  CHECK(NamedMask("causal and sinks(3)").band().causal);
  CHECK(NamedMask("causal and sinks(3)").has_table());
  CHECK_FALSE(NamedMask("causal or sinks(3)").band().causal);
}

TEST_CASE("mask: random blocks are the same for every length, and differ between layers and seeds") {
  const NamedMask one("random_blocks(4, r=2)"), again("random_blocks(4, r=2)"),
      layer("random_blocks(4, r=2)", 0, 1), seed("random_blocks(4, r=2, seed=2)");
  int64_t of_layer = 0, of_seed = 0;
  for (int64_t i = 0; i < 200; ++i)
    for (int64_t j = 0; j < 200; ++j) {
      CHECK(one.visible(i, j) == again.visible(i, j));
      CHECK(one.visible(i, j) == one.visible(j, i));
      of_layer += one.visible(i, j) != layer.visible(i, j), of_seed += one.visible(i, j) != seed.visible(i, j);
    }
  CHECK(of_layer > 0);
  CHECK(of_seed > 0);
  CHECK(one.facts().differs_by_layer);
  CHECK_FALSE(NamedMask("causal and sinks(3)").facts().differs_by_layer);
}

TEST_CASE("mask: a table has an eighth of a byte for each pair, and layers and lengths share it") {
  CHECK(mask_table_bytes(4096) <= 4096 * 4096 / 8 * 1.002);
  const auto mask = mask_of("causal and dilated(2)");
  const auto table = [&](int64_t tokens) {
    AttentionMask narrowed;
    mask->narrow(narrowed, {tokens, tokens}, Device::cpu);
    return narrowed.table.bits.data<int32_t>();
  };
  const int32_t* const whole = table(80);
  CHECK(table(80) == whole);
  CHECK(table(33) == whole);
}

TEST_CASE("mask: expressions that are wrong are refused") {
  const auto refused = [](const std::string& text) { return expect_error([&] { NamedMask mask(text); }); };
  for (const char* text : {"", "causal and", "and", "causal or or full", "()"}) {
    CAPTURE(text);
    refused(text).names("mask").offers("a name such as causal");
  }
  for (const char* text : {"causal window(3)", "causal AND full", "not causal", "(causal", "causal)"})
    refused(text).names("mask").value(text).offers("`and`");
  refused("causel").names("mask").value("causel").offers("causal");
  refused(std::string(40, '(') + "causal" + std::string(40, ')')).names("mask").value(32).offers("fewer");
  const auto setting = [](const char* text) { return expect_error([&] { NamedMask mask(text); }); };
  setting("window(0)").names("w").value(0).offers(1);
  setting("fixed_blocks(4, 5)").names("c").value(5).offers(4);
  expect_error<UsageError>([] { NamedMask mask("causal and window(w=3, w=4)"); }).names("mask").value("'w'");
}

TEST_CASE("mask: running sums refuse all masks but causal and full") {
  const auto make = [](const char* mask) {
    return [mask] { layer_of("linear", {.width = 8, .heads = 2, .mask = mask_of(mask)}); };
  };
  expect_error(make("causal and window(4)")).names("mask").offers("causal or full").offers("softmax");
  expect_error(make("causal and dilated(4)")).names("mask").offers("causal or full").offers("softmax");
  CHECK_NOTHROW(make("causal")());
}

TEST_CASE("mask: a cache that divides a prefix is refused") {
  const NoGrad guard;
  const auto layer = layer_of("softmax", {.width = 8, .heads = 2, .mask = mask_of("causal or prefix(9)")});
  Cache cache;
  ForwardPass pass;
  pass.cache = &cache;
  CHECK_NOTHROW((*layer)(random_tensor({1, 5, 8}, 1), pass));
  cache.length = 5;
  ForwardPass next;
  next.cache = &cache;
  expect_error([&] { (*layer)(random_tensor({1, 1, 8}, 1), next); }).names("mask").value(9).value(5).offers("again");
}
