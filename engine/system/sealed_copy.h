// A file in memory whose bytes cannot be changed: memfd_create(2) with all file seals of fcntl(2).
#pragma once

#include <string>
#include <string_view>

#include "engine/system/files.h"

namespace orrery {

class SealedCopy {
 public:
  // Error messages begin with `what`.
  SealedCopy(const std::string& what, std::string_view bytes);
  const std::string& path() const { return path_; }  // valid while this object lives

 private:
  Descriptor file_;
  std::string path_;
};

}  // namespace orrery
