// Escapes text from other sources (names of files, classes and claims, tokens, prompts, messages of
// libraries), so that it cannot affect the terminal or page that shows it.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace orrery::models {

// A character in a form safe for terminals: itself, \x1b for a control character or an invalid
// byte, or \u202e for a character that changes others (C1 controls, directions, line separators).
struct ShownCharacter {
  std::array<char, 8> bytes;
  size_t size;
  size_t read;  // bytes of the text
  std::string_view text() const { return {bytes.data(), size}; }
};
ShownCharacter shown_character(std::string_view text, size_t at) noexcept;

// Returns all characters in this form, on one line.
std::string for_terminal(std::string_view text);
// Like for_terminal, but keeps line breaks and tabs, for the output of a model or compiler.
std::string for_terminal_lines(std::string_view text);

// Escapes text for HTML, between tags or in an attribute in double quotes.
std::string for_html(std::string_view text);
// Escapes text for a Markdown cell or line, so that it forms no HTML, cell end or link.
std::string for_markdown(std::string_view text);
// Returns the text as Markdown `code`.
std::string code_for_markdown(std::string_view text);
// Escapes a path as the target of a Markdown link.
std::string link_for_markdown(std::string_view path);

}  // namespace orrery::models
