// Columns of text.
#pragma once

#include <string>
#include <vector>

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

std::string fixed(double x, int digits);           // 1.50
std::string scientific(double x, int digits = 1);  // 1.5e-05
std::string grouped(int64_t x);                    // 1,234,567
std::string megabytes(double bytes);               // 12.3
std::string in_words(std::string name);            // bits_per_character: bits per character

}  // namespace orrery::program
