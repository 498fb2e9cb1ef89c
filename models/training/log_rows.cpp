#include "models/training/log_rows.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>

#include "engine/types/ascii.h"
#include "engine/types/check.h"
#include "models/former_names.h"

namespace orrery::models {
namespace {

constexpr size_t chunk_bytes = size_t{1} << 18;

size_t skip_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

struct Number {
  double value = 0;
  int64_t whole = 0;
  bool is_whole = true;
};
// Removes a JSON number from the front of `text`; false: there is none, or it is out of range.
bool take_number(std::string_view& text, Number& number) {
  size_t at = text.starts_with('-') ? 1 : 0;
  const size_t first = at;
  at = skip_digits(text, at);
  if (at == first || (text[first] == '0' && at > first + 1)) return false;
  number.is_whole = true;
  if (at < text.size() && text[at] == '.') {
    const size_t end = skip_digits(text, at + 1);
    if (end == at + 1) return false;
    number.is_whole = false, at = end;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const size_t end = skip_digits(text, exponent);
    if (end == exponent) return false;
    number.is_whole = false, at = end;
  }
  const char *const begin = text.data(), *const end = begin + at;
  if (number.is_whole) {
    if (std::from_chars(begin, end, number.whole).ec != std::errc()) return false;
    number.value = static_cast<double>(number.whole);
  } else if (std::from_chars(begin, end, number.value).ec != std::errc()) {
    return false;
  }
  text.remove_prefix(at);
  return true;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

}  // namespace

bool LineReader::next(std::string_view& line) {
  for (size_t searched = begin_;;) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      line = std::string_view(buffer_).substr(begin_, end - begin_);
      begin_ = end + 1;
      return true;
    }
    if (read_ == size_) return false;
    buffer_.erase(0, begin_);
    begin_ = 0, searched = buffer_.size();
    check(searched <= max_row_bytes, "read: ", path_, ": a line has more than ", max_row_bytes,
          " bytes, the maximum of a row of metrics; the file is damaged");
    const uint64_t more = std::min<uint64_t>(chunk_bytes, size_ - read_);
    buffer_.resize(searched + more);
    file_.read_at(read_, std::as_writable_bytes(std::span(buffer_).subspan(searched)));
    read_ += more;
  }
}

bool FlatRowReader::read(std::string_view line, LogRow& row) {
  if (row_ != &row) last_.clear(), row.metrics.clear(), row_ = &row;
  members_ = 0, has_step_ = false;
  bool flat = take(line, "{") && read_member(line, row);
  while (flat && take(line, ",")) flat = read_member(line, row);
  flat = flat && line == "}" && has_step_;
  if (flat) drop_rest(row);
  if (!flat) row_ = nullptr;
  return flat;
}

void FlatRowReader::drop_rest(LogRow& row) {
  for (size_t i = members_; i < last_.size(); ++i) row.metrics.erase(last_[i].second);
  last_.resize(members_);
}

bool FlatRowReader::read_member(std::string_view& rest, LogRow& row) {
  if (!take(rest, "\"")) return false;
  const size_t end = rest.find('"');
  if (end == std::string_view::npos) return false;
  const std::string_view key = rest.substr(0, end);
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) { return c >= ' ' && c <= '~' && c != '\\'; });
  rest.remove_prefix(end + 1);
  if (!plain || !take(rest, ":")) return false;
  Number number;
  const bool null = take(rest, "null");
  if (null) number.value = std::numeric_limits<double>::quiet_NaN();
  if (!null && !take_number(rest, number)) return false;
  if (key == "step") {
    if (has_step_ || null || !number.is_whole) return false;
    row.step = number.whole, has_step_ = true;
    return true;
  }
  if (members_ < last_.size() && last_[members_].first == key) {
    last_[members_++].second->second = number.value;
    return true;
  }
  drop_rest(row);  // another kind of row begins here
  const auto [entry, is_new] = row.metrics.try_emplace(with_current_metrics(key), number.value);
  if (!is_new) return false;
  last_.emplace_back(key, entry), ++members_;
  return true;
}

}  // namespace orrery::models
