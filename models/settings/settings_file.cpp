#include "models/settings/settings_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>

#include "engine/system/files.h"
#include "engine/types/ascii.h"
#include "models/formats/shell_words.h"
#include "models/formats/unicode.h"
#include "models/settings/settings_table.h"
#include "models/settings/toml.h"

namespace orrery::models {
namespace {

std::string in_quotes(const std::string& value) {
  std::string quoted = "\"";
  for (const char c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      static constexpr char digits[] = "0123456789ABCDEF";
      quoted.append("\\u00").append(1, digits[c >> 4]).append(1, digits[c & 15]);
      continue;
    }
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  quoted.push_back('"');
  return quoted;
}

const std::string first_line = "# The settings of a run, written by orrery when it began.\n", needs = "# They need ";

// Omits quotes only if reading gives the same text again.
std::string as_toml(const std::string& value) {
  if (value == "yes") return "true";
  if (value == "no") return "false";
  const char *const begin = value.data(), *const end = begin + value.size();
  int64_t whole = 0;
  if (std::from_chars(begin, end, whole).ptr == end && std::to_string(whole) == value) return value;
  double real = 0;
  const bool form =
      value.find_first_of(".e") != std::string::npos && value.find_first_not_of("0123456789.e+-") == std::string::npos;
  if (form && std::from_chars(begin, end, real).ptr == end && print_number(real) == value) return value;
  return in_quotes(value);
}

std::string as_key(const std::string& key) {
  const auto is_plain = [](char c) { return is_letter_or_digit(c) || c == '_' || c == '-'; };
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(), is_plain);
  return plain ? key : in_quotes(key);  // also with dots: reading joins the parts of a key by dots anyway
}

}  // namespace

Assignments read_settings_file(const std::string& path, std::span<const Setting> scratch,
                               std::span<const ForeignKey> foreign) {
  return settings_in_table(read_toml(path), path, scratch, foreign);
}

std::string canonical_key(std::span<const Setting> settings, const std::string& key,
                          std::span<const ForeignKey> foreign) {
  for (size_t end = key.size(); end != key.npos && end > 0; end = key.rfind('.', end - 1))
    if (const Setting* const setting = find_setting(settings, key.substr(0, end)))
      return (setting->key.empty() ? setting->aliases.at(0) : setting->key) + key.substr(end);
  for (const ForeignKey& other : foreign)
    if (other.key == key && other.target.find(' ') == other.target.npos)
      return canonical_key(settings, std::string(other.target));
  return key;
}

std::string with_canonical_keys(const std::string& text, std::span<const Setting> settings,
                                std::span<const ForeignKey> foreign) {
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size() - 1) + 1, equals = text.find('=', begin),
                 value = equals < end ? equals : begin;
    if (value > begin) all += canonical_key(settings, text.substr(begin, value - begin), foreign);
    all += text.substr(value, end - value);
    begin = end;
  }
  return all;
}

std::optional<std::string> value_in_settings_file(const std::string& path, const std::string& key) {
  const std::string text = read_file(path, max_toml_bytes);
  check_toml(text, path);
  try {
    const toml::table table = toml::parse(text, path);
    if (const auto flag = table[key].value_exact<bool>()) return *flag ? "yes" : "no";
    return table[key].value<std::string>();
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

void check_utf8_settings(std::string_view command, const Assignments& settings) {
  for (const auto& [key, value] : settings)
    check_utf8(value, text(command, ": the value of --", key, "=", value),
               "rename the file or folder of that name, or convert the value to UTF-8");
}

void write_settings_file(const std::string& path, std::span<const std::pair<std::string, std::string>> settings,
                         std::span<const std::string> plugins) {
  check_utf8_settings("settings", {settings.begin(), settings.end()});
  std::string toml = first_line;
  for (const std::string& plugin : plugins) toml += needs + plugin_argument(plugin) + "\n";
  for (const auto& [key, value] : settings) toml += as_key(key) + " = " + as_toml(value) + "\n";
  write_file_atomically(path, toml);
}

bool is_written_settings_file(const std::string& path) {
  std::string begin(first_line.size(), '\0');
  const size_t bytes = FileReader(path).read_up_to(std::as_writable_bytes(std::span(begin)));
  return bytes == begin.size() && begin == first_line;
}

std::vector<std::string> plugins_of_settings_file(const std::string& path) {
  if (!file_exists(path) || !is_written_settings_file(path)) return {};
  const std::string text = read_file(path, max_toml_bytes);
  std::vector<std::string> words;
  for (size_t at = first_line.size(), end; text.compare(at, needs.size(), needs) == 0; at = end + 1) {
    end = std::min(text.find('\n', at), text.size() - 1);
    words.push_back(text.substr(at + needs.size(), end - at - needs.size()));
  }
  return words;
}

std::string plugin_argument(const std::string& plugin) {
  const bool plain = std::all_of(plugin.begin(), plugin.end(),
                                 [](char c) { return is_letter_or_digit(c) || (c >= '+' && c <= '/') || c == '_'; });
  return "--plugin=" + (plain ? plugin : for_bash(plugin));
}

}  // namespace orrery::models
