// Bytes in a file that only memory holds and that nothing can change, the sealing included (memfd_create(2)).
#pragma once

#include <string>
#include <string_view>

#include "engine/system/files.h"

namespace orrery {

class SealedCopy {
 public:
  // Errors begin with `what`.
  SealedCopy(const std::string& what, std::string_view bytes);
  const std::string& path() const { return path_; }  // for as long as this object lives

 private:
  Descriptor file_;
  std::string path_;
};

}  // namespace orrery
