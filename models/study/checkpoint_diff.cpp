#include "models/study/checkpoint_diff.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/settings/spec.h"
#include "engine/system/files.h"
#include "engine/tensor/safetensors.h"
#include "models/formats/json.h"
#include "models/study/metric_names.h"

namespace orrery::models {
namespace {

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string shortened(const std::string& text) { return text.size() > 60 ? text.substr(0, 57) + "..." : text; }

std::string both(const std::string& what, const std::string& first, const std::string& second) {
  return text(what, " is ", shortened(first), " and ", shortened(second));
}

std::string first_number(const Tensor& a, const Tensor& b) {
  const auto* const x = static_cast<const std::byte*>(a.raw());
  const auto* const y = static_cast<const std::byte*>(b.raw());
  const auto size = static_cast<size_t>(a.bytes() / a.numel());
  size_t at = 0;
  while (std::memcmp(x + at * size, y + at * size, size) == 0) ++at;
  const auto number = [&](const Tensor& t) { return print_number(t.to(Dtype::f64).data<double>()[at]); };
  return both(text("number ", at), number(a), number(b));
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

std::string tensors_difference(const std::string& first, const std::string& second) {
  const std::vector<NamedTensor> a = read_safetensors(first).tensors, b = read_safetensors(second).tensors;
  std::string difference;
  size_t differing = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size() || a[i].name != b[i].name) {
      const auto name = [i](const auto& all) { return i < all.size() ? all[i].name : std::string("none"); };
      return both(text("tensor ", i), name(a), name(b));
    }
    const Tensor &x = a[i].tensor, &y = b[i].tensor;
    if (same_bytes(x, y)) continue;
    ++differing;
    if (!difference.empty()) continue;
    difference = a[i].name + ": ";
    if (x.shape() != y.shape())
      difference += both("its shape", text(x.shape()), text(y.shape()));
    else if (x.dtype() != y.dtype())
      difference += both("its dtype", name(x.dtype()), name(y.dtype()));
    else
      difference += first_number(x, y);
  }
  if (differing == 0) return "the tensors are equal, but the headers differ";
  return text(difference, "; ", differing, " of ", a.size(), differing == 1 ? " tensors differs" : " tensors differ");
}

std::string json_difference(const Json& a, const Json& b, const std::string& path) {
  if (a == b) return "";
  if (!a.is_object() || !b.is_object()) return both(path, json_text(a), json_text(b));
  for (const auto& [key, value] : a.items()) {
    const std::string inner = path.empty() ? key : path + "." + key;
    if (!b.contains(key)) return inner + " is only in the first";
    if (std::string found = json_difference(value, b[key], inner); !found.empty()) return found;
  }
  for (const auto& [key, value] : b.items())
    if (!a.contains(key)) return (path.empty() ? key : path + "." + key) + " is only in the second";
  return "";
}

std::string file_difference(const std::string& first, const std::string& second) {
  const std::string a = read_file(first), b = read_file(second);
  if (a == b) return "";
  try {
    if (first.ends_with(".safetensors")) return tensors_difference(first, second);
    if (first.ends_with(".json"))
      if (std::string found = json_difference(parse_json(a, first), parse_json(b, second), ""); !found.empty())
        return found;
  } catch (const Error& error) {
    return error.what();
  }
  if (a.size() != b.size()) return both("its size in bytes", std::to_string(a.size()), std::to_string(b.size()));
  return text("byte ", std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin(), " differs");
}

}  // namespace

std::vector<FileComparison> compare_checkpoints(const std::string& first, const std::string& second) {
  std::set<std::string> names;
  for (const std::string& folder : {first, second})
    for (const std::string& path : files_in(folder)) names.insert(name_of(path));
  std::vector<FileComparison> all;
  for (const std::string& name : names) {
    const std::string a = first + "/" + name, b = second + "/" + name;
    const bool in_first = file_exists(a), in_both = in_first && file_exists(b);
    all.push_back({name, FileReader(in_first ? a : b).size(),
                   in_both    ? file_difference(a, b)
                   : in_first ? "it is only in the first"
                              : "it is only in the second"});
  }
  return all;
}

std::string log_difference(const RunLog& first, const RunLog& second) {
  RunLog::Reader first_rows(first), second_rows(second);
  int64_t rows = 0, more = 0;
  const LogRow *one = nullptr, *other = nullptr;
  while ((one = first_rows.next(), other = second_rows.next(), one && other)) {
    const LogRow &a = *one, &b = *other;
    const std::string row = text("row ", ++rows, ", step ", a.step, ": ");
    if (a.step != b.step) return row + both("its step", std::to_string(a.step), std::to_string(b.step));
    for (const auto& [name, value] : a.metrics) {
      const auto found = b.metrics.find(name);
      if (found == b.metrics.end()) return row + name + " is only in the first";
      if (!same_bits(value, found->second) && !is_timing(name))
        return row + both(name, print_number(value), print_number(found->second));
    }
    for (const auto& [name, value] : b.metrics)
      if (!a.metrics.contains(name)) return row + name + " is only in the second";
  }
  if (!one && !other) return "";
  const bool first_has_more = one != nullptr;
  for (; one || other; one = one ? first_rows.next() : nullptr, other = other ? second_rows.next() : nullptr) ++more;
  return text("the logs have ", first_has_more ? rows + more : rows, " and ", first_has_more ? rows : rows + more,
              " rows");
}

}  // namespace orrery::models
