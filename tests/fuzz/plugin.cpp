// Plug-in files: every file is refused before its code runs, except the file made here. @MARK@ in a
// file of the corpus stands for this build's mark.
#include "engine/settings/plugin.h"

#include <algorithm>

#include "engine/types/check.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;

std::string with_mark(std::string_view bytes) {
  std::string all(bytes);
  if (const size_t at = all.find("@MARK@"); at != std::string::npos) all.replace(at, 6, orrery::plugin_mark());
  return all;
}

void read(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/given.so";
  const auto refused = [&] {
    try {
      orrery::load_plugin(path);
    } catch (const orrery::Error&) {
      return true;
    }
    return false;
  };
  put(path, std::string(bytes) + "x");
  orrery::write_checksum(path);
  put(path, bytes);
  promise(refused(), "a file that differs from its checksum file is loaded");
  put(orrery::checksum_path(path), bytes);  // as its own checksum file
  orrery::load_plugin(path);
  promise(false, "a file that no compiler made is loaded");
}

REGISTER_FORMAT(plugin, {.name = "plugin",
                         .readers = {"engine/settings/plugin.cpp"},
                         .read = read,
                         .memory_multiple = 16,
                         .memory_base = 1 << 18,
                         .words = {"\177ELF", "orrery plug-in for ", "@MARK@", "."},
                         .prepare = with_mark});

}  // namespace
