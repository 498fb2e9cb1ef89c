#include "models/study/claim.h"

#include <algorithm>
#include <set>
#include <span>

#include "engine/system/hash.h"
#include "models/inspection/base/analysis.h"
#include "models/study/id_names.h"

namespace orrery::models {

std::string name(Claim::Kind kind) {
  return kind == Claim::Kind::trained ? "trained" : kind == Claim::Kind::derived ? "derived" : "timed";
}

std::string Claim::swept_text(size_t i) const { return sweep.empty() ? "" : sweep[0].values[i]; }

double Claim::swept_number(size_t i) const {
  if (sweep.empty()) return 0;
  try {
    return parse_number(sweep[0].key, sweep[0].values[i]);
  } catch (const Error&) {
    return static_cast<double>(i + 1);
  }
}

bool Claim::is_measured(size_t metric, const std::string& variant) const {
  return metric == 0 || std::any_of(refuted_if.begin(), refuted_if.end(), [&](const Comparison& each) {
           return each.metric == metric && (each.left == variant || each.right == variant);
         });
}

std::vector<std::string> Claim::analyses() const {
  std::set<std::string> named;
  for (const MetricExpression& metric : metrics)
    for (const std::string& pattern : metric.patterns())
      if (const size_t slash = pattern.find('/'); slash != std::string::npos)
        if (const std::string name = pattern.substr(0, slash); models::analyses().find(name)) named.insert(name);
  return {named.begin(), named.end()};
}

std::string claim_hash(const std::string& path) {
  const std::string parsed = claim_in_id(path);
  return sha256(std::as_bytes(std::span(parsed)));
}

Claim for_smoke(Claim claim) {
  const Comparison first = claim.refuted_if[0];
  std::set<std::string> kept = {first.left};
  if (first.of_variants) kept.insert(first.right);
  for (const Variant& variant : claim.variants)
    if (kept.size() < 2) kept.insert(variant.name);
  std::erase_if(claim.variants, [&](const Variant& variant) { return !kept.contains(variant.name); });
  std::erase_if(claim.refuted_if, [&](const Comparison& each) {
    return !kept.contains(each.left) || (each.of_variants && !kept.contains(each.right));
  });
  for (SweptKey& key : claim.sweep) key.values.resize(2);
  claim.seeds.resize(1);
  if (!claim.learning_rates.empty()) claim.learning_rates.resize(1);
  claim.smoke = true;
  claim.few_shot.shots = std::min<int64_t>(claim.few_shot.shots, 2), claim.few_shot.seeds = 1;
  if (claim.kind == Claim::Kind::timed) claim.rounds = 1, claim.round_steps = 2;
  return claim;
}

Assignments settings_of_run(const Claim& claim, const Variant& variant, size_t swept, int64_t seed, double lr) {
  Assignments all = claim.base;
  all.insert(all.end(), variant.settings.begin(), variant.settings.end());
  for (const SweptKey& key : claim.sweep) all.emplace_back(key.key, key.values[swept]);
  if (lr > 0) {
    all.emplace_back("learning_rate", print_number(lr));
    all.emplace_back("min_learning_rate", print_number(lr / 10));
  }
  const bool derived = claim.kind == Claim::Kind::derived;
  all.emplace_back("seed", std::to_string(seed));
  if (derived || claim.smoke) {
    all.emplace_back("steps", derived ? "1" : "2");
    all.emplace_back("evaluate_every", "0");
    all.emplace_back("checkpoint_every", "0");
  }
  if (derived) {
    all.emplace_back("metrics", "all");
    all.emplace_back("metrics_every", "1");
  }
  return all;
}

}  // namespace orrery::models
