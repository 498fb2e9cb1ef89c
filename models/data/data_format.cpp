#include "models/data/data_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "engine/system/files.h"
#include "engine/types/machine_error.h"
#include "models/formats/gzip.h"
#include "models/formats/shown_text.h"

namespace orrery::models {

Registry<DataFormat>& data_formats() {
  static Registry<DataFormat> all("data");
  return all;
}

void fail_unknown_format(const std::string& kind, const std::string& message) {
  std::string all = for_terminal(message) + "; known formats:";
  for (const auto& [name, format] : data_formats())
    if (format.kind == kind) all += "\n  " + name + ": " + format.description;
  throw UnknownFormat(all);
}

void fail_if_binary(const std::string& kind, const std::string& file, const std::string& message, const Error& error) {
  const bool of_contents = !dynamic_cast<const UnknownFormat*>(&error) && !dynamic_cast<const MachineError*>(&error);
  if (!of_contents || !file_exists(file)) return;
  std::array<std::byte, 4096> bytes;
  const auto begin = std::span(bytes).first(DataReader(file).read_up_to(bytes));
  if (std::ranges::find(begin, std::byte{0}) != begin.end()) fail_unknown_format(kind, message);
}

}  // namespace orrery::models
