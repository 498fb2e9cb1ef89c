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

constexpr const char *report_name = "found.json", *report_format = "orrery finding 1";

Json json_of(const OperationRecord::Value& value) {
  const TensorStats& f = value.stats;
  Json json = {{"tensor", value.name}, {"dtype", name(f.dtype)}, {"shape", Json::array()}};
  for (const int64_t size : f.shape) json["shape"].push_back(size);
  json["nan"] = f.nan, json["inf"] = f.plus_infinity, json["-inf"] = f.minus_infinity;
  if (f.first >= 0) json["first"] = f.first;
  if (!std::isnan(f.smallest)) json["smallest"] = f.smallest, json["largest"] = f.largest;  // of the finite values
  return json;
}
Json json_of(const std::vector<OperationRecord::Value>& values) {
  Json all = Json::array();
  for (const OperationRecord::Value& value : values) all.push_back(json_of(value));
  return all;
}

int64_t count_member(const Json& json, const char* key, int64_t limit, const std::string& what) {
  const int64_t count = whole_number_member(json, key, what);
  check(count >= 0 && count <= limit, what, ": '", key, "' is ", count, "; it must be at least 0 and at most ", limit);
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
    const bool whole = size.is_number_integer() && size <= max_elements && size >= 0;
    check(whole, what, ": 'shape' has ", json_text(size), "; a size must be a whole number of at least 0 and at most ",
          max_elements);
    shape.append(size.get<int64_t>());
  }
  return shape;
}
OperationRecord::Value value_in(const Json& json, const std::string& what) {
  OperationRecord::Value value{.name = text_member(json, "tensor", what), .stats = {}};
  TensorStats& f = value.stats;
  f.dtype = dtype_named(text_member(json, "dtype", what), what), f.shape = shape_in(json, what);
  const int64_t all = f.shape.numel();
  f.nan = count_member(json, "nan", all, what), f.plus_infinity = count_member(json, "inf", all, what),
  f.minus_infinity = count_member(json, "-inf", all, what);
  check(f.non_finite() <= all, what, ": ", value.name, " has ", f.non_finite(), " non-finite values, more than its ",
        all, " values");
  if (f.non_finite() > 0) f.first = count_member(json, "first", all - 1, what);
  f.smallest = f.largest = std::numeric_limits<double>::quiet_NaN();
  if (f.non_finite() < all)
    f.smallest = number_member(json, "smallest", what), f.largest = number_member(json, "largest", what);
  return value;
}
std::vector<OperationRecord::Value> values_in(const Json& json, const char* key, const std::string& what) {
  std::vector<OperationRecord::Value> values;
  for (const Json& each : list_member(json, key, what)) values.push_back(value_in(each, what));
  return values;
}

}  // namespace

std::string message(const NonFiniteReport& f) {
  return text(f.validating ? value_not_finite_in_validation : value_not_finite, f.step, ": ",
              NonFiniteError(f.call).what());
}

std::string replay_folder(const std::string& run) { return run + "/replay"; }
bool is_replay(const std::string& folder) { return file_exists(folder + "/" + report_name); }
std::string replay_folder_at(const std::string& folder) {
  for (const std::string& each : {replay_folder(folder), folder})
    if (is_replay(each)) return each;
  fail("replay: ", folder, " has no ", report_name,
       "; a run with --nan_guard=yes writes it when it finds a non-finite value");
}

void write_replay(const std::string& folder, const NonFiniteReport& report, const CheckpointState& state,
                  nn::Module& model, const nn::Optimizer& optimizer) {
  RunFolder replay(folder);
  replay.remove_partial();
  replay.remove_all();
  replay.write(state, model, &optimizer);
  write_report(folder, report);
}

std::string text_of(const NonFiniteReport& report) {
  const OperationRecord& call = report.call;
  const Json json = {{"format", report_format},       {"version", build().version},
                     {"step", report.step},           {"during", report.validating ? "validation" : "step"},
                     {"operation", call.operation},   {"direction", call.direction},
                     {"module", call.module},         {"tensor", call.outputs[call.first_non_finite].name},
                     {"read", json_of(call.inputs)},  {"made", json_of(call.outputs)},
                     {"found", call.first_non_finite}};
  return json_text(json, 2) + "\n";
}

void write_report(const std::string& folder, const NonFiniteReport& report) {
  write_output("train", folder + "/" + report_name,
               marked_kind("a file of --nan_guard=yes", "{\n  \"format\": \"orrery "), text_of(report));
}

NonFiniteReport read_report(const std::string& folder) {
  const std::string path = folder + "/" + report_name;
  return report_in(read_file(path, max_json_bytes), path);
}

NonFiniteReport report_in(const std::string& content, const std::string& path) {
  const Json json = parse_json(content, path);
  const std::string format = text_member(json, "format", path), during = text_member(json, "during", path);
  check(format == report_format, path, ": its format is '", format, "', but this version reads '", report_format,
        "'; use the version of orrery that wrote it");
  check(during == "step" || during == "validation", path, ": 'during' is ", during, "; it must be step or validation");
  NonFiniteReport f{.step = count_member(json, "step", std::numeric_limits<int64_t>::max(), path),
                    .validating = during == "validation",
                    .call = {.operation = text_member(json, "operation", path),
                             .direction = text_member(json, "direction", path),
                             .module = text_member(json, "module", path),
                             .inputs = values_in(json, "read", path),
                             .outputs = values_in(json, "made", path)}};
  check(!f.call.outputs.empty(), path, ": 'made' must have at least 1 entry");
  f.call.first_non_finite =
      static_cast<size_t>(count_member(json, "found", static_cast<int64_t>(f.call.outputs.size()) - 1, path));
  check(f.call.outputs[f.call.first_non_finite].stats.non_finite() > 0, path, ": 'found' is ", f.call.first_non_finite,
        ", but that entry of 'made' is finite");
  return f;
}

}  // namespace orrery::models
