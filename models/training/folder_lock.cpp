#include "models/training/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "engine/base/open_file.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

// Those on the way to `folder` that do not exist, the deepest first.
std::vector<std::string> missing_folders(const std::string& folder) {
  std::vector<std::string> missing;
  for (fs::path at = folder; !at.empty() && !file_exists(at.string()); at = at.parent_path())
    if (at.has_filename()) missing.push_back(at.string());
  return missing;
}

std::string holder_of(int file) {  // " (process 1234)"; empty if it has not written its number yet
  char digits[24];
  const ssize_t size = ::pread(file, digits, sizeof digits, 0);
  const std::string number(digits, size > 0 ? static_cast<size_t>(size) : 0);
  const size_t end = number.find_first_not_of("0123456789");
  return end == 0 || number.empty() ? "" : " (process " + number.substr(0, end) + ")";
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : folder_(folder), path_(folder + "/.orrery.lock") {
  check(!folder.empty(), "train: --out is empty; it names the folder of the run, as in --out=runs/mine");
  made_ = missing_folders(folder);
  acquire();
}

// Nothing here may fail or allocate.  The file goes before the lock does, so that nobody else's is removed.
FolderLock::~FolderLock() {
  if (file_ && holds()) ::unlink(path_.c_str());
  file_.reset();
  for (const std::string& folder : made_)
    if (::rmdir(folder.c_str()) != 0) break;
}

bool FolderLock::holds() const {
  struct stat held = {}, there = {};
  return ::fstat(file_->number(), &held) == 0 && ::lstat(path_.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
         held.st_ino == there.st_ino;
}

void FolderLock::acquire() {
  const auto reason = [] { return std::generic_category().message(errno); };
  // The run that had the lock may remove the file, and the folder, between any two of these calls: then once more.
  for (int attempt = 0; attempt < 100; ++attempt) {
    make_folders(folder_);
    auto file = std::make_unique<Descriptor>(open_unlinked(path_, O_RDWR));
    if (file->number() < 0 && errno == ENOENT) continue;
    check(file->number() >= 0, "train: cannot make the file ", path_, ": ", reason(), "; choose another --out");
    if (::flock(file->number(), LOCK_EX | LOCK_NB) != 0) {
      check(errno == EWOULDBLOCK, "train: cannot lock ", path_, ": ", reason(),
            "; choose an --out on a disk that can lock files");
      const std::string holder = holder_of(file->number());
      fail("train: ", folder_, " is in use by another run", holder, "; wait for its end, or choose another --out");
    }
    file_ = std::move(file);
    if (!holds()) continue;
    const std::string number = text(::getpid(), "\n");
    // Only for the other run's sentence: nothing is lost if it cannot be written.
    if (::ftruncate(file_->number(), 0) == 0) [[maybe_unused]]
      const ssize_t written = ::pwrite(file_->number(), number.data(), number.size(), 0);
    return;
  }
  fail("train: ", folder_, " is being made and removed by other runs; choose another --out");
}

void FolderLock::ensure_held() {
  if (file_ && holds()) return;
  check(!file_exists(folder_), "train: ", folder_,
        " is not the folder that it was when the run began: it has been removed or replaced; nothing is written there");
  acquire();
}

}  // namespace orrery::models
