#include "models/formats/output_file.h"

#include <algorithm>
#include <filesystem>

#include "engine/system/folders.h"
#include "engine/types/usage_error.h"

namespace orrery::models {

namespace fs = std::filesystem;

OutputKind marked_kind(std::string name, std::string first, std::string later, size_t at) {
  const auto is_ours = [first = std::move(first), later = std::move(later), at](const std::string& path) {
    constexpr size_t searched = 4096;
    std::string begin(at + first.size() + searched, '\0');
    begin.resize(FileReader(path).read_up_to(std::as_writable_bytes(std::span(begin))));
    return begin.size() >= at && begin.compare(at, first.size(), first) == 0 &&
           begin.find(later, at + first.size()) != std::string::npos;
  };
  return {std::move(name), is_ours};
}

void check_outside_checkpoints(std::string_view command, const std::string& path, std::string_view setting) {
  const OutputKind state = marked_kind("", "{", std::string("\"format\": \"") + checkpoint_formats);
  for (const fs::path& folder : {fs::path(path), fs::path(path).parent_path()}) {
    const std::string file = (folder / state_name).string();
    check(!file_exists(file) || !state.is_ours(file), command, ": ", setting, "=", path, " is in the checkpoint ",
          folder.empty() ? "." : folder.string(), ", where no other files may be written; choose another ", setting);
  }
}

void check_output(std::string_view command, const std::string& path, const OutputKind& kind, std::string_view setting) {
  std::error_code ignored;
  check_outside_checkpoints(command, path, setting);
  if (!path_exists(path)) return;  // an inaccessible path cannot be written either
  check(!folder_exists(path), command, ": ", path, " is a folder; choose a file for ", setting);
  check(fs::is_regular_file(path, ignored) && kind.is_ours(path), command, ": ", path, " exists and is not ", kind.name,
        ", so it is not replaced; choose another ", setting, ", or remove it");
}

void check_extension(std::string_view command, const std::string& path,
                     std::initializer_list<std::string_view> extensions, std::string_view setting) {
  const std::string own = fs::path(path).extension().string();
  check_usage(own.empty() || std::find(extensions.begin(), extensions.end(), own) != extensions.end(), command, ": ",
              setting, "=", path, " has the extension ", own, ", which is not supported; give FILE",
              *extensions.begin());
}

void write_output(std::string_view command, const std::string& path, const OutputKind& kind, std::string_view content,
                  std::string_view setting) {
  check_output(command, path, kind, setting);
  write_file_atomically(path, content);
}

}  // namespace orrery::models
