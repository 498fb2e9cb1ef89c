// Texts with a label each, from a table: a CSV or TSV file whose first row names the columns, or
// JSON lines, each an object. Also packed by gzip.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::models {

struct LabelledTexts {
  std::vector<std::string> texts;
  std::vector<int32_t> labels;       // of each text
  std::vector<std::string> classes;  // sorted; numbers by value

  // Gives the labels the numbers of `others`; throws Error, beginning with "evaluate:", if one is
  // not among them. `owner`: path of `others`.
  void relabel(const std::vector<std::string>& others, const std::string& owner);
  std::string path;
};

// Reads the columns or members with these names. Errors begin with "evaluate:" and name the file
// and the line or row: no such column, JSON that is invalid, an empty label, no text.
LabelledTexts read_labelled_texts(const std::string& path, const std::string& text_column,
                                  const std::string& label_column);

}  // namespace orrery::models
