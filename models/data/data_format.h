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
// For a reader that met `error`: fails with this message if the file's beginning, unpacked if gzip packed it, has a
// zero byte, as no text has. Returns if not, if there is no such file, or if the error is of the machine.
void fail_if_binary(const std::string& kind, const std::string& file, const std::string& message, const Error& error);

#define REGISTER_DATA_FORMAT(id, ...)                              \
  [[maybe_unused]] static const bool registered_data_format_##id = \
      (::orrery::models::data_formats().add(__VA_ARGS__), true)

}  // namespace orrery::models
