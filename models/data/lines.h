// Lines of a text in UTF-8, one by one, without their ends, "\n" or "\r\n", and without a byte order
// mark at the start of the text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/system/machine_memory.h"
#include "models/formats/csv.h"

namespace orrery::models {

// Calls `take` for each line before it reads the next, so memory holds one line and one chunk.
// Unpacks gzip. Errors begin with `what`: invalid UTF-8, a line of more than 64 MiB.
using TakeLine = std::function<void(std::string_view line)>;
void each_line(const std::string& path, const std::string& what, const TakeLine& take);
void each_line(std::istream& input, const std::string& what, const TakeLine& take);
// Like each_line, for lines that all stay in memory; first throws Error if the file does not fit.
// `way_out`: the end of this Error, what the user can do.
void each_kept_line(const std::string& path, const std::string& what, std::string_view way_out, const TakeLine& take);

// Calls `take` for each row of a table, .csv, or .tsv with quotes as in csv; `read` for the number of
// bytes of each chunk. Unpacks gzip. Errors are those of CsvParser, and invalid UTF-8.
void each_row(const std::string& path, const std::string& what, const CsvParser::Take& take,
              const std::function<void(uint64_t)>& read = [](uint64_t) {});

// Adds an element; checks memory if the vector must grow (engine/system/machine_memory.h).
template <class T>
void add_checked(std::vector<T>& to, T element, std::string_view what, std::string_view way_out) {
  if (to.size() == to.capacity()) {
    const size_t next = std::max<size_t>(16, to.size() + to.size() / 2);
    check_memory(what, static_cast<double>(next * sizeof(T)), way_out);
    to.reserve(next);
  }
  to.push_back(std::move(element));
}

}  // namespace orrery::models
