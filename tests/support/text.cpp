#include "tests/support/text.h"

#include <regex>

namespace orrery::testing {

bool finds(const std::string& text, const std::string& expression) {
  return std::regex_search(text, std::regex(expression));
}
bool matches(const std::string& text, const std::string& expression) {
  return std::regex_match(text, std::regex(expression));
}

std::vector<std::vector<std::string>> matches_in(const std::string& text, const std::string& expression) {
  const std::regex compiled(expression);
  std::vector<std::vector<std::string>> all;
  for (std::sregex_iterator each(text.begin(), text.end(), compiled), end; each != end; ++each)
    all.emplace_back(each->begin(), each->end());
  return all;
}
std::vector<std::string> match_in(const std::string& text, const std::string& expression) {
  const auto all = matches_in(text, expression);
  return all.empty() ? std::vector<std::string>() : all[0];
}

}  // namespace orrery::testing
