// The data in a page that orrery report has written.
#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/examples/program.h"

inline nlohmann::json report_data(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"report\">";
  const size_t at = html.find(begin);
  REQUIRE(at != html.npos);
  const size_t data = at + begin.size();
  return nlohmann::json::parse(html.substr(data, html.find("</script>", data) - data));
}

// Returns the data of the section with this title.
inline nlohmann::json report_section(const nlohmann::json& report, const std::string& title) {
  for (const nlohmann::json& section : report["sections"])
    if (section["title"] == title) return section["data"];
  FAIL("there is no section " << title);
  return {};
}
