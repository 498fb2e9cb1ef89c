#include "models/study/verdict_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/formats/json.h"
#include "models/former_names.h"
#include "models/study/refutation.h"

namespace orrery::models {
namespace {

Verdict parse_verdict(const std::string& word, const std::string& what) {
  for (const Verdict each : {Verdict::shown, Verdict::not_shown, Verdict::reversed})
    if (word == name(each)) return each;
  fail(what, ": the verdict is '", word, "'; it must be shown, not shown or reversed");
}

bool flag_member(const Json& object, const std::string& key, const std::string& what) {
  const Json& value = member(object, key, what);
  check_form(value.is_boolean(), value, key, what, "true or false");
  return value.get<bool>();
}

std::map<std::string, std::set<std::string>> hashes_in(const Json& json, const std::string& what) {
  check(json.is_object(), what, ": 'read' must be an object {...}");
  std::map<std::string, std::set<std::string>> all;
  for (const auto& [key, hashes] : json.items())
    for (const Json& each : list_member(json, key, what)) {
      check(each.is_string(), what, ": '", key, "' of 'read' must be a list of texts");
      all[key].insert(each.get<std::string>());
    }
  return all;
}

Json json_of(const ComparisonResult& c) {
  return {{"refuted_if", c.refuted_if},
          {"metric", c.metric},
          {"name", c.name},
          {"at", c.at},
          {"verdict", name(c.verdict)},
          {"known", c.known},
          {"on_border", c.is_borderline},
          {"mean", c.mean},
          {"low", c.low},
          {"high", c.high},
          {"samples", c.samples},
          {"needed", c.needed},
          {"sentence", c.sentence}};
}
ComparisonResult comparison_in(const Json& json, const std::string& what) {
  ComparisonResult c;
  const std::string metric = text_member(json, "metric", what), shown = ": " + humanize(metric) + ",";
  c.metric = with_current_metrics(metric), c.name = text_member(json, "name", what);
  c.refuted_if = with_renamed_metric(text_member(json, "refuted_if", what), with_current_metrics);
  c.at = text_member(json, "at", what), c.sentence = text_member(json, "sentence", what);
  if (const size_t at = c.sentence.find(shown); at != std::string::npos)
    c.sentence.replace(at, shown.size(), ": " + humanize(c.metric) + ",");
  c.verdict = parse_verdict(text_member(json, "verdict", what), what);
  c.known = flag_member(json, "known", what), c.is_borderline = flag_member(json, "on_border", what);
  c.mean = number_member(json, "mean", what), c.low = number_member(json, "low", what);
  c.high = number_member(json, "high", what);
  c.samples = whole_number_member(json, "samples", what), c.needed = whole_number_member(json, "needed", what);
  return c;
}

Json comparisons_of(const ClaimResult& result) {
  Json all = Json::array();
  for (const ComparisonResult& each : result.comparisons) all.push_back(json_of(each));
  return all;
}
ClaimResult result_in(const Json& json, const std::string& what) {
  ClaimResult result;
  result.verdict = parse_verdict(text_member(json, "verdict", what), what);
  for (const Json& each : list_member(json, "comparisons", what))
    result.comparisons.push_back(comparison_in(each, what));
  return result;
}

}  // namespace

std::string StudyVerdict::label() const {
  if (smoke) return "smoke";
  return name(result.verdict) + (result.verdict == Verdict::shown && !smaller.empty() ? " at this scale" : "");
}

bool StudyVerdict::is_borderline() const {
  return std::any_of(result.comparisons.begin(), result.comparisons.end(),
                     [](const ComparisonResult& each) { return each.is_borderline; });
}

OutputKind verdict_kind() { return marked_kind("a verdict of a study", "{\n \"file\": \"", "\n \"sentence\": "); }

void write_verdict(const std::string& path, const StudyVerdict& v) {
  Json json = {{"file", v.file},
               {"source", v.source},
               {"sentence", v.sentence},
               {"kind", v.kind},
               {"metric", v.metric},
               {"version", v.version},
               {"claim", v.claim},
               {"meaning", v.meaning},
               {"command", v.command},
               {"runs", v.runs},
               {"smoke", v.smoke},
               {"samples", v.samples},
               {"minutes", v.minutes},
               {"minutes_of_runs", v.minutes_of_runs}};
  json["read"] = v.input_hashes;
  json["verdict"] = name(v.result.verdict);
  json["reported"] = v.reported, json["smaller"] = v.smaller, json["main"] = v.main;
  json["comparisons"] = comparisons_of(v.result);
  json["learning_rates"] = Json::array();
  for (const auto& [variant, rate] : v.learning_rates)
    json["learning_rates"].push_back({{"variant", variant}, {"learning_rate", rate}});
  json["common_rate"] = v.shared_lr;
  if (v.at_shared_lr)
    json["at_common_rate"] = {{"verdict", name(v.at_shared_lr->verdict)},
                              {"comparisons", comparisons_of(*v.at_shared_lr)}};
  json["missing"] = v.missing;
  write_output("study", path, verdict_kind(), shown_json(json, 1) + "\n");
}

StudyVerdict read_verdict(const std::string& path) {
  const Json json = parse_json(read_file(path, max_json_bytes), path);
  StudyVerdict v;
  v.file = text_member(json, "file", path), v.source = text_member(json, "source", path);
  v.sentence = text_member(json, "sentence", path), v.kind = text_member(json, "kind", path);
  v.metric = with_current_metrics(text_member(json, "metric", path)), v.version = text_member(json, "version", path);
  v.claim = text_member(json, "claim", path), v.command = text_member(json, "command", path);
  v.runs = text_member(json, "runs", path), v.samples = text_member(json, "samples", path);
  if (json.contains("meaning")) v.meaning = text_member(json, "meaning", path);
  v.smoke = flag_member(json, "smoke", path);
  v.minutes = number_member(json, "minutes", path), v.minutes_of_runs = number_member(json, "minutes_of_runs", path);
  if (json.contains("read")) v.input_hashes = hashes_in(json["read"], path);
  v.reported = text_member(json, json.contains("figure") ? "figure" : "reported", path);  // the former name, or today's
  v.smaller = text_member(json, "smaller", path);
  v.main = flag_member(json, "main", path);
  v.result = result_in(json, path);
  for (const Json& each : list_member(json, "learning_rates", path))
    v.learning_rates.emplace_back(text_member(each, "variant", path), number_member(each, "learning_rate", path));
  v.shared_lr = number_member(json, "common_rate", path);
  if (const auto common = json.find("at_common_rate"); common != json.end()) v.at_shared_lr = result_in(*common, path);
  for (const Json& each : list_member(json, "missing", path)) {
    check(each.is_string(), path, ": 'missing' must be a list of sentences");
    v.missing.push_back(each.get<std::string>());
  }
  return v;
}

}  // namespace orrery::models
