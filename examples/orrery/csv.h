// Tables for other programs: comma-separated values, RFC 4180, with plain line ends.
#pragma once

#include <string>
#include <vector>

namespace orrery::program {

// One line with its end; what holds a comma, a quote or a line end is quoted.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace orrery::program
