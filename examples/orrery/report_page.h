// The page of a report: examples/orrery/report, which CMake puts into the program, so that it works alone.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "models/json.h"

namespace orrery::program {

// The files of the page; the script is all of report/script/*.js, one after the other.
extern const std::string_view page_html, page_style, page_script;
// The comment at the head of every file of the catalogue: "activations/silu" to its formula and derivative.
extern const std::map<std::string_view, std::string_view> file_heads;

// One HTML file without anything outside of it.  {"title": ..., "made": ..., "version": ..., "sections": [...]}; what
// is no UTF-8 in it becomes U+FFFD.
std::string page_of(const models::Json& report);

}  // namespace orrery::program
