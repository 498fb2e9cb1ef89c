#include "models/study/id_names.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "engine/types/check.h"
#include "models/former_names.h"
#include "models/settings/settings_table.h"
#include "models/study/refutation.h"

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

// Names in a value of the setting `key` (current name). A name that ends with = begins an argument.
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
                            {"tokenizer", {"max_bytes=", "most_bytes="}},
                            {"metrics", {"default", "usual"}}};

std::string word_in_id(std::string_view key, std::string_view word) {
  for (const Value& value : values) {
    const auto& [now, in_id] = value.word;
    const bool is_it = now.back() == '=' ? word.starts_with(now) : word == now;
    if (value.key == key && is_it) return text(in_id, word.substr(now.size()));
  }
  if (key == "metrics" || key == "model")
    for (const FormerName& name : key == "model" ? former_presets() : former_metrics())
      if (name.current == word) return std::string(name.former);
  return std::string(word);
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

namespace {

// Returns the node, with every text in it renamed.
template <class Rename>
toml::array renamed_list(const toml::array& list, const Rename& rename) {
  toml::array all;
  for (const toml::node& each : list)
    if (const auto* const text = each.as_string())
      all.push_back(rename(text->get()));
    else
      all.push_back(each);
  return all;
}
template <class Rename>
void insert(toml::table& to, const std::string& key, const toml::node& node, const Rename& rename) {
  if (const auto* const text = node.as_string())
    to.insert(key, rename(text->get()));
  else if (const auto* const list = node.as_array())
    to.insert(key, renamed_list(*list, rename));
  else
    to.insert(key, node);
}

toml::table settings_in_id(const toml::table& settings) {
  toml::table named;
  for (const auto& [name, node] : settings) {
    const std::string key(name.str());
    insert(named, key_in_id(key), node, [&](const std::string& value) { return value_in_id(key, value); });
  }
  return named;
}

std::string as_json(const toml::table& table) {
  std::ostringstream json;
  json << toml::json_formatter(table);
  return json.str();
}

}  // namespace

std::string config_in_id(const std::string& path) { return as_json(settings_in_id(read_toml(path))); }

std::string claim_in_id(const std::string& path) {
  toml::table named;
  for (const auto& [name, node] : read_toml(path)) {
    const std::string key(name.str());
    const toml::table* const table = node.as_table();
    if (table && (key == "base" || key == "sweep")) {
      named.insert(key, settings_in_id(*table));
    } else if (table && key == "variants") {
      toml::table variants;
      for (const auto& [variant, settings] : *table)
        if (const toml::table* const its = settings.as_table())
          variants.insert(variant, settings_in_id(*its));
        else
          variants.insert(variant, settings);
      named.insert(key, std::move(variants));
    } else if (key == "metric") {
      insert(named, key, node, with_former_metrics);
    } else if (key == "refuted_if") {
      insert(named, key, node, [](const std::string& text) { return with_renamed_metric(text, with_former_metrics); });
    } else {
      named.insert(key == "reported" ? "figure" : key, node);
    }
  }
  return as_json(named);
}

}  // namespace orrery::models
