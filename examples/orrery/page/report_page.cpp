#include "examples/orrery/page/report_page.h"

#include <chrono>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/system/version.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "examples/orrery/terminal/version_text.h"
#include "models/catalogue/plugins.h"
#include "models/formats/output_file.h"
#include "models/formats/shell_words.h"
#include "models/formats/shown_text.h"
#include "models/reports/report.h"

namespace orrery::program {
namespace {

using models::Json;

// Escapes "<", because "</script>" in a text would end the element with the data.
std::string embedded(const Json& report) {
  std::string all;
  for (const char c : models::shown_json(report)) all += c == '<' ? "\\u003c" : std::string(1, c);
  return all;
}

std::string current_time() {  // current time in UTC
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm fields{};
  ::gmtime_r(&now, &fields);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &fields);
  return text;
}

models::OutputKind page_kind() {
  constexpr std::string_view mark = "<meta name=\"generator\" content=\"orrery\">\n";
  const size_t at = page_html.find(mark), title = page_html.find("<title>");
  const std::string begin(page_html.substr(0, at)), rest(page_html.substr(at + mark.size(), title - at - mark.size()));
  const models::OutputKind marked = models::marked_kind("a page that orrery wrote", begin + std::string(mark)),
                           former = models::marked_kind("a page that orrery wrote", begin + rest);  // 0.1.0: no mark
  return {marked.name, [=](const std::string& path) { return marked.is_ours(path) || former.is_ours(path); }};
}

std::string page_of(const Json& report) {
  const std::map<std::string_view, std::string> fields = {
      {"title", models::for_html(report.at("title").get<std::string>())},
      {"style", std::string(page_style)},
      {"data", embedded(report)},
      {"script", std::string(page_script)}};
  std::string page;
  for (size_t at = 0;;) {
    const size_t begin = page_html.find("{{", at), end = page_html.find("}}", begin);
    page += page_html.substr(at, begin - at);
    if (begin == std::string_view::npos) return page;
    page += fields.at(page_html.substr(begin + 2, end - begin - 2));
    at = end + 2;
  }
}

}  // namespace

Json command_section(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), name);
  return models::report_section(
      "Commands", "text", "The command that made this page", "",
      {{"items", Json::array({{{"name", ""}, {"text", models::command_line(words)}, {"copy", true}}})}});
}

Json environment_section(std::span<const models::ReportedRun> runs) {
  Json items = Json::array({{{"name", "program that made this page"}, {"text", version_text()}, {"wrap", true}}});
  std::string plugins;
  for (const models::Plugin& plugin : models::loaded_plugins()) plugins += (plugins.empty() ? "" : "\n") + plugin.path;
  if (!plugins.empty()) items.push_back({{"name", "plug-ins"}, {"text", plugins}});
  std::string threads;
  for (const models::ReportedRun& run : runs)
    if (run.settings)
      threads += text(threads.empty() ? "" : "\n", run.name, ": device ", run.settings->device, ", dtype ",
                      run.settings->dtype, ", threads ",
                      run.settings->threads == 0 ? std::string("all") : std::to_string(run.settings->threads));
  if (!threads.empty()) items.push_back({{"name", "devices of the runs"}, {"text", threads}});
  return models::report_section("Environment", "text", "Program and machine", "", {{"items", items}});
}

void PageOutput::check_free() const {
  models::check_output(command, path, page_kind(), setting);
  models::check_extension(command, path, {".html", ".htm"}, setting);
}

void write_page(const PageOutput& output, const std::string& title, Json sections) {
  const auto count = static_cast<int64_t>(sections.size());
  const std::string html = page_of({{"title", models::for_terminal(title)},
                                    {"made", current_time()},
                                    {"version", build().version},
                                    {"sections", std::move(sections)}});
  models::write_output(output.command, output.path, page_kind(), html, output.setting);
  std::cout << with_commas(count) << (count == 1 ? " section, " : " sections, ")
            << with_commas(static_cast<int64_t>(html.size())) << " bytes\n"
            << models::for_terminal(output.path) << std::endl;
}

}  // namespace orrery::program
