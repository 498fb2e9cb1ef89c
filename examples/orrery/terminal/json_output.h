// One JSON value on standard output instead of text (--json).
#pragma once

#include <ios>
#include <nlohmann/json.hpp>
#include <streambuf>

#include "models/formats/json.h"

namespace orrery::program {

using models::Json;  // members keep their order

// Help of the setting `json`, which the commands with a JSON form have.
inline constexpr const char* json_help =
    "print one JSON value instead of text; numbers that are not finite are \"NaN\", \"Infinity\", \"-Infinity\"";

// Returns a number with all its digits. JSON lacks NaN and infinities, so they become the strings
// above; Python's float() reads them.
Json json_number(double x);

// Returns an object of named numbers, such as metrics.
template <class Named>
Json json_numbers(const Named& named) {
  Json all = Json::object();
  for (const auto& [name, x] : named) all[name] = json_number(x);
  return all;
}

// A scope in which standard output is reserved for one JSON value, if `wanted`. Text that is
// printed to it in this scope goes to standard error.
class JsonOutput {
 public:
  explicit JsonOutput(bool wanted);
  ~JsonOutput();
  JsonOutput(const JsonOutput&) = delete;
  explicit operator bool() const { return wanted_; }
  // Prints the value on one line to standard output, and ends the redirection.
  void print(const Json& value);

 private:
  void restore();

  bool wanted_;
  std::ios::iostate exceptions_;
  std::streambuf* output_ = nullptr;  // null: not redirected
};

}  // namespace orrery::program
