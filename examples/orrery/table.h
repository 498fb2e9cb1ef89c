// Columns of text, and the words that stand in them.
#pragma once

#include <string>
#include <vector>

#include "engine/base/wording.h"

namespace orrery::program {

class Table {
 public:
  // `alignment`: one letter a column, l or r.  A header of empty texts is not printed.
  Table(std::vector<std::string> header, std::string alignment);
  void add(std::vector<std::string> row);
  std::string print(int indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::string alignment_;
};

size_t width_of(const std::string& text);  // in columns of a terminal
std::string megabytes(double bytes);       // 12.3

}  // namespace orrery::program
