#include "models/study/verdict_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "models/json.h"

namespace orrery::models {
namespace {

Verdict parse_verdict(const std::string& word, const std::string& what) {
  for (const Verdict each : {Verdict::shown, Verdict::not_shown, Verdict::reversed})
    if (word == name(each)) return each;
  fail(what, ": the verdict is '", word, "'; it must be shown, not shown or reversed");
}

bool flag_member(const Json& object, const std::string& key, const std::string& what) {
  const Json& value = member(object, key, what);
  check(value.is_boolean(), what, ": '", key, "' must be true or false");
  return value.get<bool>();
}
const Json& list_member(const Json& object, const std::string& key, const std::string& what) {
  const Json& value = member(object, key, what);
  check(value.is_array(), what, ": '", key, "' must be a list");
  return value;
}

Json json_of(const JudgedComparison& c) {
  return {{"refuted_if", c.refuted_if},
          {"metric", c.metric},
          {"name", c.name},
          {"at", c.at},
          {"verdict", name(c.verdict)},
          {"known", c.known},
          {"mean", c.mean},
          {"low", c.low},
          {"high", c.high},
          {"samples", c.samples},
          {"needed", c.needed},
          {"sentence", c.sentence}};
}
JudgedComparison comparison_in(const Json& json, const std::string& what) {
  JudgedComparison c;
  c.refuted_if = text_member(json, "refuted_if", what), c.name = text_member(json, "name", what);
  c.metric = text_member(json, "metric", what);
  c.at = text_member(json, "at", what), c.sentence = text_member(json, "sentence", what);
  c.verdict = parse_verdict(text_member(json, "verdict", what), what);
  c.known = flag_member(json, "known", what);
  c.mean = number_member(json, "mean", what), c.low = number_member(json, "low", what);
  c.high = number_member(json, "high", what);
  c.samples = whole_number_member(json, "samples", what), c.needed = whole_number_member(json, "needed", what);
  return c;
}

}  // namespace

std::string StudyVerdict::word() const { return smoke ? "smoke" : name(judged.verdict); }

void write_verdict(const std::string& path, const StudyVerdict& v) {
  Json json = {{"file", v.file},
               {"source", v.source},
               {"sentence", v.sentence},
               {"kind", v.kind},
               {"metric", v.metric},
               {"version", v.version},
               {"claim", v.claim},
               {"command", v.command},
               {"runs", v.runs},
               {"smoke", v.smoke},
               {"samples", v.samples},
               {"minutes", v.minutes},
               {"minutes_of_runs", v.minutes_of_runs}};
  json["verdict"] = name(v.judged.verdict);
  json["comparisons"] = Json::array();
  for (const JudgedComparison& each : v.judged.comparisons) json["comparisons"].push_back(json_of(each));
  json["missing"] = v.missing;
  write_file_atomically(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

StudyVerdict read_verdict(const std::string& path) {
  const Json json = parse_json(read_file(path, largest_json), path);
  StudyVerdict v;
  v.file = text_member(json, "file", path), v.source = text_member(json, "source", path);
  v.sentence = text_member(json, "sentence", path), v.kind = text_member(json, "kind", path);
  v.metric = text_member(json, "metric", path), v.version = text_member(json, "version", path);
  v.claim = text_member(json, "claim", path), v.command = text_member(json, "command", path);
  v.runs = text_member(json, "runs", path), v.samples = text_member(json, "samples", path);
  v.smoke = flag_member(json, "smoke", path);
  v.minutes = number_member(json, "minutes", path), v.minutes_of_runs = number_member(json, "minutes_of_runs", path);
  v.judged.verdict = parse_verdict(text_member(json, "verdict", path), path);
  for (const Json& each : list_member(json, "comparisons", path))
    v.judged.comparisons.push_back(comparison_in(each, path));
  for (const Json& each : list_member(json, "missing", path)) {
    check(each.is_string(), path, ": 'missing' must be a list of sentences");
    v.missing.push_back(each.get<std::string>());
  }
  return v;
}

}  // namespace orrery::models
