// Reads claims from TOML files, key by key.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "engine/types/ascii.h"
#include "engine/types/usage_error.h"
#include "models/settings/settings_file.h"
#include "models/settings/settings_table.h"
#include "models/study/claim.h"
#include "models/study/metric_inputs.h"
#include "models/study/refutation.h"
#include "models/training/settings.h"

namespace orrery::models {
namespace {

constexpr size_t max_variants = 64, max_values = 64, max_seeds = 1000, max_refutations = 64;

const std::vector<std::string> known_keys = {
    "source", "sentence", "kind", "config",   "seeds",       "learning_rates", "metric",   "refuted_if", "rounds",
    "base",   "sweep",    "main", "variants", "round_steps", "example",        "few_shot", "reported",   "smaller"};
constexpr const char* former_reported = "figure";

class ClaimReader {
 public:
  explicit ClaimReader(const std::string& path) : path_(path), table_(read_toml(path)) {}

  Claim read() {
    for (const auto& [key, node] : members_in_order(table_)) check_known(key, *node);
    claim_.path = path_;
    claim_.source = sentence("source", "give the author and the year or address of the claim");
    claim_.sentence = sentence("sentence", "state the claim");
    read_kind();
    if (const std::string config = text_at("config").value_or(""); !config.empty()) {
      claim_.config = resolve_path(path_, config);
      check(!claim_.config.empty(), location("config"), ": config file ", config,
            " not found; give a path relative to the current folder, the claim's folder or a folder above that");
    }
    check(!table_.contains("reported") || !table_.contains(former_reported), location("reported"),
          ": reported is given twice, because ", former_reported, " is its former name; leave one out");
    claim_.reported = text_at("reported").value_or(text_at(former_reported).value_or("")),
    claim_.smaller = text_at("smaller").value_or("");
    if (const toml::node* const main = table_.get("main")) {
      check(main->is_boolean(), location("main"), ": main must be true or false");
      claim_.main = main->as_boolean()->get();
    }
    check(!claim_.config.empty() || table_.contains("base"), path_,
          ": the claim has no base settings; name a settings file as config, or give settings in [base]");
    if (const toml::table* const base = table_at("base")) claim_.base = settings(*base, {});
    read_variants();
    read_sweep();
    read_samples();
    read_learning_rates();
    read_metric();
    read_refutations();
    read_inputs(claim_, table_);
    return std::move(claim_);
  }

 private:
  void check_known(const std::string& key, const toml::node& node) const {
    if (std::find(known_keys.begin(), known_keys.end(), key) != known_keys.end() || key == former_reported) return;
    const std::string meant = nearest(key, known_keys);
    fail(location(node), ": unknown key '", key, "'; ",
         meant.empty() ? "known keys are " + join(known_keys) + "; settings belong in [base]"
                       : "did you mean '" + meant + "'? settings belong in [base]");
  }

  void read_kind() {
    const std::string kind = sentence("kind", "give trained, derived or timed");
    const bool known = kind == "trained" || kind == "derived" || kind == "timed";
    check(known, location("kind"), ": kind is '", kind, "'; it must be trained, derived or timed");
    claim_.kind = kind == "trained"   ? Claim::Kind::trained
                  : kind == "derived" ? Claim::Kind::derived
                                      : Claim::Kind::timed;
  }

  // Returns the settings of the model and task that the assignments or the config file name.
  TrainSettings scratch_of(const Assignments& given) const {
    const auto named = [&](const char* name) {
      const auto last = std::find_if(given.rbegin(), given.rend(), [&](const auto& s) { return s.first == name; });
      if (last != given.rend()) return std::optional(last->second);
      return claim_.config.empty() ? std::nullopt : value_in_settings_file(claim_.config, name);
    };
    TrainSettings scratch(named("model").value_or(TrainSettings().model), named("task").value_or(""));
    for (const auto& [key, value] : given) set_setting(scratch, path_, key, value, foreign_keys());
    return scratch;
  }
  // Returns a table's settings by their canonical names. A variant may set the keys of its model and task.
  Assignments settings(const toml::table& table, const Assignments& before) const {
    Assignments given = before;
    for (const char* const key : {"model", "task"})
      if (const auto name = table[key].value<std::string>()) given.emplace_back(key, *name);
    TrainSettings scratch = scratch_of(given);
    const std::vector<Setting> members = settings_of(scratch);
    Assignments found = settings_in_table(table, path_, members, foreign_keys());
    for (auto& [key, value] : found) {
      key = canonical_key(members, key, foreign_keys());
      check_not_own(key);
    }
    return found;
  }
  void check_not_own(const std::string& key) const {
    for (const char* const own : {"out", "seed", "resume"})
      check(key != own, path_, ": a claim cannot set '", own, "'; ",
            key == "seed" ? "list seeds at the top of the file, as in seeds = [1, 2, 3]"
                          : "leave it out, because orrery study sets it");
  }

