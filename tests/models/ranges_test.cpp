// Every registered number setting has a range; an absurd value is refused when it is parsed.
#include <doctest/doctest.h>

#include <cmath>

#include "models/architectures/gpt.h"
#include "models/data/algorithmic/base/problem.h"
#include "models/training/trainer.h"
#include "nn/attentions/base/attention.h"
#include "nn/formulas/activation.h"
#include "tests/support/errors.h"
#include "tests/support/message.h"

using namespace orrery;
using orrery::testing::error_of;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

struct Owned {
  std::string owner;
  Setting setting;
};

void add(std::vector<Owned>& all, const std::string& owner, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) all.push_back({owner, setting});
}
template <class Registry>
void add_family(std::vector<Owned>& all, const Registry& registry) {
  for (const auto& [name, entry] : registry)
    if (entry.ranges) add(all, name, entry.ranges());
}

std::vector<Owned> numbers() {
  std::vector<Owned> all;
  add(all, "train", settings_without_values<models::TrainSettings>());
  add_family(all, nn::attentions());
  add_family(all, nn::feed_forwards());
  add_family(all, nn::normalizations());
  add_family(all, nn::positions());
  add_family(all, nn::masks());
  add_family(all, nn::optimizers());
  add_family(all, nn::schedules());
  add_family(all, models::problems());
  for (const nn::Info& info : nn::attention_settings())
    if (info.ranges) add(all, std::string(info.name), info.ranges());
  for (const auto& names : {nn::activation_names(), nn::learned_activation_names()})
    for (const std::string& name : names) add(all, name, nn::ranges_of_activation(name));
  std::erase_if(all, [](const Owned& o) {
    return std::holds_alternative<bool*>(o.setting.value) || std::holds_alternative<std::string*>(o.setting.value) ||
           std::holds_alternative<Spec*>(o.setting.value);
  });
  return all;
}

Message refusal(const std::string& key, const std::string& value) {  // hundreds of them: not in the golden file
  return Message(error_of([&] { models::make_settings({{key, value}}); })).names("train").names(key);
}

}  // namespace

TEST_CASE("ranges: every number of the catalogue and of training has a low and a high limit") {
  const std::vector<Owned> all = numbers();
  CHECK(all.size() > 100);
  for (const Owned& each : all) {
    const Setting& setting = each.setting;
    CAPTURE(each.owner);
    CAPTURE(setting.key);
    CHECK(std::isfinite(setting.limits.low));
    CHECK(std::isfinite(setting.limits.high));
    CHECK(setting.limits.low < setting.limits.high);
    CHECK(setting.limits.smallest_magnitude <= setting.limits.high);
  }
}

TEST_CASE("ranges: the error for a number out of range has the setting, the value and the limit") {
  for (const Owned& each : numbers()) {
    const Setting& setting = each.setting;
    if (each.owner != "train") continue;
    const std::string& key = setting.key.empty() ? setting.aliases.at(0) : setting.key;
    CAPTURE(key);
    const Limits& limits = setting.limits;
    const double above = limits.high_allowed ? 2 * limits.high : limits.high;
    const auto shown = [&](double x) {
      const bool whole = std::holds_alternative<int64_t*>(setting.value) && std::abs(x) < 9e18;
      return whole ? std::to_string(static_cast<int64_t>(x)) : print_number(x);
    };
    refusal(key, shown(above)).value(shown(above)).offers(print_number(limits.high));
    const double below = limits.low_allowed ? limits.low - std::max(1.0, std::abs(limits.low) / 2) : limits.low;
    refusal(key, shown(below)).value(shown(below)).offers(print_number(limits.low));
    for (const char* none : {"nan", "inf", "-inf", "1e400", "", "seven", "0x10"}) refusal(key, none);
  }
  refusal("layers", "9223372036854775808").value("9223372036854775808").offers(4096);
  refusal("layers", "1e300").value("1e300").offers(4096);
}

TEST_CASE("ranges: a number too small for f32 is an error; 0 is accepted if it has a meaning") {
  refusal("grad_clip", "1e-310").value("1e-310").offers(0).offers("1e-30");
  CHECK_NOTHROW(models::make_settings({{"grad_clip", "0"}}));
  refusal("learning_rate", "4.9e-324").value("5e-324").offers("1e-30");
  refusal("feed_forward_divisor", "-1e-9").value("-1e-9").offers(0).offers("1e-6").offers("magnitude");
}

TEST_CASE("ranges: numbers inside specs are checked, too") {
  const auto refusal_of = [](const char* attention, const char* position) {
    models::GptSettings settings;
    settings.vocabulary = 5, settings.attention = parse_spec(attention), settings.position = parse_spec(position);
    return expect_error([&] { models::Gpt model(settings); });
  };
  refusal_of("pointwise(length=fixed(1e9))", "none").names("fixed").names("n").value(1000000000).offers(16777216);
  refusal_of("softmax(persistent=1e9)", "none").names("persistent").names("N").value(1000000000).offers(65536);
  refusal_of("softmax", "relative(4611686018427387904)").value("4611686018427387904").names("S").offers(16777216);
  refusal_of("gau(size=2305843009213693952)", "none").names("gau: size").value(2305843009213693952).offers(65536);
}
