#include "engine/base/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/check.h"
#include "engine/base/version.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::vector<std::string>* refused = nullptr;  // while a plug-in is being loaded

// Where this library lies.
fs::path library_file() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&plugin_mark), &info);
  return info.dli_fname ? fs::absolute(info.dli_fname) : fs::path();
}

}  // namespace

namespace detail {
bool refuse_in_plugin(const std::string& reason) {
  if (refused) refused->push_back(reason);
  return refused != nullptr;
}
}  // namespace detail

std::string plugin_mark() { return build().version + " " + ORRERY_HEADERS; }

std::string plugin_include_folder(const std::string& given) {
  const fs::path mark = fs::path("engine") / "base" / "plugin_mark.h";
  if (!given.empty()) {
    check(fs::exists(fs::path(given) / mark), "plugin: there are no headers of orrery in '", given, "', which lacks ",
          mark.string(), "; give the folder that holds engine/ and nn/");
    return given;
  }
  if (fs::exists(fs::path(ORRERY_SOURCES) / mark)) return ORRERY_SOURCES;
  for (fs::path folder = library_file().parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (fs::exists(folder / "include" / "orrery" / mark)) return (folder / "include" / "orrery").string();
  fail("plugin: the headers of orrery are neither in ", ORRERY_SOURCES, " nor beside ", library_file().string(),
       "; install them, keep the source tree, or say where they are");
}

std::string plugin_compiler(const std::string& include) {
  return text(ORRERY_PLUGIN_COMPILER, " -shared -I'", include,
              "' -include engine/base/plugin_mark.h '-DORRERY_PLUGIN_MARK=\"", plugin_mark(), "\"'");
}

void load_plugin(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.good(), "plugin: cannot read '", path, "'; orrery try FILE.cpp makes a plug-in and says where it is");
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const std::string_view begin = "orrery plug-in for ";
  const size_t at = bytes.find(begin);
  check(bytes.starts_with("\177ELF") && at != std::string::npos, "plugin: '", path,
        "' is not a plug-in of orrery; orrery try FILE.cpp makes one");
  const std::string mark = bytes.substr(at + begin.size(), plugin_mark().size());
  check(mark == plugin_mark(), "plugin: '", path, "' was built for orrery ",
        bytes.substr(at + begin.size(), bytes.find('\0', at) - at - begin.size() - 1), ", this is ", plugin_mark(),
        "; build it again with orrery try");

  std::vector<std::string> reasons;
  refused = &reasons;
  const void* const handle = dlopen(fs::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  refused = nullptr;
  const char* const error = handle ? nullptr : dlerror();
  check(handle != nullptr, "plugin: '", path, "' cannot be loaded: ", error ? error : "unknown reason");
  check(reasons.empty(), "plugin: '", path, "': ", reasons.empty() ? "" : reasons[0]);
}

}  // namespace orrery
