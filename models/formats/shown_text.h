// Text from elsewhere (names of files, classes and claims, tokens, prompts, other libraries' messages) in a form that
// cannot act on the terminal or the page that shows it.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace orrery::models {

// One character as a terminal may show it: itself, or \x1b of a control character or of a byte that is not UTF-8,
// or \u202e of a character that changes how others are shown (C1 controls, directions, line separators).
struct ShownCharacter {
  std::array<char, 8> bytes;
  size_t size;
  size_t read;  // bytes of the text
  std::string_view text() const { return {bytes.data(), size}; }
};
ShownCharacter shown_character(std::string_view text, size_t at) noexcept;

// All of its characters, shown so: one line.
std::string for_terminal(std::string_view text);
// The same, with line breaks and tabs as they are: what a model or a compiler writes.
std::string for_terminal_lines(std::string_view text);

// As HTML, between tags or in an attribute in double quotes.
std::string for_html(std::string_view text);
// In Markdown, within a cell of a table or a line of text: it can be no HTML, end no cell and begin no link.
std::string for_markdown(std::string_view text);
// In Markdown, as `code`.
std::string code_for_markdown(std::string_view text);
// A path as the target of a link.
std::string link_for_markdown(std::string_view path);

}  // namespace orrery::models