  std::string edits_of(const toml::table& variant) const {
    const toml::node* const edits = variant.get("edits");
    check(!edits || edits->is_string(), edits ? location(*edits) : path_,
          ": edits must be a text, as in edits = \"blocks.0.attention.3*0; embedding*2\"");
    return edits ? edits->as_string()->get() : "";
  }

  void read_variants() {
    const toml::table* const variants = table_at("variants");
    check(variants && !variants->empty(), path_,
          ": the claim has no variants; give the settings of each in a table, as in [variants.relu]");
    check(variants->size() <= max_variants, location("variants"), ": ", variants->size(), " variants; at most ",
          max_variants, " are allowed; leave some out");
    for (const auto& [name, node] : members_in_order(*variants)) {
      check(node->is_table(), location(*node), ": the variant '", name,
            "' must be a table of settings, as in [variants.", name, "]");
      const bool plain =
          std::all_of(name.begin(), name.end(), [](char c) { return is_letter_or_digit(c) || c == '_'; });
      const bool is_name = !name.empty() && plain && !is_digit(name[0]) && name != "swept";
      check(is_name, location(*node), ": the variant name '", name,
            "' is invalid; use letters, digits and _, no digit first; the name swept is reserved");
      toml::table& table = *table_["variants"][name].as_table();
      const std::string edits = edits_of(table);
      table.erase("edits");
      check(edits.empty() || claim_.kind == Claim::Kind::trained, location(*node), ": the variant '", name,
            "' has edits, which change a trained model, but the claim's kind is ", models::name(claim_.kind),
            "; leave edits out");
      claim_.variants.push_back({name, settings(table, claim_.base), edits, location(*node)});
    }
  }

  void read_sweep() {
    const toml::table* const sweep = table_at("sweep");
    if (!sweep) return;
    swept_keys(*sweep, "");
    check(!claim_.sweep.empty(), location("sweep"),
          ": [sweep] is empty; list values of a setting, as in layers = [2, 4]");
    check_none_overridden();
    for (const SweptKey& key : claim_.sweep)
      check(key.values.size() == claim_.sweep[0].values.size(), location("sweep"), ": the list ", key.key,
            " has length ", key.values.size(), " and ", claim_.sweep[0].key, " has ", claim_.sweep[0].values.size(),
            "; lists in [sweep] change together, so give all the same length");
    std::set<std::string> distinct(claim_.sweep[0].values.begin(), claim_.sweep[0].values.end());
    check(distinct.size() == claim_.swept_values() && distinct.size() > 1, location("sweep"), ": ", claim_.sweep[0].key,
          " must have two or more values, all different");
  }
  // Gives the swept keys their canonical names; each must be the only one that sets its setting.
  void check_none_overridden() {
    Assignments given = claim_.base;
    for (const auto& each : claim_.variants[0].settings) given.push_back(each);
    TrainSettings scratch = scratch_of(given);
    const std::vector<Setting> members = settings_of(scratch);
    std::map<std::string, std::string> typed;  // by canonical names
    for (SweptKey& swept : claim_.sweep) {
      const std::string key = canonical_key(members, swept.key, foreign_keys());
      check_not_own(key);
      const auto [other, is_new] = typed.try_emplace(key, swept.key);
      check(is_new, location("sweep"), ": ", swept.key, " is another name of ", other->second,
            ", which is in [sweep] too; leave one of them out");
      for (const Variant& variant : claim_.variants)
        for (const auto& [its, value] : variant.settings)
          check(its != key && !its.starts_with(key + "."), location("sweep"), ": the variant '", variant.name,
                "' sets ", its, ", which ", swept.key, " of [sweep] overrides; leave one of them out");
      swept.key = key;
    }
  }
  void swept_keys(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : members_in_order(table)) {
      if (const toml::table* const inner = node->as_table()) {
        swept_keys(*inner, prefix + key + ".");
        continue;
      }
      const toml::array* const list = node->as_array();
      check(list && list->size() <= max_values, location(*node), ": ", prefix + key, " must be a list of at most ",
            max_values, " values, as in [32, 256]");
      SweptKey swept{prefix + key, {}};
      for (const toml::node& each : *list) {
        if (const auto* const integer = each.as_integer()) swept.values.push_back(std::to_string(integer->get()));
        if (const auto* const real = each.as_floating_point()) swept.values.push_back(print_number(real->get()));
        if (const auto* const word = each.as_string()) swept.values.push_back(word->get());
      }
      check(swept.values.size() == list->size(), location(*node), ": the values of ", swept.key,
            " must be numbers or text in quotes");
      claim_.sweep.push_back(std::move(swept));
    }
  }

