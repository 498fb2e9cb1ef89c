#include "models/data/data_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "engine/system/files.h"
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

bool is_binary(const std::string& file) {
  if (!file_exists(file)) return false;
  std::array<std::byte, 4096> bytes;
  const auto begin = std::span(bytes).first(DataReader(file).read_up_to(bytes));
  return std::ranges::find(begin, std::byte{0}) != begin.end();
}

}  // namespace orrery::models
