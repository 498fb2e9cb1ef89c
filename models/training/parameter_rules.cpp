#include "models/training/parameter_rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/settings/spec.h"
#include "engine/types/ascii.h"
#include "engine/types/usage_error.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {
namespace {

// Calls apply(parameter, value) for each rule of a list and each parameter that matches it.
template <class Apply>
void for_each_rule(const std::string& key, std::string_view rules, nn::Module& model, const Apply& apply) {
  const std::vector<nn::NamedParameter> parameters = nn::parameters_of(model);
  for (size_t at = 0; at < rules.size();) {
    const size_t end = std::min(rules.find(',', at), rules.size()), equals = rules.rfind('=', end - 1);
    const std::string_view rule = trimmed(rules.substr(at, end - at));
    check(equals != std::string_view::npos && equals > at && equals < end, "train: ", key, ": '", rule,
          "' is not of the form PATTERN=VALUE");
    const std::string pattern(trimmed(rules.substr(at, equals - at))),
        value(trimmed(rules.substr(equals + 1, end - equals - 1)));
    bool fits = false;
    for (const nn::NamedParameter& p : parameters) {
      if (::fnmatch(pattern.c_str(), p.path.c_str(), 0) != 0) continue;
      fits = true;
      apply(*p.parameter, value);
    }
    check(fits, "train: ", key, ": no parameter path matches '", pattern, "'; the first path is ", parameters[0].path,
          ", the last ", parameters.back().path);
    at = end + 1;
  }
}

bool decays_weights(const Spec& optimizer) {
  const std::vector<Spec::Item> items = nn::resolved(nn::optimizers(), optimizer).items;
  return std::any_of(items.begin(), items.end(), [](const Spec::Item& item) { return item.key == "weight_decay"; });
}

}  // namespace

void apply_parameter_rules(const TrainSettings& settings, nn::Module& model) {
  nn::ensure_paths(model);
  const auto set_lr_scale = [](nn::Parameter& parameter, const std::string& value) {
    const double factor = parse_number("train: lr_scales", value);
    check(factor >= 0 && std::isfinite(factor), "train: a factor in lr_scales is ", value,
          "; it must be finite and at least 0");
    parameter.lr_scale = factor;
  };
  const bool can_decay = decays_weights(settings.optimizer);
  const auto set_decay = [&](nn::Parameter& parameter, const std::string& value) {
    parameter.decay = parse_yes_or_no("train: weight_decay_rules", value);
    check(can_decay || !parameter.decay, "train: weight_decay_rules: optimizer=", settings.optimizer,
          " has no weight_decay; leave weight_decay_rules out, or use an optimizer that has it, such as adamw");
  };
  as_usage([&] {
    for_each_rule("lr_scales", settings.lr_scales, model, set_lr_scale);
    for_each_rule("weight_decay_rules", settings.weight_decay_rules, model, set_decay);
  });
}

}  // namespace orrery::models
