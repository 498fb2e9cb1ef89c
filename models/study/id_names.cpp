#include "models/study/id_names.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "models/former_names.h"
#include "models/settings/settings_table.h"

namespace orrery::models {
namespace {

struct Name {
  std::string_view now, in_id;
};
constexpr Name keys[] = {{"batch_size", "batch"},           {"kv_heads", "key_heads"},
                         {"cache_length", "memory"},        {"max_length", "longest"},
                         {"initialization", "initial_std"}, {"lr_scales", "rate_factors"},
                         {"weight_decay_rules", "decays"},  {"metrics", "figures"},
                         {"metrics_every", "figures_every"}};

// Words of a value; the key is today's.
struct Value {
  std::string_view key;
  Name word;
};
constexpr Value values[] = {{"initialization", {"fan_in", "by_inputs"}},
                            {"initialization", {"inverse_sqrt_width", "by_width"}},
                            {"initialization", {"normal", "equal"}},
                            {"optimizer", {"lr_scales=none", "learning_rates=equal"}},
                            {"optimizer", {"lr_scales=groups", "learning_rates=by_group"}},
                            {"tokenizer", {"token_ids", "numbers"}},
                            {"metrics", {"default", "usual"}}};

std::string_view word_in_id(std::string_view key, std::string_view word) {
  for (const Value& value : values)
    if (value.key == key && value.word.now == word) return value.word.in_id;
  if (key == "metrics" || key == "model")
    for (const FormerName& name : key == "model" ? former_presets() : former_metrics())
      if (name.current == word) return name.former;
  return word;
}

}  // namespace

std::string key_in_id(const std::string& key) {
  const auto* const found = std::find_if(std::begin(keys), std::end(keys), [&](const Name& n) { return n.now == key; });
  return found == std::end(keys) ? key : std::string(found->in_id);
}

std::string value_in_id(const std::string& key, const std::string& value) {
  std::string all;
  for (size_t begin = 0; begin < value.size();) {
    const size_t end = std::min(value.find_first_of(" ,()", begin), value.size());
    all += word_in_id(key, std::string_view(value).substr(begin, end - begin));
    if (end < value.size()) all += value[end];
    begin = end + 1;
  }
  return all;
}

std::string config_in_id(const std::string& path) {
  toml::table named;
  for (const auto& [key, node] : read_toml(path)) {
    const std::string name(key.str());
    if (const auto* const value = node.as_string())
      named.insert(key_in_id(name), value_in_id(name, value->get()));
    else
      named.insert(key_in_id(name), node);
  }
  std::ostringstream json;
  json << toml::json_formatter(named);
  return json.str();
}

}  // namespace orrery::models
