#include "examples/orrery/report_page.h"

#include <nlohmann/json.hpp>

#include "engine/base/check.h"

namespace orrery::program {
namespace {

std::string escaped(std::string_view text) {
  std::string all;
  for (const char c : text) all += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return all;
}

// "<" would end the element that holds the data where a text has "</script>".
std::string embedded(const models::Json& report) {
  std::string all;
  for (const char c : report.dump(-1, ' ', false, models::Json::error_handler_t::replace))
    all += c == '<' ? "\\u003c" : std::string(1, c);
  return all;
}

}  // namespace

std::string page_of(const models::Json& report) {
  const std::map<std::string_view, std::string> parts = {{"title", escaped(report.at("title").get<std::string>())},
                                                         {"style", std::string(page_style)},
                                                         {"data", embedded(report)},
                                                         {"script", std::string(page_script)}};
  std::string page;
  for (size_t at = 0;;) {
    const size_t begin = page_html.find("{{", at), end = page_html.find("}}", begin);
    page += page_html.substr(at, begin - at);
    if (begin == std::string_view::npos) return page;
    page += parts.at(page_html.substr(begin + 2, end - begin - 2));
    at = end + 2;
  }
}

}  // namespace orrery::program