  void read_samples() {
    if (claim_.kind == Claim::Kind::timed) {
      check(!table_.contains("seeds"), location("seeds"), ": a timed claim cannot have seeds; set rounds instead");
      claim_.seeds = {1};
      claim_.rounds = whole_number("rounds", 10, 2, 10'000);
      claim_.round_steps = whole_number("round_steps", 10, 1, 100'000);
      return;
    }
    for (const char* key : {"rounds", "round_steps"})
      check(!table_.contains(key), location(key), ": ", key, " is only for a timed claim, but this claim is ",
            name(claim_.kind), "; leave it out");
    const toml::array* const list = list_at("seeds");
    check(list, path_, ": the claim has no seeds; give two or more, as in seeds = [1, 2, 3]");
    check(list->size() <= max_seeds, location("seeds"), ": ", list->size(), " seeds; at most ", max_seeds,
          " are allowed; leave some out");
    for (const toml::node& each : *list) {
      const auto* const seed = each.as_integer();
      check(seed && seed->get() >= 0, location("seeds"), ": seeds must be whole numbers of at least 0");
      check(std::find(claim_.seeds.begin(), claim_.seeds.end(), seed->get()) == claim_.seeds.end(), location("seeds"),
            ": the seed ", seed->get(), " is listed twice; leave one out");
      claim_.seeds.push_back(seed->get());
    }
    check(claim_.seeds.size() >= 2, location("seeds"), ": a ", name(claim_.kind), " claim with ",
          claim_.seeds.size() == 1 ? "one seed" : "no seed",
          " has no confidence interval and cannot be tested; give two or more, as in seeds = [1, 2, 3]");
  }

  void read_learning_rates() {
    if (!table_.contains("learning_rates")) return;
    check(claim_.kind == Claim::Kind::trained, location("learning_rates"),
          ": learning_rates is only for a trained claim, but this claim is ", name(claim_.kind), "; leave it out");
    const toml::array* const list = list_at("learning_rates");
    check(!list->empty() && list->size() <= max_values, location("learning_rates"), ": learning_rates must have 1 to ",
          max_values, " values, not ", list->size());
    for (const toml::node& each : *list) {
      const double lr = each.value<double>().value_or(NAN);
      check(std::isfinite(lr) && lr > 0, location("learning_rates"), ": learning rates must be numbers above 0");
      check(std::find(claim_.learning_rates.begin(), claim_.learning_rates.end(), lr) == claim_.learning_rates.end(),
            location("learning_rates"), ": the learning rate ", print_number(lr), " is listed twice; leave one out");
      claim_.learning_rates.push_back(lr);
    }
    const auto is_lr = [](const std::string& key) { return key == "learning_rate" || key == "min_learning_rate"; };
    for (const SweptKey& key : claim_.sweep)
      check(!is_lr(key.key), location("sweep"), ": ", key.key,
            " is in [sweep], but learning_rates is given too; leave one of them out");
    for (const Variant& variant : claim_.variants)
      for (const auto& [key, value] : variant.settings)
        check(!is_lr(key), path_, ": the variant '", variant.name,
              "' sets its own learning rate, but learning_rates is given too; leave one of them out");
  }

  void read_metric() {
    const bool timed = claim_.kind == Claim::Kind::timed;
    std::string text = text_at("metric").value_or("");
    check(!text.empty() || timed, path_,
          ": the claim has no metric; name a metric that its runs log, as in metric = \"validation_loss\"");
    if (text.empty()) text = "step_ms";
    claim_.metrics = {checked_metric(location("metric"), text)};
    claim_.metric_locations = {location("metric")};
  }

  MetricExpression checked_metric(const std::string& where, const std::string& text) const {
    MetricExpression metric = parse_metric(where, text);
    check(!metric.is_of_sweep() || !claim_.sweep.empty(), where, ": ", metric.name,
          "(...) requires a swept setting; list its values in [sweep]");
    check(!metric.uses_swept() || !claim_.sweep.empty(), where,
          ": the metric uses swept, but the claim has no [sweep]; list values of a setting there");
    const std::vector<std::string> patterns = metric.patterns();
    check(!patterns.empty(), where, ": the metric '", text, "' contains no logged metric; name one, such as ",
          claim_.kind == Claim::Kind::timed ? "step_ms" : "loss");
    if (claim_.kind == Claim::Kind::timed)
      check(patterns == std::vector<std::string>{"step_ms"}, where, ": a timed claim can only measure step_ms, not ",
            join(patterns));
    else if (metric.is_of_sweep() && (metric.name == "power" || metric.name == "doubling"))
      for (size_t i = 0; i < claim_.swept_values(); ++i)
        check(claim_.swept_number(i) > 0, where, ": ", metric.name, "(...) requires swept values above 0, but ",
              claim_.sweep[0].key, " has ", claim_.swept_text(i), "; leave it out");
    return metric;
  }

  void read_refutations() {
    const toml::node* const node = table_.get("refuted_if");
    check(node, path_,
          ": the claim has no refuted_if; state what refutes the claim, as in refuted_if = \"relu > softmax\"");
    std::vector<std::string> texts;
    if (const auto* const one = node->as_string()) texts = {one->get()};
    if (const auto* const list = node->as_array())
      for (const toml::node& each : *list) {
        check(each.is_string(), location(*node), ": refuted_if must be text in quotes, or a list of such texts");
        texts.push_back(each.as_string()->get());
      }
    check(!texts.empty() && texts.size() <= max_refutations, location(*node),
          ": refuted_if must be text in quotes, or a list of 1 to ", max_refutations, " such texts");
    std::vector<std::string> names;
    for (const Variant& variant : claim_.variants) names.push_back(variant.name);
    for (const std::string& text : texts) {
      Comparison comparison = parse_refutation(location(*node), text, names);
      const bool over_sweep = metric_of(comparison, location(*node)).is_of_sweep();
      check(!comparison.number.uses_swept() || (!claim_.sweep.empty() && !over_sweep), location(*node), ": '", text,
            "' uses swept, but its metric has no swept value; give a number instead");
      if (claim_.kind == Claim::Kind::timed) {
        check(comparison.of_variants || over_sweep, location(*node),
              ": step_ms depends on the machine and cannot be compared with a number; compare '", comparison.left,
              "' with another variant");
        if (!over_sweep) {
          check(comparison.is_relative || comparison.bound == 0, location(*node),
                ": the margin of a timed claim must be a percentage, as in '", comparison.left, " > ", comparison.right,
                " + 5 %'");
          comparison.is_relative = true;
        }
      }
      claim_.refuted_if.push_back(std::move(comparison));
    }
  }

  // Returns the comparison's own metric, else the claim's; lists a new metric once.
  const MetricExpression& metric_of(Comparison& comparison, const std::string& where) {
    if (comparison.metric_text.empty()) return claim_.metrics[0];
    const MetricExpression own = checked_metric(where, comparison.metric_text);
    for (size_t i = 0; i < claim_.metrics.size(); ++i)
      if (print(claim_.metrics[i]) == print(own)) {
        comparison.metric = i;
        return claim_.metrics[i];
      }
    comparison.metric = claim_.metrics.size();
    claim_.metrics.push_back(own);
    claim_.metric_locations.push_back(where);
    return claim_.metrics.back();
  }

  std::string location(const toml::node& node) const { return toml_location(path_, node); }
  std::string location(const char* key) const {
    const toml::node* const node = table_.get(key);
    return node ? location(*node) : path_;
  }
  std::optional<std::string> text_at(const char* key) const {
    const toml::node* const node = table_.get(key);
    if (!node) return {};
    check(node->is_string(), location(*node), ": ", key, " must be text in quotes");
    return node->as_string()->get();
  }
  std::string sentence(const char* key, const char* what) const {
    const std::string text = text_at(key).value_or("");
    check(!text.empty(), path_, ": the claim has no ", key, "; ", what);
    return text;
  }
  const toml::table* table_at(const char* key) const {
    const toml::node* const node = table_.get(key);
    check(!node || node->is_table(), node ? location(*node) : "", ": ", key, " must be a table, as in [", key, "]");
    return node ? node->as_table() : nullptr;
  }
  const toml::array* list_at(const char* key) const {
    const toml::node* const node = table_.get(key);
    check(!node || node->is_array(), node ? location(*node) : "", ": ", key, " must be a list, as in ", key,
          " = [1, 2, 3]");
    return node ? node->as_array() : nullptr;
  }
  int64_t whole_number(const char* key, int64_t default_value, int64_t low, int64_t high) const {
    const toml::node* const node = table_.get(key);
    if (!node) return default_value;
    const auto* const integer = node->as_integer();
    check(integer && integer->get() >= low && integer->get() <= high, location(*node), ": ", key,
          " must be a whole number from ", low, " to ", high);
    return integer->get();
  }

  const std::string& path_;
  toml::table table_;
  Claim claim_;
};

}  // namespace

std::string resolve_path(const std::string& claim, const std::string& path) {
  if (file_exists(path) || folder_exists(path)) return path;
  if (std::filesystem::path(path).is_absolute()) return "";
  for (std::filesystem::path folder = std::filesystem::absolute(claim).lexically_normal().parent_path();;
       folder = folder.parent_path()) {
    const std::string there = (folder / path).string();
    if (file_exists(there) || folder_exists(there)) return there;
    if (!folder.has_relative_path()) return "";
  }
}

Claim read_claim(const std::string& path) {
  return as_content([&] { return ClaimReader(path).read(); });
}

}  // namespace orrery::models
