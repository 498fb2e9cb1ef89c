#include "engine/settings/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <span>

#include "engine/settings/loaded_plugins.h"
#include "engine/system/build_facts.h"
#include "engine/system/files.h"
#include "engine/system/hash.h"
#include "engine/system/sealed_copy.h"
#include "engine/types/check.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t max_plugin_bytes = uint64_t{1} << 28;
constexpr uint64_t max_text_bytes = 4096;  // size of a checksum file; characters of a version in a message

std::vector<std::string>* refused = nullptr;  // reasons of rejected entries, while a plug-in is being loaded

// Hash and copy of each path. The copy stays open, because the loader would take another file with
// the same descriptor number for this one.
std::map<std::string, std::pair<std::string, std::unique_ptr<SealedCopy>>> loaded;

// Returns the path of this library.
fs::path library_file() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&plugin_mark), &info);
  return info.dli_fname ? fs::absolute(info.dli_fname) : fs::path();
}

std::string read_plugin(const std::string& path) { return read_file(path, max_plugin_bytes); }

// Returns the text of a checksum file without the plug-in's file name, which may change later.
std::string checksum_text(const std::string& bytes, const std::string& hash) {
  return text("# ", bytes.size(), " bytes\n", hash, "  ");
}
std::string hash_of(const std::string& bytes) { return sha256(std::as_bytes(std::span(bytes))); }

// Returns a path that the compiler reads as a file, not as an option (-x), a response file (@x) or
// a file in its own system folder (=x).
std::string as_file(const std::string& path) { return fs::path(path).is_absolute() ? path : "./" + path; }

// Returns the offset of the version mark in a plug-in's bytes; npos: not a plug-in.
size_t find_mark(std::string_view bytes) {
  constexpr std::string_view begin = "orrery plug-in for ";
  const size_t at = bytes.starts_with("\177ELF") ? bytes.find(begin) : bytes.npos;
  return at == bytes.npos ? at : at + begin.size();
}

void check_mark(const std::string& path, const std::string& bytes) {
  const size_t at = find_mark(bytes);
  check(at != bytes.npos, "plugin: '", path, "' is not an orrery plug-in; build one with orrery try FILE.cpp");
  const std::string mark = bytes.substr(at, plugin_mark().size()), built_for = bytes.substr(at, max_text_bytes);
  check(mark == plugin_mark(), "plugin: '", path, "' was built for orrery ",
        built_for.substr(0, std::min(built_for.find('\0'), built_for.size() - 1)), ", this is orrery ", plugin_mark(),
        "; build it again with orrery try");
}

}  // namespace

namespace detail {
bool refuse_in_plugin(const std::string& reason) {
  if (refused) refused->push_back(reason);
  return refused != nullptr;
}
}  // namespace detail

std::string plugin_mark() { return text(build_facts::version, " ", build_facts::headers); }

std::string plugin_include_folder(const std::string& given) {
  const fs::path mark = fs::path("engine") / "settings" / "plugin_mark.h";
  if (!given.empty()) {
    check(file_exists((fs::path(given) / mark).string()), "plugin: there are no headers of orrery in '", given,
          "', where ", mark.string(), " is missing; give the folder that contains engine/ and nn/");
    return given;
  }
  if (file_exists((build_facts::source_folder / mark).string())) return build_facts::source_folder;
  for (fs::path folder = library_file().parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (file_exists((folder / "include" / "orrery" / mark).string())) return (folder / "include" / "orrery").string();
  fail("plugin: the headers of orrery are neither in ", build_facts::source_folder, " nor in include/orrery above ",
       library_file().string(), "; install them, keep the source tree, or use --headers=FOLDER");
}

std::vector<std::string> plugin_compiler(const std::string& include, const std::string& source,
                                         const std::string& out) {
  std::vector<std::string> all;
  for (const char* const* argument = build_facts::plugin_compiler; *argument; ++argument) all.push_back(*argument);
  all.insert(all.end(), {"-shared", "-I" + as_file(include), "-include", "engine/settings/plugin_mark.h",
                         "-DORRERY_PLUGIN_MARK=\"" + plugin_mark() + "\"", "-o", as_file(out), as_file(source)});
  return all;
}

bool is_plugin(const std::string& path) { return find_mark(read_plugin(path)) != std::string::npos; }
std::string checksum_path(const std::string& path) { return path + ".sha256"; }

void write_checksum(const std::string& path) {
  const std::string bytes = read_plugin(path), name = fs::path(path).filename().string();
  write_file_atomically(checksum_path(path), checksum_text(bytes, hash_of(bytes)) + name + "\n");
}

std::map<std::string, std::string> loaded_plugins() {
  std::map<std::string, std::string> all;
  for (const auto& [path, plugin] : loaded)
    if (!plugin.first.empty()) all[fs::path(path).filename().string()] = plugin.first;
  return all;
}

std::string load_plugin(const std::string& path) {
  check(file_exists(path), "plugin: cannot read '", path,
        "': there is no such file; orrery try FILE.cpp builds a plug-in and prints its path");
  const std::string bytes = read_plugin(path), hash = hash_of(bytes);
  if (const auto found = loaded.find(path); found != loaded.end() && found->second.first == hash) return hash;
  check_mark(path, bytes);
  check(file_exists(checksum_path(path)), "plugin: '", path, "' has no checksum file ", checksum_path(path),
        " next to it; copy both, or build it again with orrery try");
  check(read_file(checksum_path(path), max_text_bytes).starts_with(checksum_text(bytes, hash)), "plugin: '", path,
        "' is incomplete or changed: its size or SHA-256 differs from ", checksum_path(path),
        "; build it again with orrery try");

  auto copy = std::make_unique<SealedCopy>(text("plugin: loading '", path, "'"), bytes);
  const std::string name = copy->path();
  std::vector<std::string> reasons;
  refused = &reasons;
  const void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  refused = nullptr;
  const char* const error = handle ? nullptr : dlerror();
  std::string reason = error ? error : "unknown reason";
  if (reason.starts_with(name + ": ")) reason.erase(0, name.size() + 2);
  check(handle != nullptr, "plugin: '", path, "' cannot be loaded: ", reason, "; build it again with orrery try");
  // A rejected plug-in stays open too, but without a hash, so that it is never found again.
  loaded[path] = {reasons.empty() ? hash : "", std::move(copy)};
  check(reasons.empty(), "plugin: '", path, "': ", reasons.empty() ? "" : reasons[0]);
  return hash;
}

}  // namespace orrery
