// Head patching against values that are mixed by hand.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

// The logit of 5 minus that of 2 at the last position; the examples end alike.
const std::string here_text = "0 1 4 2 2 4 1 3", there_text = "0 1 5 2 6 4 1 3";
double measure(const Tensor& logits) {
  const std::vector<double> z = logits[7].to_vector();
  return z[5] - z[2];
}

Tensor captured(const InspectedExample& example, const std::string& name) {
  Tensor value;
  const Hooks hooks({name}, [&](const std::string&, const Tensor& x) { value = x.clone(); });
  example.run();
  return value;
}

}  // namespace

TEST_CASE("head patching: each cell is the fraction that a head's output, query, key or value restores") {
  for (const char* const kv_heads : {"2", "1"}) {
    const auto model = small_gpt({{"kv_heads", kv_heads}});
    const auto inspected = example_of(*model, here_text), other = example_of(*model, there_text);
    const std::vector<View> views =
        analyze(*inspected, "head_patching", {.answer = "5", .against = "2", .patch_from = other.get()});
    const double here = measure(inspected->run()), there = measure(other->run());
    REQUIRE(std::abs(there - here) > 0.1);
    for (const auto& kind : {std::pair("output", "head_output"), std::pair("query", "query"), std::pair("key", "key"),
                             std::pair("value", "value")}) {
      const auto& map = shown<MapView>(views, std::string("head_patching/") + kind.first);
      CHECK(map.rows == std::vector<std::string>{"blocks.0.attention", "blocks.1.attention"});
      for (const std::string& path : map.rows) {
        const std::string name = path + "." + kind.second;
        const Tensor own = captured(*inspected, name), others = captured(*other, name);
        CHECK(map.columns.size() == static_cast<size_t>(own.size(2)));
        for (int64_t head = 0; head < own.size(2); ++head) {
          std::vector<double> mixed = own.to_vector();
          const std::vector<double> from = others.to_vector();
          for (size_t i = 0; i < mixed.size(); ++i)
            if (static_cast<int64_t>(i) / 8 % own.size(2) == head) mixed[i] = from[i];
          const Hooks hooks({name}, Hooks::Replace{[&](const std::string&, const Tensor& x) {
                              return Tensor::from(x.shape(), mixed, x.dtype());
                            }});
          const double fraction = (measure(inspected->run()) - here) / (there - here);
          CAPTURE(name);
          CHECK(row_of(map, path)[static_cast<size_t>(head)] == doctest::Approx(fraction).epsilon(1e-9));
          CHECK(metrics_of(views).at(text("head_patching/", kind.first, "/", path, ".", head)) ==
                doctest::Approx(fraction).epsilon(1e-9));
        }
      }
    }
  }
}

TEST_CASE("head patching: of a chosen head, the keys and values are those that it reads") {
  const auto model = small_gpt({{"heads", "4"}, {"kv_heads", "2"}});
  const auto inspected = example_of(*model, here_text), other = example_of(*model, there_text);
  const auto keys_of = [&](int64_t head) {
    const std::vector<View> views =
        analyze(*inspected, "head_patching", {.head = head, .patch_from = other.get()});
    return row_of(shown<MapView>(views, "head_patching/key"), "blocks.0.attention");
  };
  const std::vector<double> all = keys_of(-1), one = keys_of(1), last = keys_of(3);
  REQUIRE(all.size() == 2);
  CHECK(one[0] == all[0]);
  CHECK(std::isnan(one[1]));
  CHECK(last[1] == all[1]);
  CHECK(std::isnan(last[0]));
}

TEST_CASE("head patching: in one layer without feed-forward and final norm, the outputs restore the whole difference") {
  const auto model = small_gpt({{"layers", "1"}, {"feed_forward", "none"}, {"final_normalization", "none"}});
  const auto inspected = example_of(*model, here_text), other = example_of(*model, there_text);
  const std::vector<View> views =
      analyze(*inspected, "head_patching", {.answer = "5", .against = "2", .patch_from = other.get()});
  const std::vector<double> outputs = row_of(shown<MapView>(views, "head_patching/output"), "blocks.0.attention"),
                            queries = row_of(shown<MapView>(views, "head_patching/query"), "blocks.0.attention");
  CHECK(outputs[0] + outputs[1] == doctest::Approx(1).epsilon(1e-9));
  for (const double fraction : queries) CHECK(fraction == 0);  // the last token, which alone is read, is the same
}

TEST_CASE("head patching: without a second example there is nothing; equal predictions and other lengths are stated") {
  const auto model = small_gpt({}), another = small_gpt({});
  const auto inspected = example_of(*model, here_text), same = example_of(*model, here_text),
             shorter = example_of(*model, "0 1 4"), stranger = example_of(*another, here_text);
  CHECK(analyze(*inspected, "head_patching", {}).empty());
  const std::vector<View> none = analyze(*inspected, "head_patching", {.patch_from = same.get()});
  REQUIRE(none.size() == 1);
  CHECK(none[0].title == "Patching from the other example: no difference to restore");
  const auto refused = [&](const AnalysisSettings& s) {
    return expect_error([&] { analyze(*inspected, "head_patching", s); });
  };
  refused({.patch_from = shorter.get()}).value(8).value(3).offers("as many tokens");
  refused({.patch_from = stranger.get()}).names("patching").offers("one model");
  refused({.head = 2, .patch_from = same.get()}).names("head").value(2).offers(1);
  refused({.layer = 2, .patch_from = same.get()}).names("layer").value(2).offers(1);
  const auto other = example_of(*model, there_text);
  const std::vector<View> one = analyze(
      *inspected, "head_patching", {.layer = 1, .head = 1, .answer = "5", .against = "2", .patch_from = other.get()});
  const auto& map = shown<MapView>(one, "head_patching/output");
  CHECK(map.rows == std::vector<std::string>{"blocks.1.attention"});
  CHECK(std::isnan(map.values.to_vector()[0]));
  CHECK(!std::isnan(map.values.to_vector()[1]));
}
