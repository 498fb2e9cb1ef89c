// orrery show: lists the tensors of a file or run; writes one as a NumPy array.
#include <algorithm>
#include <iostream>

#include "engine/settings/registry.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/table.h"
#include "models/exchange/npy.h"

namespace orrery::program {
namespace {

struct ShowSettings {
  std::string tensor, out;
  template <class V>
  void visit(V& v) {
    v("tensor", tensor, "name of one tensor; none: all");
    v("out", out, "FILE.npy to write the tensor to; requires --tensor");
  }
};

std::string short_number(double x) { return x == 0 ? "0" : text(x); }

std::vector<std::string> row_of(const models::StoredTensor& x, const models::NumberRange& range) {
  std::vector<std::string> row = {x.name, x.dtype, models::shape_text(x)};
  if (range.finite > 0)
    row.insert(row.end(), {short_number(range.low), short_number(range.high), short_number(range.mean)});
  row.resize(6);
  row.push_back(range.not_finite > 0 ? grouped(range.not_finite) : "");
  return row;
}

void print_table(const std::vector<models::StoredTensor>& tensors) {
  std::vector<models::NumberRange> ranges;
  for (const models::StoredTensor& x : tensors) ranges.push_back(models::range_of(models::with_numbers(x)));
  const bool broken = std::any_of(ranges.begin(), ranges.end(), [](const auto& r) { return r.not_finite > 0; });
  std::vector<std::string> header = {"tensor", "dtype", "shape", "min", "max", "mean"};
  if (broken) header.push_back("non-finite");
  Table table(header, std::string("lllrrrr").substr(0, header.size()));
  int64_t numbers = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::string> row = row_of(tensors[i], ranges[i]);
    row.resize(header.size());
    table.add(std::move(row));
    numbers += models::count_of(tensors[i]);
  }
  std::cout << table.print(0) << tensors.size() << (tensors.size() == 1 ? " tensor, " : " tensors, ")
            << grouped(numbers) << " numbers" << std::endl;
}

const models::StoredTensor& named(const std::vector<models::StoredTensor>& tensors, const std::string& name) {
  std::vector<std::string> names;
  for (const models::StoredTensor& x : tensors) {
    if (x.name == name) return x;
    names.push_back(x.name);
  }
  const std::string meant = nearest(name, names);
  fail("show: unknown tensor '", name, "'; ",
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
  check(words.size() == 1, "show: ", words.size(),
        " files or folders are given; give one, as in orrery show runs/mine");
  check(s.out.empty() || !s.tensor.empty(), "show: --out writes one tensor; name it with --tensor=NAME");
  if (!s.out.empty()) models::check_output("show", s.out, models::npy_kind());
  const std::vector<models::StoredTensor> tensors = models::stored_tensors(words[0]);
  if (s.tensor.empty()) return print_table(tensors), 0;
  const models::StoredTensor one = models::with_numbers(named(tensors, s.tensor));
  print_table({one});
  if (!s.out.empty()) models::write_npy(s.out, one);
  return 0;
}

}  // namespace orrery::program
