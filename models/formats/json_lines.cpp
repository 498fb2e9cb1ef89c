#include "models/formats/json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/types/check.h"
#include "models/formats/json.h"

namespace orrery::models {
namespace {

// Keeps the texts under some keys of the outermost object, while the parser reads it.
class TextsOfKeys final : public nlohmann::json_sax<Json> {
 public:
  TextsOfKeys(std::span<const std::string> keys, std::string_view label)
      : texts(keys.size()), keys_(keys), label_(label) {}

  std::vector<std::optional<std::string>> texts;
  std::string members;                 // names of the first members, with commas
  std::optional<std::string> no_text;  // a key whose value is not text
  bool is_object = false;
  size_t invalid_at = 0;  // column, from 1; 0: valid
  bool is_too_large = false;  // the number at invalid_at

  bool null() override { return take_other(); }
  bool boolean(bool value) override { return take_label(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return take_label(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return take_label(std::to_string(value)); }
  bool number_float(number_float_t, const string_t&) override { return take_other(); }
  bool binary(binary_t&) override { return take_other(); }
  bool string(string_t& value) override {
    if (depth_ == 1 && found_ < texts.size()) texts[found_] = std::move(value);
    return true;
  }
  bool start_object(size_t) override {
    is_object |= depth_ == 0;
    take_other();
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    constexpr size_t max_bytes = 200;
    if (depth_ != 1) return true;
    found_ = static_cast<size_t>(std::find(keys_.begin(), keys_.end(), name) - keys_.begin());
    if (members.size() < max_bytes) members += (members.empty() ? "" : ", ") + name;
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override {
    take_other();
    ++depth_;
    return true;
  }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr int number_overflow = 406;
    invalid_at = std::max<size_t>(1, position), is_too_large = error.id == number_overflow;
    return false;
  }

 private:
  bool take_label(std::string value) {
    if (depth_ != 1 || found_ >= texts.size() || keys_[found_] != label_) return take_other();
    return string(value);
  }
  bool take_other() {
    if (depth_ == 1 && found_ < texts.size()) no_text = keys_[found_];
    return true;
  }

  std::span<const std::string> keys_;
  std::string_view label_;
  size_t depth_ = 0;
  size_t found_ = SIZE_MAX;  // index of the last key in keys_; else beyond them
};

}  // namespace

std::vector<std::string> texts_in_line(std::string_view line, uint64_t number, std::span<const std::string> keys,
                                       std::string_view what, std::string_view label) {
  TextsOfKeys found(keys, label);
  const std::string quoted = with_quoted_infinities(line);
  Json::sax_parse(quoted.empty() ? line : std::string_view(quoted), &found);
  check(found.invalid_at == 0, what, ": line ", number, ", column ", found.invalid_at, ": ",
        found.is_too_large ? too_large_number : "invalid JSON");
  check(found.is_object, what, ": line ", number, " is not an object {...}");
  check(!found.no_text, what, ": line ", number, ": '", found.no_text.value_or(""), "' must be text in quotes",
        found.no_text == label ? ", or a whole number" : "");
  std::vector<std::string> texts;
  for (size_t i = 0; i < keys.size(); ++i) {
    check(found.texts[i].has_value(), what, ": line ", number, ": '", keys[i], "' is missing; ",
          found.members.empty() ? "it has no members" : "its members are " + found.members);
    texts.push_back(*std::move(found.texts[i]));
  }
  return texts;
}

}  // namespace orrery::models
