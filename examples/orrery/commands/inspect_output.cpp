#include "examples/orrery/commands/inspect_output.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "engine/settings/spec.h"
#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/csv.h"
#include "models/formats/output_file.h"
#include "models/former_names.h"
#include "models/inspection/base/analysis.h"
#include "models/inspection/base/hook_axes.h"
#include "models/interop/npy.h"
#include "models/study/run_contents.h"

namespace orrery::program {
namespace {

using models::Json;

constexpr const char *metrics_header = "metric,value\n", *former_metrics_header = "figure,value\n",
                     *written_by = "written_by", *writer = "orrery inspect";

Json axis(const std::string& name, const std::vector<std::string>& labels) {
  return {{"name", name}, {"labels", labels}};
}

// Each row begins with the name of an analysis.
models::OutputKind metrics_kind() {
  const std::string name = "a CSV file of metrics";
  const auto is_ours = [name](const std::string& path) {
    std::vector<std::string> analyses;
    for (const std::string& analysis : models::analyses().names()) {
      analyses.push_back(analysis);
      for (std::string& former : models::analyses().aliases(analysis)) analyses.push_back(std::move(former));
    }
    return std::any_of(analyses.begin(), analyses.end(), [&](const std::string& analysis) {
      return models::marked_kind(name, metrics_header + analysis + "/").is_ours(path) ||
             models::marked_kind(name, former_metrics_header + analysis + "/").is_ours(path);
    });
  };
  return {name, is_ours};
}
models::OutputKind tensors_kind() {
  return {"a file that orrery inspect wrote", [](const std::string& path) {
            try {
              return SafetensorsReader(path).take_metadata()[written_by] == writer;
            } catch (const Error&) {
              return false;  // another file, or a damaged one
            }
          }};
}
models::OutputKind names_kind() {
  return models::marked_kind("a file of names that orrery inspect wrote",
                             text("{\n  \"", written_by, "\": \"", writer, "\""));
}

void write_metrics_csv(const std::string& path, const std::map<std::string, double>& metrics) {
  std::string csv = metrics_header;
  for (const auto& [name, value] : metrics) csv += models::csv_line({name, print_number(value)});
  models::write_output("inspect", path, metrics_kind(), csv);
}

void print_written(const std::string& out, size_t count, const char* what) {
  std::cout << for_terminal(out) << ": " << pluralize(static_cast<int64_t>(count), what) << std::endl;
}

void write_tensors(const std::string& out, std::span<const NamedArray> arrays,
                   const std::map<std::string, double>& metrics, const Json& origin) {
  std::vector<NamedTensor> all;
  Json names = Json::object();
  for (const NamedArray& each : arrays) all.push_back(each.tensor), names[each.tensor.name] = each.names;
  for (const auto& [name, value] : metrics)
    all.push_back({name, Tensor::from(Shape{1}, std::vector<double>{value}, Dtype::f64)});
  std::map<std::string, std::string> metadata = {{written_by, writer}, {"arrays", models::json_text(names)}};
  for (const auto& [key, value] : origin.items())
    metadata[key] = value.is_string() ? value.get<std::string>() : models::json_text(value);
  models::check_output("inspect", out, tensors_kind());
  write_safetensors(out, all, metadata);
  print_written(out, all.size(), "tensor");
}

void write_folder(const std::string& out, std::span<const NamedArray> arrays,
                  const std::map<std::string, double>& metrics, const Json& origin) {
  const auto path_of = [&](const NamedArray& each, const char* ending) {
    std::string file = each.tensor.name;
    std::replace(file.begin(), file.end(), '/', '.');
    return out + "/" + file + ending;
  };
  for (const NamedArray& each : arrays) {
    models::check_output("inspect", path_of(each, ".npy"), models::npy_kind());
    models::check_output("inspect", path_of(each, ".json"), names_kind());
  }
  models::check_output("inspect", out + "/metrics.csv", metrics_kind());
  const FolderLock lock(out, {"inspect"});
  for (const NamedArray& each : arrays) {
    const auto& [name, tensor] = each.tensor;
    models::write_npy(path_of(each, ".npy"),
                      {name, tensor.dtype() == Dtype::f64 ? "F64" : "F32", sizes_of(tensor.shape()), tensor, {}});
    Json names = {{written_by, writer}, {"array", name}};
    names.update(each.names), names.update(origin);
    models::write_output("inspect", path_of(each, ".json"), names_kind(), models::json_text(names, 2) + "\n");
  }
  if (!metrics.empty()) write_metrics_csv(out + "/metrics.csv", metrics);
  print_written(out, 2 * arrays.size() + (metrics.empty() ? 0 : 1), "file");
}

// Returns true if `out` is one file.
bool is_one_file(const std::string& out) { return out.ends_with(".safetensors") || out.ends_with(".csv"); }

}  // namespace

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return sizes;
}

