#include "engine/system/proc.h"

#include "engine/system/files.h"
#include "engine/types/check.h"

namespace orrery {

std::string proc_path(const std::string& context, const std::string& path) {
  check(file_exists(path), context, " needs ", path, ", but /proc is not mounted; mount it (mount -t proc proc /proc)");
  return path;
}

}  // namespace orrery
