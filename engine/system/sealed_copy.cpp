#include "engine/system/sealed_copy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/system/proc.h"
#include "engine/types/check.h"

namespace orrery {

SealedCopy::SealedCopy(const std::string& what, std::string_view bytes)
    : file_(::memfd_create("orrery", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  bool succeeded = file_.number() >= 0;
  for (size_t done = 0; succeeded && done < bytes.size();) {
    const ssize_t written = ::write(file_.number(), bytes.data() + done, bytes.size() - done);
    succeeded = written >= 0 || errno == EINTR;
    done += static_cast<size_t>(std::max<ssize_t>(0, written));
  }
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  check(succeeded && ::fcntl(file_.number(), F_ADD_SEALS, seals) == 0, what,
        ": cannot create a sealed file in memory (memfd_create): ", std::strerror(errno));
  path_ = proc_path(what, text("/proc/self/fd/", file_.number()));
}

}  // namespace orrery
