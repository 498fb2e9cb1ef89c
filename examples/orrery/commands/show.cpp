// orrery show: lists the tensors of a file or run; writes one as a NumPy array.
#include <algorithm>
#include <iostream>

#include "engine/settings/registry.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/interop/npy.h"

namespace orrery::program {
namespace {

struct ShowSettings {
  std::string tensor, out;
  bool json = false;
  template <class V>
  void visit(V& v) {
    v("tensor", tensor, "name of one tensor; if not given, all");
    v("out", out, "FILE.npy to write the tensor to; requires --tensor");
    v("json", json, json_help);
  }
};

std::string short_number(double x) { return x == 0 ? "0" : text(x); }

struct ShownTensor {
  std::string name, dtype, shape_text;
  std::vector<int64_t> shape;
  int64_t count;
  models::ValueRange range;
};
// Reads the values of one tensor at a time, to save memory.
ShownTensor shown_tensor(const models::StoredTensor& x) {
  return {
      x.name, x.dtype, models::shape_text(x), x.shape, models::count_of(x), models::range_of(models::with_values(x))};
}

int64_t count_all(const std::vector<ShownTensor>& tensors) {
  int64_t count = 0;
  for (const ShownTensor& each : tensors) count += each.count;
  return count;
}

std::vector<std::string> row_of(const ShownTensor& x) {
  std::vector<std::string> row = {x.name, x.dtype, x.shape_text};
  if (x.range.finite > 0)
    row.insert(row.end(), {short_number(x.range.low), short_number(x.range.high), short_number(x.range.mean)});
  row.resize(6);
  row.push_back(x.range.not_finite > 0 ? with_commas(x.range.not_finite) : "");
  return row;
}

void print_table(const std::vector<ShownTensor>& tensors) {
  const bool broken = std::any_of(tensors.begin(), tensors.end(), [](const auto& x) { return x.range.not_finite > 0; });
  std::vector<std::string> header = {"tensor", "dtype", "shape", "min", "max", "mean"};
  if (broken) header.push_back("non-finite");
  Table table(header, std::string("lllrrrr").substr(0, header.size()));
  for (const ShownTensor& x : tensors) {
    std::vector<std::string> row = row_of(x);
    row.resize(header.size());
    table.add(std::move(row));
  }
  std::cout << table.print(0) << pluralize(static_cast<int64_t>(tensors.size()), "tensor") << ", "
            << with_commas(count_all(tensors)) << " numbers" << std::endl;
}

Json json_of(const std::string& path, const std::vector<ShownTensor>& tensors) {
  Json all = Json::array();
  for (const ShownTensor& x : tensors) {
    const bool known = x.range.finite + x.range.not_finite > 0;
    all.push_back({{"name", x.name},
                   {"dtype", x.dtype},
                   {"shape", x.shape},
                   {"min", known ? json_number(x.range.low) : Json()},
                   {"max", known ? json_number(x.range.high) : Json()},
                   {"mean", known ? json_number(x.range.mean) : Json()},
                   {"non_finite", x.range.not_finite}});
  }
  return {{"path", path}, {"tensors", all}, {"numbers", count_all(tensors)}};
}

const models::StoredTensor& tensor_named(const std::vector<models::StoredTensor>& tensors, const std::string& name) {
  std::vector<std::string> names;
  for (const models::StoredTensor& x : tensors) {
    if (x.name == name) return x;
    names.push_back(x.name);
  }
  const std::string meant = nearest(name, names);
  fail_usage("show: unknown tensor '", name, "'; ",
             meant.empty() ? "leave --tensor out to list all" : "did you mean '" + meant + "'?");
}

}  // namespace

CommandHelp show_help(const Arguments&) {
  ShowSettings settings;
  return {"PATH is a safetensors file, the folder of a run or of a checkpoint, or a folder with model.safetensors.",
          describe(settings_of(settings)), "",
          "orrery show runs/latest --tensor=token_embedding.weight --out=embedding.npy"};
}

int show(const Arguments& arguments) {
  ShowSettings s;
  const std::vector<std::string> words = read_arguments("show", arguments, settings_of(s));
  check_usage(words.size() == 1, "show: ", words.size(),
              " files or folders are given; give one, as in orrery show runs/mine");
  check_usage(s.out.empty() || !s.tensor.empty(), "show: --out writes one tensor; name it with --tensor=NAME");
  if (!s.out.empty()) {
    models::check_output("show", s.out, models::npy_kind());
    models::check_extension("show", s.out, {".npy"});
  }
  JsonOutput json(s.json);
  std::vector<models::StoredTensor> tensors = models::stored_tensors(words[0]);
  if (!s.tensor.empty()) tensors = {tensor_named(tensors, s.tensor)};
  std::vector<ShownTensor> shown;
  {
    const Progress progress("reading the tensors");
    for (const models::StoredTensor& each : tensors) shown.push_back(shown_tensor(each));
  }
  if (!s.out.empty()) models::write_npy(s.out, models::with_values(tensors[0]));
  json ? json.print(json_of(words[0], shown)) : print_table(shown);
  return 0;
}

}  // namespace orrery::program