std::vector<NamedArray> arrays_of(std::span<const models::View> views) {
  std::vector<NamedArray> all;
  for (const models::View& view : views) {
    if (view.name.empty()) continue;
    if (const auto* const map = std::get_if<models::MapView>(&view.data)) {
      Json axes = {axis("map", map->names), axis(map->axes.first, map->rows), axis(map->axes.second, map->columns)};
      all.push_back({{view.name, map->values}, {{"quantity", map->quantity}, {"axes", std::move(axes)}}});
    }
    if (const auto* const lens = std::get_if<models::LensView>(&view.data))
      for (const auto& [name, values] :
           {std::pair("log_probability", &lens->log_probability), std::pair("rank", &lens->rank),
            std::pair("most_likely", &lens->probability)}) {
        Json axes = {axis("map", {}), axis("layer", lens->rows), axis("position", lens->columns)};
        all.push_back({{view.name + "/" + name, *values}, {{"quantity", name}, {"axes", std::move(axes)}}});
      }
    const auto* const lines = std::get_if<models::LineView>(&view.data);
    if (!lines) continue;
    for (const models::LineView::Line& line : lines->lines) {
      std::vector<double> both = line.x;
      both.insert(both.end(), line.y.begin(), line.y.end());
      const Json axes = {axis("", {lines->x_label, lines->y_label}), axis(lines->x_label, lines->x_labels)};
      all.push_back(
          {{view.name + "/" + line.name, Tensor::from(Shape{2, static_cast<int64_t>(line.x.size())}, both, Dtype::f64)},
           {{"quantity", lines->y_label}, {"axes", axes}}});
    }
  }
  return all;
}

NamedArray hook_array(const models::InspectedExample& example, const std::string& hook, const std::string& name,
                      const Tensor& value) {
  const std::string path = hook.substr(0, hook.rfind('.'));
  Json axes = Json::array();
  const std::vector<std::string> counted = models::hook_axes(hook, value.shape(), value.dtype());
  for (size_t i = 0; i < counted.size(); ++i) {
    std::vector<std::string> labels;
    const int64_t size = value.size(static_cast<int>(i));
    const bool of_keys = counted[i] == "key" || models::is_of_encoder(hook);
    if (counted[i] == "position" || counted[i] == "key")
      labels = of_keys ? example.key_labels(path) : example.position_labels(path);
    const auto keys = static_cast<int64_t>(labels.size());
    for (int64_t slot = 0; counted[i] == "key" && keys + slot < size; ++slot) labels.push_back(text("slot ", slot));
    for (int32_t choice = 0; counted[i] == "choice" && choice < size; ++choice)
      labels.push_back(example.target_name(choice));
    if (static_cast<int64_t>(labels.size()) != size) labels.clear();  // such as one position for all
    axes.push_back(axis(counted[i], labels));
  }
  return {{name, value}, {{"axes", std::move(axes)}}};
}

Json origin_of(const std::string& run, const std::string& example, const models::InspectedExample& inspected) {
  Json origin = {{"run", run}, {"example", example}, {"tokens", inspected.position_labels("")}};
  // Encoder and decoder have different tokens.
  if (const auto& source = inspected.position_labels("encoder"); source != inspected.position_labels(""))
    origin["source_tokens"] = source;
  return origin;
}

void check_out(const std::string& out) {
  const std::string ending = std::filesystem::path(out).extension().string();
  const bool known = ending.empty() || ending == ".safetensors" || ending == ".csv";
  check_usage(known || folder_exists(out), "inspect: --out=", out, " has the extension ", ending,
              ", which is not supported; give FILE.safetensors, FILE.csv, or a folder for .npy files (a new one "
              "without an extension)");
  if (!is_one_file(out)) return models::check_no_run("inspect", without_last_slashes(out));
  models::check_output("inspect", out, out.ends_with(".csv") ? metrics_kind() : tensors_kind());
}

void write_out(const std::string& out, std::span<const NamedArray> arrays, const std::map<std::string, double>& metrics,
               const Json& origin) {
  if (out.ends_with(".csv")) {
    check(!metrics.empty(),
          "inspect: these analyses return no metrics for --out; choose --analysis=heads, logit_lens, "
          "logit_attribution, neurons, ablation or normalization_curves");
    write_metrics_csv(out, metrics);
    return print_written(out, metrics.size(), "metric");
  }
  check(!arrays.empty() || !metrics.empty(),
        "inspect: these analyses return no values for --out; choose others with --analysis, or values with --hooks");
  (is_one_file(out) ? write_tensors : write_folder)(out, arrays, metrics, origin);
}

}  // namespace orrery::program
