#include "models/formats/shell_words.h"

#include "models/formats/shown_text.h"

namespace orrery::models {

std::string for_bash(const std::string& word) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string shell = "$'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F || c == '\'' || c == '\\') {
      shell.append("\\x").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
    } else {
      shell.push_back(c);
    }
  }
  return shell + "'";
}

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-./=:,+@%") == std::string::npos;
  if (plain) return word;
  if (for_terminal(word) != word) return for_bash(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string command_line(const std::vector<std::string>& words) {
  std::string line = "orrery";
  for (const std::string& word : words) line += " " + shell_quoted(word);
  return line;
}

}  // namespace orrery::models
