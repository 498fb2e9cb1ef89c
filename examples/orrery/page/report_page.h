// The page of a report: examples/orrery/page, embedded by CMake, so that the program works alone.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/formats/json.h"
#include "models/reports/reported_run.h"

namespace orrery::program {

// Files of the page; the script is all of script/*.js, concatenated.
extern const std::string_view page_html, page_style, page_script;

// Output path of a page, and the command and setting that request it.
struct PageOutput {
  std::string command, path, setting = "--out";
  void check_free() const;  // see models/formats/output_file.h
};
// Writes a self-contained HTML file atomically; invalid UTF-8 becomes U+FFFD. Prints its size, then
// its path as the last line.
void write_page(const PageOutput& output, const std::string& title, models::Json sections);

// Sections of every page: the command that writes it, and the program and machine.
models::Json command_section(const std::string& command, const std::vector<std::string>& arguments);
models::Json environment_section(std::span<const models::ReportedRun> runs);

}  // namespace orrery::program
