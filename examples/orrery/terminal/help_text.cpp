#include "examples/orrery/terminal/help_text.h"

#include <algorithm>
#include <cstdint>

#include "examples/orrery/terminal/table.h"
#include "models/formats/replaced.h"

namespace orrery::program {
namespace {

constexpr std::string_view no_break_space = "\u00a0";

// Fills lines of at most `columns` with words.
class Lines {
 public:
  Lines(size_t first_margin, size_t margin, size_t columns)
      : line_(first_margin, ' '), margin_(margin), columns_(std::max(columns, margin + 1)) {}

  void add(std::string word) {
    if (!starts_ && width_of(line_) + 1 + width_of(word) > columns_) break_line();
    if (!starts_) line_ += ' ';
    starts_ = false;
    while (width_of(line_) + width_of(word) > columns_) {  // longer than a line
      const size_t size = first_bytes(word, columns_ - std::min(columns_, width_of(line_)));
      line_ += word.substr(0, size);
      word.erase(0, size);
      break_line();
      starts_ = false;
    }
    line_ += word;
  }
  std::string finish() { return all_ + line_ + "\n"; }

 private:
  // Returns the bytes of the first characters.
  static size_t first_bytes(const std::string& word, size_t characters) {
    size_t at = 0;
    for (; at < word.size(); ++at)
      if ((word[at] & 0xc0) != 0x80 && characters-- == 0) break;
    return at;
  }
  void break_line() {
    all_ += line_ + "\n";
    line_.assign(margin_, ' ');
    starts_ = true;
  }

  std::string all_, line_;
  size_t margin_, columns_;
  bool starts_ = true;  // no word is on the line
};

std::string wrapped_line(std::string_view line, size_t columns, size_t indent) {
  if (width_of(std::string(line)) <= columns) return models::replaced(std::string(line) + "\n", no_break_space, " ");
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  Lines lines(begin, begin == 0 ? 0 : begin + indent, columns);
  for (size_t at = begin; at < line.size(); at = std::min(line.find_first_not_of(' ', at), line.size())) {
    const size_t end = std::min(line.find(' ', at), line.size());
    lines.add(std::string(line.substr(at, end - at)));
    at = end;
  }
  return models::replaced(lines.finish(), no_break_space, " ");
}

// Returns --key=value, or key=value in a spec; "..." is a missing default. The short form leaves out
// the items of a spec.
std::string term_of(const SettingHelp& setting, HelpForm form) {
  const size_t items = setting.value.find('(');
  const bool cut = form == HelpForm::in_brief && items != std::string::npos;
  const std::string value = cut ? setting.value.substr(0, items) + "(...)" : setting.value;
  return (form == HelpForm::in_spec ? "" : "--") + setting.key + "=" + (value.empty() ? "..." : for_terminal(value));
}

std::string meaning_of(const SettingHelp& setting, HelpForm form) {
  const std::string clause = setting.help.substr(0, setting.help.find(';'));
  const bool has_range = form != HelpForm::in_brief && !setting.range.empty();
  const std::string meaning = (form == HelpForm::in_brief ? clause : setting.help) +
                              (has_range && !setting.help.empty() ? "; " : "") +
                              (has_range ? models::replaced(setting.range, " ", no_break_space) : "");
  return meaning.empty() ? "-" : meaning;
}

void add_section(HelpRows& rows, const std::vector<SettingHelp>& settings, const std::string& section, HelpForm form) {
  const size_t title = rows.size();
  for (const SettingHelp& setting : settings)
    if (setting.section == section && (setting.common || form != HelpForm::in_brief))
      rows.emplace_back(term_of(setting, form), meaning_of(setting, form));
  if (rows.size() > title && !section.empty())
    rows.emplace(rows.begin() + static_cast<std::ptrdiff_t>(title), section, "");
}

}  // namespace

size_t help_columns() { return std::clamp<size_t>(terminal_columns(1, 80), 40, 100); }

std::string wrapped(std::string_view text, size_t columns, size_t indent) {
  std::string all;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    all += wrapped_line(text.substr(0, end), columns, indent);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

std::string broken_line(std::string_view line, int descriptor) {
  const std::string margin = "  ";
  return wrapped(margin + std::string(line), terminal_columns(descriptor, SIZE_MAX)).substr(margin.size());
}

std::string print_rows(const HelpRows& rows, size_t columns) {
  const size_t max_left = columns / 3;
  size_t left = 0;
  for (const auto& [term, meaning] : rows)
    if (!meaning.empty() && width_of(term) <= max_left) left = std::max(left, width_of(term));
  const std::string margin(left + 4, ' ');
  std::string all;
  for (const auto& [term, meaning] : rows) {
    if (meaning.empty()) {
      all += term + ":\n";
      continue;
    }
    const size_t width = width_of(term);
    std::string lines = wrapped(margin + meaning, columns);
    if (width <= left)
      lines.replace(0, margin.size(), "  " + term + std::string(left + 2 - width, ' '));
    else
      lines.insert(0, wrapped("  " + term, columns, 2));
    all += lines;
  }
  return all;
}

std::string print_settings(const std::vector<SettingHelp>& settings, HelpForm form, size_t columns) {
  std::vector<std::string> sections;
  for (const SettingHelp& setting : settings)
    if (std::find(sections.begin(), sections.end(), setting.section) == sections.end())
      sections.push_back(setting.section);
  HelpRows rows;
  for (const std::string& section : sections) add_section(rows, settings, section, form);
  return print_rows(rows, columns);
}

}  // namespace orrery::program
