// The page of a report: examples/orrery/page, which CMake puts into the program, so that it works alone.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/formats/json.h"
#include "models/reports/reported_run.h"

namespace orrery::program {

// The files of the page; the script is all of script/*.js, one after the other.
extern const std::string_view page_html, page_style, page_script;
// The comment at the head of every file of the catalogue: "activations/silu" to its formula and derivative.
extern const std::map<std::string_view, std::string_view> file_heads;

// Where a page is to be written: the path, and the command and its setting that ask for it.
struct PagePlace {
  std::string command, path, setting = "--out";
  void check_free() const;  // models/formats/output_file.h
};
// One HTML file without anything outside of it, whole or not at all; what is no UTF-8 in it becomes U+FFFD.  Its size
// and path are printed, the path as the last line.
void write_page(const PagePlace& place, const std::string& title, models::Json sections);

// Sections of every page: the command that makes it, and the program and machine.
models::Json command_section(const std::string& command, const std::vector<std::string>& arguments);
models::Json environment_section(std::span<const models::ReportedRun> runs);

}  // namespace orrery::program
