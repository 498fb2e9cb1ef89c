#include "examples/orrery/commands/given_text.h"

#include "models/data/text_files.h"
#include "models/formats/gzip.h"

namespace orrery::program {

std::string text_of_file(const std::string& path) {
  constexpr uint64_t longest = uint64_t{1} << 24;  // bytes
  models::check_is_text(path);
  return models::read_data_file(path, longest);
}

std::string given_text(const std::string& given) {
  const std::string scheme = "FILE:";
  return given.starts_with(scheme) ? text_of_file(given.substr(scheme.size())) : given;
}

}  // namespace orrery::program
