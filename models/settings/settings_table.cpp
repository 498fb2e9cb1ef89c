#include "models/settings/settings_table.h"

#include <algorithm>
#include <sstream>

#include "engine/system/files.h"
#include "models/settings/toml.h"

namespace orrery::models {

toml::table read_toml(const std::string& path) {
  const std::string text = read_file(path, largest_toml);
  check_toml(text, path);
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    fail(path, ":", error.source().begin.line, ": ", error.description());
  }
}

std::string what_toml_says(const std::string& path) {
  std::ostringstream said;
  said << toml::json_formatter(read_toml(path));
  return said.str();
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

std::string toml_place(const std::string& path, const toml::node& node) {
  return text(path, ":", node.source().begin.line);
}

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

class TableReader {
 public:
  TableReader(const std::string& path, std::span<const Setting> scratch, std::span<const ForeignKey> foreign)
      : path_(path), scratch_(scratch), foreign_(foreign) {}

  Pairs read(const toml::table& table) {
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
      const std::string value = node->is_string() ? node->as_string()->get() : plain(*node);
      set_setting(scratch_, place(*node), prefix + key, value, foreign_);
      pairs_.emplace_back(prefix + key, value);
    }
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
    fail(place(node), ": a value must be a number, true, false or text in quotes");
  }

  Spec spec(const toml::table& table) const {
    const auto* const name = table.get("name")->as_string();
    check(name != nullptr, place(*table.get("name")), ": name must be text in quotes");
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
    check(!table || table->contains("name"), place(node), ": a table inside a table with a name needs a name as well");
    return parse(node, plain(node));
  }
  Spec parse(const toml::node& node, const std::string& text) const {
    try {
      return parse_spec(text);
    } catch (const Error& error) {
      fail(place(node), ": ", error.what());
    }
  }

  std::string place(const toml::node& node) const { return toml_place(path_, node); }

  const std::string& path_;
  std::span<const Setting> scratch_;
  std::span<const ForeignKey> foreign_;
  Pairs pairs_;
};

}  // namespace

Pairs settings_in_table(const toml::table& table, const std::string& path, std::span<const Setting> scratch,
                        std::span<const ForeignKey> foreign) {
  return TableReader(path, scratch, foreign).read(table);
}

}  // namespace orrery::models
