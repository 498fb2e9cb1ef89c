#include "models/settings/settings_table.h"

#include <algorithm>
#include <map>

#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "models/formats/unicode.h"
#include "models/settings/settings_file.h"
#include "models/settings/toml.h"

namespace orrery::models {

namespace {

// Returns the user's mistake and its line; the parser's messages are about its internals.
std::string syntax_error(std::string_view line, std::string_view description) {
  const auto mentions = [&](std::string_view words) { return description.find(words) != description.npos; };
  if (mentions("utf-8")) return "invalid UTF-8; save the file as UTF-8";
  if (mentions("redefine") || mentions("cannot insert")) {
    const size_t begin = std::min(description.find('\''), description.size()),
                 end = std::min(description.find('\'', begin + 1), description.size());
    return text(description.substr(begin, end - begin), "' is defined twice; write it once");
  }
  if (mentions("unicode scalar")) return "invalid escape \\u or \\U; write the character itself";
  constexpr size_t enough = 80;
  const bool longer = line.size() > enough;
  return text("'", line.substr(0, longer ? end_of_characters(line.substr(0, enough)) : line.size()),
              longer ? "..." : "", "' is not valid TOML; write KEY = VALUE or [TABLE] on its own line");
}

std::string_view line_of(std::string_view text, size_t number) {
  for (; number > 1 && text.find('\n') != text.npos; --number) text.remove_prefix(text.find('\n') + 1);
  text = text.substr(0, text.find('\n'));
  return text.substr(0, text.size() - text.ends_with('\r'));
}

}  // namespace

toml::table read_toml(const std::string& path) {
  const std::string text = read_file(path, max_toml_bytes);
  check_toml(text, path);
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    const size_t line = error.source().begin.line;
    fail(path, ":", line, ": ", syntax_error(line_of(text, line), error.description()));
  }
}

std::vector<std::pair<std::string, const toml::node*>> members_in_order(const toml::table& table) {
  std::vector<std::pair<std::string, const toml::node*>> members;
  for (const auto& [key, node] : table) members.emplace_back(key.str(), &node);
  std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    const toml::source_position x = a.second->source().begin, y = b.second->source().begin;
    return x.line != y.line ? x.line < y.line : x.column < y.column;
  });
  return members;
}

std::string toml_location(const std::string& path, const toml::node& node) {
  return text(path, ":", node.source().begin.line);
}

namespace {

class TableReader {
 public:
  TableReader(const std::string& path, std::span<const Setting> scratch, std::span<const ForeignKey> foreign)
      : path_(path), scratch_(scratch), foreign_(foreign) {}

  Assignments read(const toml::table& table) {
    members(table, "");
    return std::move(pairs_);
  }

 private:
  void members(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : members_in_order(table)) {
      const toml::table* const inner = node->as_table();
      if (inner && !inner->contains("name")) {
        members(*inner, prefix + key + ".");
        continue;
      }
      const std::string name = prefix + key, value = node->is_string() ? node->as_string()->get() : plain(*node),
                        position = location(*node);
      check_once(name, *node);
      as_content([&] { set_setting(scratch_, position, name, value, foreign_); });
      pairs_.emplace_back(name, value);
    }
  }

  // Rejects a setting that is given by several of its names, because the last would silently win.
  void check_once(const std::string& key, const toml::node& node) {
    const auto [first, is_new] =
        given_.try_emplace(canonical_key(scratch_, key, foreign_), key, node.source().begin.line);
    const auto& [name, line] = first->second;
    check(is_new, location(node), ": ", key,
          name == key ? " is already set" : text(" is another name of ", name, ", which is already set"), " in line ",
          line, "; write it once");
  }
  std::string plain(const toml::node& node) const {
    if (const auto* const list = node.as_array()) {
      std::string numbers;
      for (const toml::node& each : *list) numbers.append(numbers.empty() ? "" : ", ").append(number(each));
      return numbers;
    }
    return node.is_table() ? print(spec(*node.as_table())) : number(node);
  }

  std::string number(const toml::node& node) const {
    if (const auto* const whole = node.as_integer()) return std::to_string(whole->get());
    if (const auto* const real = node.as_floating_point()) return print_number(real->get());
    if (const auto* const flag = node.as_boolean()) return flag->get() ? "yes" : "no";
    fail(location(node), ": a value must be a number, true, false or text in quotes");
  }

  Spec spec(const toml::table& table) const {
    const auto* const name = table.get("name")->as_string();
    check(name != nullptr, location(*table.get("name")), ": 'name' must be text in quotes");
    Spec whole = parse(*name, name->get());
    for (const auto& [key, node] : members_in_order(table))
      if (key != "name") set_item(whole, key, item(*node));
    return whole;
  }
  Spec item(const toml::node& node) const {
    if (const auto* const text = node.as_string()) return parse(node, text->get());
    if (const auto* const list = node.as_array())
      return parse(node, list->empty() ? "list" : "list(" + plain(node) + ")");
    const auto* const table = node.as_table();
    check(!table || table->contains("name"), location(node),
          ": a table inside a table with 'name' must have 'name' as well");
    return parse(node, plain(node));
  }
  Spec parse(const toml::node& node, const std::string& text) const {
    try {
      return parse_spec(text);
    } catch (const Error& error) {
      fail(location(node), ": ", error.what());
    }
  }

  std::string location(const toml::node& node) const { return toml_location(path_, node); }

  const std::string& path_;
  std::span<const Setting> scratch_;
  std::span<const ForeignKey> foreign_;
  std::map<std::string, std::pair<std::string, int64_t>> given_;  // keys and lines, by their settings' names
  Assignments pairs_;
};

}  // namespace

Assignments settings_in_table(const toml::table& table, const std::string& path, std::span<const Setting> scratch,
                              std::span<const ForeignKey> foreign) {
  return TableReader(path, scratch, foreign).read(table);
}

}  // namespace orrery::models
