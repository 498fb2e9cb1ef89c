#include "engine/base/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/base/version.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t largest_plugin = uint64_t{1} << 28;  // bytes
constexpr uint64_t longest_seal = 4096;

std::vector<std::string>* refused = nullptr;  // while a plug-in is being loaded

// Where this library lies.
fs::path library_file() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&plugin_mark), &info);
  return info.dli_fname ? fs::absolute(info.dli_fname) : fs::path();
}

std::string read_plugin(const std::string& path) { return read_file(path, largest_plugin); }

std::string seal_of(const std::string& path) { return path + ".sha256"; }

// All but the file's name, which may be another one later.
std::string seal_text(const std::string& bytes) {
  return text("# ", bytes.size(), " bytes\n", sha256(std::as_bytes(std::span(bytes))), "  ");
}

void check_mark(const std::string& path, const std::string& bytes) {
  const std::string_view begin = "orrery plug-in for ";
  const size_t at = bytes.find(begin);
  check(bytes.starts_with("\177ELF") && at != std::string::npos, "plugin: '", path,
        "' is not a plug-in of orrery; orrery try FILE.cpp makes one");
  const std::string mark = bytes.substr(at + begin.size(), plugin_mark().size());
  const std::string built_for = bytes.substr(at + begin.size(), longest_seal);
  check(mark == plugin_mark(), "plugin: '", path, "' was built for orrery ",
        built_for.substr(0, std::min(built_for.find('\0'), built_for.size() - 1)), ", this is ", plugin_mark(),
        "; build it again with orrery try");
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
    check(file_exists((fs::path(given) / mark).string()), "plugin: there are no headers of orrery in '", given,
          "', which lacks ", mark.string(), "; give the folder that holds engine/ and nn/");
    return given;
  }
  if (file_exists((fs::path(ORRERY_SOURCES) / mark).string())) return ORRERY_SOURCES;
  for (fs::path folder = library_file().parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (file_exists((folder / "include" / "orrery" / mark).string())) return (folder / "include" / "orrery").string();
  fail("plugin: the headers of orrery are neither in ", ORRERY_SOURCES, " nor beside ", library_file().string(),
       "; install them, keep the source tree, or say where they are");
}

std::string plugin_compiler(const std::string& include) {
  return text(ORRERY_PLUGIN_COMPILER, " -shared -I'", include,
              "' -include engine/base/plugin_mark.h '-DORRERY_PLUGIN_MARK=\"", plugin_mark(), "\"'");
}

void seal_plugin(const std::string& path) {
  write_file_atomically(seal_of(path), seal_text(read_plugin(path)) + fs::path(path).filename().string() + "\n");
}

void load_plugin(const std::string& path) {
  check(file_exists(path), "plugin: cannot read '", path,
        "': there is no such file; orrery try FILE.cpp makes a plug-in", " and says where it is");
  const std::string bytes = read_plugin(path);
  check_mark(path, bytes);
  check(file_exists(seal_of(path)), "plugin: '", path, "' has no ", seal_of(path),
        " beside it, which tells whether it is whole; copy both, or build it again with orrery try");
  check(read_file(seal_of(path), longest_seal).starts_with(seal_text(bytes)), "plugin: '", path,
        "' is not the file that orrery try made: size or SHA-256 differ from ", seal_of(path),
        "; it was cut short or changed; build it again with orrery try");

  std::vector<std::string> reasons;
  refused = &reasons;
  const void* const handle = dlopen(fs::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  refused = nullptr;
  const char* const error = handle ? nullptr : dlerror();
  check(handle != nullptr, "plugin: '", path, "' cannot be loaded: ", error ? error : "unknown reason");
  check(reasons.empty(), "plugin: '", path, "': ", reasons.empty() ? "" : reasons[0]);
}

}  // namespace orrery
