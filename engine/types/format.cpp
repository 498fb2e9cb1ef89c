#include "engine/types/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/types/check.h"

namespace orrery {
namespace {

// A double has up to 309 digits before the point, and `digits` more after it.
std::string print_digits(double x, std::chars_format format, int digits) {
  std::string all(350 + static_cast<size_t>(std::max(0, digits)), ' ');
  const auto [end, error] = std::to_chars(all.data(), all.data() + all.size(), x, format, digits);
  check(error == std::errc(), "a number does not fit into ", all.size(), " characters");
  all.resize(static_cast<size_t>(end - all.data()));
  return all;
}

}  // namespace

std::string fixed(double x, int digits) { return print_digits(x, std::chars_format::fixed, digits); }
std::string signed_fixed(double x, int digits) { return (x >= 0 ? "+" : "") + fixed(x, digits); }
std::string scientific(double x, int digits) { return print_digits(x, std::chars_format::scientific, digits); }
std::string significant(double x, int digits) { return print_digits(x, std::chars_format::general, digits); }

std::string with_commas(int64_t x) {
  std::string digits = std::to_string(x);
  for (int at = static_cast<int>(digits.size()) - 3; at > (x < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string pluralize(int64_t n, const std::string& singular) {
  return with_commas(n) + " " + singular + (n == 1 ? "" : "s");
}

std::string in_megabytes(double bytes) {
  return with_commas(static_cast<int64_t>(std::ceil(std::min(bytes, 1e18) / 1e6))) + " MB";
}

std::string humanize(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const size_t first = list.find_first_not_of(' ', begin), last = list.find_last_not_of(' ', end - 1);
    if (first < end) items.push_back(list.substr(first, last - first + 1));
    begin = end + 1;
  }
  return items;
}

}  // namespace orrery
