// signal_propagation.json, written and read.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/system/version.h"
#include "models/formats/json.h"
#include "models/formats/output_file.h"
#include "models/hook_names.h"
#include "models/training/signal_propagation.h"
#include "nn/diagnostics/predictions.h"

namespace orrery::models {
namespace {

constexpr const char* format_name = "orrery probe 1";

double number_or_null(const Json& json, const char* key, const std::string& what) {
  const Json& value = member(json, key, what);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : number_member(json, key, what);
}
Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(); }

}  // namespace

std::string propagation_file(const std::string& run) { return run + "/signal_propagation.json"; }

std::string signal_propagation_to_read(const std::string& run) {
  const std::string former = run + "/probe.json";
  return file_exists(propagation_file(run)) || !file_exists(former) ? propagation_file(run) : former;
}

void write_propagation(const std::string& file, const SignalPropagation& propagation) {
  Json values = Json::array(), ratios = Json::array();
  for (const SignalPropagation::Value& v : propagation.values)
    values.push_back({{"name", v.name}, {"mean_square", finite(v.mean_square)}, {"gradient", finite(v.gradient)}});
  for (const SignalPropagation::Ratio& r : propagation.ratios)
    ratios.push_back({{"place", r.path},
                      {"ratio", r.ratio},
                      {"measured", finite(r.measured)},
                      {"predicted", finite(r.predicted)},
                      {"formula", r.formula},
                      {"v", finite(r.v)}});
  const Json json = {{"format", format_name}, {"version", build().version}, {"values", values}, {"ratios", ratios}};
  write_file_atomically(file, json_text(json, 2) + "\n");
}

SignalPropagation read_propagation(const std::string& file) {
  const Json json = parse_json(read_file(file, max_json_bytes), file);
  const std::string format = text_member(json, "format", file);
  check(format == format_name, file, ": its format is '", format, "', but this version reads '", format_name,
        "'; use the version of orrery that wrote it");
  SignalPropagation propagation;
  for (const Json& v : list_member(json, "values", file))
    propagation.values.push_back({current_hook_name(text_member(v, "name", file)),
                                  number_or_null(v, "mean_square", file), number_or_null(v, "gradient", file)});
  for (const Json& r : list_member(json, "ratios", file)) {
    const std::string ratio = text_member(r, "ratio", file);
    propagation.ratios.push_back({text_member(r, "place", file),
                                  ratio == "read / value" ? nn::ratio::head_output : ratio,
                                  number_or_null(r, "measured", file), number_or_null(r, "predicted", file),
                                  text_member(r, "formula", file), number_or_null(r, "v", file)});
  }
  return propagation;
}

void check_free_for_propagation(const std::string& run) {
  const auto can_be_read = [](const std::string& file) {
    try {
      read_propagation(file);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  check_output("train", propagation_file(run), {"a file of --signal_propagation=yes", can_be_read});
}

}  // namespace orrery::models
