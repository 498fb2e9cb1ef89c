// Columns of text, and the words that stand in them.
#pragma once

#include <string>
#include <vector>

#include "engine/types/wording.h"
#include "models/formats/shown_text.h"

namespace orrery::program {

using models::for_terminal;  // of all that others have named: files, classes, tensors, claims
// What a model has written, or rows for other programs: as they are in a file or a pipe, on a terminal without what
// would act on it.
std::string for_output(const std::string& text);

class Table {
 public:
  // `alignment`: one letter a column, l or r.  A header of empty texts is not printed.
  Table(std::vector<std::string> header, std::string alignment);
  void add(std::vector<std::string> row);  // cells of any text: it is shown as for_terminal has it
  std::string print(int indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::string alignment_;
};

size_t width_of(const std::string& text);                          // in columns of a terminal
std::string right_aligned(const std::string& text, size_t width);  // of bytes
size_t terminal_columns();                                         // of the standard output; 100 if it is no terminal
// Each line's first `columns`: a longer one would wrap on a terminal.
std::string cut_lines(const std::string& text, size_t columns);
std::string megabytes(double bytes);  // 12.3

}  // namespace orrery::program
