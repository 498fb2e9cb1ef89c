// The lines of a text in UTF-8, one after another, without their ends, "\n" or "\r\n".
#pragma once

#include <algorithm>
#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/system/machine_memory.h"

namespace orrery::models {

// Each line is taken before the next is read, so that memory holds one line and a piece of the file, which is unpacked
// if gzip has packed it.  Errors begin with `what`: a byte that is not UTF-8, a line of more than 64 MiB.
using TakeLine = std::function<void(std::string_view line)>;
void each_line(const std::string& path, const std::string& what, const TakeLine& take);
void each_line(std::istream& input, const std::string& what, const TakeLine& take);
// The same for lines that all stay in memory: an Error before the first is read if the file alone does not fit there.
void each_kept_line(const std::string& path, const std::string& what, std::string_view way_out, const TakeLine& take);

// Adds an element, after memory for a vector that grows is checked (engine/system/machine_memory.h).
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
