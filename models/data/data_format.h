// Data formats that --data accepts, for the catalogue; the file that reads a format registers it.
#pragma once

#include <string>

#include "engine/settings/registry.h"
#include "engine/types/check.h"

namespace orrery::models {

struct DataFormat {
  std::string name, description;
  std::string kind;  // of the data, as in Task::kind: "text", "pairs", "images"
};
Registry<DataFormat>& data_formats();

// No format reads the data. The message has a line for each format that was looked for; other line breaks are escaped.
class UnknownFormat : public Error {
 public:
  using Error::Error;
};
[[noreturn]] void fail_unknown_format(const std::string& kind, const std::string& message);
// Returns true if there is such a file and its beginning, unpacked if gzip packed it, has a zero byte, as no text has.
bool is_binary(const std::string& file);

#define REGISTER_DATA_FORMAT(id, ...)                              \
  [[maybe_unused]] static const bool registered_data_format_##id = \
      (::orrery::models::data_formats().add(__VA_ARGS__), true)

}  // namespace orrery::models
