#include "models/training/replay.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/system/version.h"
#include "models/formats/json.h"
#include "models/formats/output_file.h"
#include "models/training/not_finite.h"
#include "models/training/run_folder.h"

namespace orrery::models {
namespace {

constexpr const char *finding_name = "found.json", *finding_format = "orrery finding 1";

Json json_of(const LookedAt::Value& value) {
  const NumberFacts& f = value.facts;
  Json json = {{"tensor", value.name}, {"dtype", name(f.dtype)}, {"shape", Json::array()}};
  for (const int64_t size : f.shape) json["shape"].push_back(size);
  json["nan"] = f.nan, json["inf"] = f.plus_infinity, json["-inf"] = f.minus_infinity;
  if (f.first >= 0) json["first"] = f.first;
  if (!std::isnan(f.smallest)) json["smallest"] = f.smallest, json["largest"] = f.largest;  // of the finite values
  return json;
}
Json json_of(const std::vector<LookedAt::Value>& values) {
  Json all = Json::array();
  for (const LookedAt::Value& value : values) all.push_back(json_of(value));
  return all;
}

int64_t count_member(const Json& json, const char* key, int64_t most, const std::string& what) {
  const int64_t count = whole_number_member(json, key, what);
  check(count >= 0 && count <= most, what, ": '", key, "' is ", count, "; it must be at least 0 and at most ", most);
  return count;
}
Dtype dtype_named(const std::string& given, const std::string& what) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::i32})
    if (given == name(dtype)) return dtype;
  fail(what, ": no dtype '", given, "'; there are f32, f64, bf16 and i32");
}
Shape shape_in(const Json& json, const std::string& what) {
  const Json& sizes = member(json, "shape", what);
  check(sizes.is_array() && sizes.size() <= Shape::max_rank, what, ": 'shape' must be a list of at most ",
        Shape::max_rank, " sizes");
  Shape shape;
  for (const Json& size : sizes) {
    const bool whole = size.is_number_integer() && size <= largest_size && size >= 0;
    check(whole, what, ": 'shape' has ", size.dump(), "; a size must be a whole number of at least 0 and at most ",
          largest_size);
    shape.append(size.get<int64_t>());
  }
  return shape;
}
LookedAt::Value value_in(const Json& json, const std::string& what) {
  LookedAt::Value value{.name = text_member(json, "tensor", what), .facts = {}};
  NumberFacts& f = value.facts;
  f.dtype = dtype_named(text_member(json, "dtype", what), what), f.shape = shape_in(json, what);
  const int64_t all = f.shape.numel();
  f.nan = count_member(json, "nan", all, what), f.plus_infinity = count_member(json, "inf", all, what),
  f.minus_infinity = count_member(json, "-inf", all, what);
  check(f.not_finite() <= all, what, ": ", value.name, " has ", f.not_finite(), " non-finite values, more than its ",
        all, " values");
  if (f.not_finite() > 0) f.first = count_member(json, "first", all - 1, what);
  f.smallest = f.largest = std::numeric_limits<double>::quiet_NaN();
  if (f.not_finite() < all)
    f.smallest = number_member(json, "smallest", what), f.largest = number_member(json, "largest", what);
  return value;
}
std::vector<LookedAt::Value> values_in(const Json& json, const char* key, const std::string& what) {
  std::vector<LookedAt::Value> values;
  for (const Json& each : list_member(json, key, what)) values.push_back(value_in(each, what));
  return values;
}

}  // namespace

std::string sentence(const Finding& f) {
  return text(f.validating ? value_not_finite_in_validation : value_not_finite, f.step, ": ",
              NotFiniteFound(f.call).what());
}

std::string replay_folder(const std::string& run) { return run + "/replay"; }
std::string replay_folder_at(const std::string& folder) {
  for (const std::string& each : {replay_folder(folder), folder})
    if (file_exists(each + "/" + finding_name)) return each;
  fail("replay: ", folder, " has no ", finding_name,
       "; a run with --nan_guard=yes writes it when it finds a non-finite value");
}

void write_replay(const std::string& folder, const Finding& finding, const CheckpointState& state, nn::Module& model,
                  const nn::Optimizer& optimizer) {
  RunFolder place(folder);
  place.remove_partial();
  place.remove_all();
  place.write(state, model, &optimizer);
  write_finding(folder, finding);
}

void write_finding(const std::string& folder, const Finding& finding) {
  const LookedAt& call = finding.call;
  const Json json = {{"format", finding_format},    {"version", build().version},
                     {"step", finding.step},        {"during", finding.validating ? "validation" : "step"},
                     {"operation", call.operation}, {"direction", call.direction},
                     {"module", call.module},       {"tensor", call.made[call.found].name},
                     {"read", json_of(call.read)},  {"made", json_of(call.made)},
                     {"found", call.found}};
  write_output("train", folder + "/" + finding_name,
               marked_kind("a file of --nan_guard=yes", "{\n  \"format\": \"orrery "), json.dump(2) + "\n");
}

Finding read_finding(const std::string& folder) {
  const std::string path = folder + "/" + finding_name;
  const Json json = parse_json(read_file(path, largest_json), path);
  const std::string format = text_member(json, "format", path), during = text_member(json, "during", path);
  check(format == finding_format, path, ": its format is '", format, "', but this version reads '", finding_format,
        "'; use the version of orrery that wrote it");
  check(during == "step" || during == "validation", path, ": 'during' is ", during, "; it must be step or validation");
  Finding f{.step = count_member(json, "step", std::numeric_limits<int64_t>::max(), path),
            .validating = during == "validation",
            .call = {.operation = text_member(json, "operation", path),
                     .direction = text_member(json, "direction", path),
                     .module = text_member(json, "module", path),
                     .read = values_in(json, "read", path),
                     .made = values_in(json, "made", path)}};
  check(!f.call.made.empty(), path, ": 'made' must have at least 1 entry");
  f.call.found = static_cast<size_t>(count_member(json, "found", static_cast<int64_t>(f.call.made.size()) - 1, path));
  check(f.call.made[f.call.found].facts.not_finite() > 0, path, ": 'found' is ", f.call.found,
        ", but that entry of 'made' is finite");
  return f;
}

}  // namespace orrery::models
