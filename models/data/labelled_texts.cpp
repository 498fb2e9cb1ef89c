#include "models/data/labelled_texts.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/settings/registry.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/images.h"
#include "models/data/lines.h"
#include "models/formats/csv.h"
#include "models/formats/gzip.h"
#include "models/formats/json_lines.h"

namespace orrery::models {
namespace {

using Take = std::function<void(std::string text, std::string label, const std::string& where)>;
struct Columns {
  const std::string &text, &label;
};

size_t column_of(const CsvRow& header, const std::string& name, const char* setting, const std::string& path) {
  const auto found = std::find(header.begin(), header.end(), name);
  const std::string meant = nearest(name, header);
  check(found != header.end(), "evaluate: ", path, " has no column '", name, "' (", setting, "); its columns are ",
        join(header), meant.empty() ? "" : "; did you mean '" + meant + "'?");
  return static_cast<size_t>(found - header.begin());
}

// Passes the fields of rows to `take`; the first row names them.
class Rows {
 public:
  Rows(const std::string& path, const Columns& columns, const Take& take)
      : path_(path), columns_(columns), take_(take) {}
  void add(const CsvRow& row) {
    ++number_;
    if (number_ == 1) {
      text_ = column_of(row, columns_.text, "text_column", path_);
      label_ = column_of(row, columns_.label, "label_column", path_);
      return;
    }
    const std::string where = text(path_, ": row ", number_);
    take_(row[text_], row[label_], where);
  }

 private:
  const std::string& path_;
  Columns columns_;
  const Take& take_;
  size_t number_ = 0, text_ = 0, label_ = 0;
};

void read_table(const std::string& path, const Columns& columns, const Take& take) {
  Rows rows(path, columns, take);
  each_row(path, "evaluate: " + path, [&](const CsvRow& row) { rows.add(row); });
}

void read_json_lines(const std::string& path, const Columns& columns, const Take& take) {
  const std::string what = "evaluate: " + path;
  const std::array keys = {columns.text, columns.label};
  uint64_t number = 0;
  each_line(path, what, [&](std::string_view line) {
    ++number;
    if (line.find_first_not_of(" \t") == line.npos) return;
    std::vector<std::string> texts = texts_in_line(line, number, keys, what, columns.label);
    take(std::move(texts[0]), std::move(texts[1]), text(path, ": line ", number));
  });
}

struct Format {
  const char* ending;
  void (*read)(const std::string& path, const Columns& columns, const Take& take);
};
constexpr Format formats[] = {
    {".csv", read_table}, {".tsv", read_table}, {".jsonl", read_json_lines}, {".ndjson", read_json_lines}};

// Returns the label of each name among sorted classes.
std::map<std::string, int32_t> numbers_of(const std::vector<std::string>& classes) {
  std::map<std::string, int32_t> numbers;
  for (size_t i = 0; i < classes.size(); ++i) numbers.emplace(classes[i], static_cast<int32_t>(i));
  return numbers;
}

}  // namespace

void LabelledTexts::relabel(const std::vector<std::string>& others, const std::string& owner) {
  const std::map<std::string, int32_t> numbers = numbers_of(others);
  std::vector<int32_t> new_labels;
  for (const std::string& name : classes) {
    const auto found = numbers.find(name);
    check(found != numbers.end(), "evaluate: ", path, " has the label '", name, "', which ", owner,
          " lacks; its labels are ", listed(others));
    new_labels.push_back(found->second);
  }
  for (int32_t& label : labels) label = new_labels[static_cast<size_t>(label)];
  classes = others;
}

LabelledTexts read_labelled_texts(const std::string& path, const std::string& text_column,
                                  const std::string& label_column) {
  const auto* const format = std::find_if(std::begin(formats), std::end(formats), [&](const Format& each) {
    return ends_with_or_packed(path, each.ending);
  });
  check(format != std::end(formats), "evaluate: ", path,
        " is not a table of labelled texts; give a file .csv, .tsv or .jsonl, or packed, as .csv.gz");
  LabelledTexts all;
  std::vector<std::string> names;  // of each text
  format->read(path, {text_column, label_column}, [&](std::string each, std::string label, const std::string& where) {
    check(!label.empty(), "evaluate: ", where, ": the label is empty; give each text one, in ", label_column);
    add_checked(all.texts, std::move(each), "evaluate: reading " + path, "use fewer texts");
    names.push_back(std::move(label));
  });
  check(!all.texts.empty(), "evaluate: ", path, " has no texts; give a text and a label per row");
  if (std::all_of(names.begin(), names.end(), [](const std::string& name) { return class_number(name).has_value(); }))
    for (std::string& name : names) name = *class_number(name);
  const std::set<std::string> distinct(names.begin(), names.end());
  all.classes.assign(distinct.begin(), distinct.end());
  sort_classes(all.classes);
  const std::map<std::string, int32_t> numbers = numbers_of(all.classes);
  for (const std::string& name : names) all.labels.push_back(numbers.at(name));
  all.path = path;
  return all;
}

}  // namespace orrery::models
