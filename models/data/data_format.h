// Data formats that --data accepts, for the catalogue; the file that reads a format registers it.
#pragma once

#include <string>

#include "engine/settings/registry.h"

namespace orrery::models {

struct DataFormat {
  std::string name, description;
  std::string kind;  // of the data, as in Task::kind: "text", "pairs", "images"
};
Registry<DataFormat>& data_formats();
#define REGISTER_DATA_FORMAT(id, ...)                              \
  [[maybe_unused]] static const bool registered_data_format_##id = \
      (::orrery::models::data_formats().add(__VA_ARGS__), true)

}  // namespace orrery::models
