#include "engine/system/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/system/open_file.h"
#include "engine/types/usage_error.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr const char* lock_name = ".orrery.lock";

// Returns the missing folders on the path to `folder`, the deepest first.
std::vector<std::string> missing_folders(const std::string& folder) {
  std::vector<std::string> missing;
  for (fs::path at = folder; !at.empty() && !file_exists(at.string()); at = at.parent_path())
    if (at.has_filename()) missing.push_back(at.string());
  return missing;
}

std::string holder_of(int file) {  // " (process 1234)"; empty if the holder has not written its number yet
  char digits[24];
  const ssize_t size = ::pread(file, digits, sizeof digits, 0);
  const std::string number(digits, size > 0 ? static_cast<size_t>(size) : 0);
  const size_t end = number.find_first_not_of("0123456789");
  return end == 0 || number.empty() ? "" : " (process " + number.substr(0, end) + ")";
}

// Returns "choose another --out" after a text, or "" without a setting.
std::string other_setting_advice(const LockUser& user, const char* before) {
  return user.setting.empty() ? "" : text(before, "choose another ", user.setting);
}

}  // namespace

FileLock::FileLock(const std::string& path, const LockUser& user) : path_(path) {
  // The former holder of the lock may remove file and folder between any two of these calls.
  for (int attempt = 0; attempt < 100; ++attempt)
    if (open(user)) return;
  fail(user.command, ": ", path, " is created and removed by other programs; try again",
       other_setting_advice(user, ", or "));
}

// Returns false if another process removed the file or its folder during the call.
bool FileLock::open(const LockUser& user) {
  const auto reason = [] { return std::generic_category().message(errno); };
  if (const std::string folder = fs::path(path_).parent_path().string(); !folder.empty()) make_folders(folder);
  file_ = std::make_unique<Descriptor>(open_unlinked(path_, O_RDWR));
  if (file_->number() < 0 && errno == ENOENT) return false;
  check(file_->number() >= 0, user.command, ": cannot create the file ", path_, ": ", reason(),
        other_setting_advice(user, "; "));
  if (::flock(file_->number(), LOCK_EX | LOCK_NB) != 0) {
    check(errno == EWOULDBLOCK, user.command, ": cannot lock ", path_, ": ", reason(), "; ",
          user.setting.empty() ? "use" : other_setting_advice(user, "") + " on", " a disk that supports file locks");
    return true;
  }
  return held_ = is_at_path();
}

bool FileLock::is_at_path() const {
  struct stat locked = {}, there = {};
  return ::fstat(file_->number(), &locked) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
         locked.st_dev == there.st_dev && locked.st_ino == there.st_ino;
}

FolderLock::FolderLock(const std::string& folder, LockUser user)
    : user_(std::move(user)), folder_(folder), path_((fs::path(folder) / lock_name).string()) {
  check_usage(!folder.empty(), user_.command, ": ", user_.setting, " is empty; give a folder, as in ", user_.setting,
              "=runs/mine");
  created_ = missing_folders(folder);
  acquire();
}

// Nothing here may fail or allocate. The file is removed before the lock is released, so that no
// other process's file is removed.
FolderLock::~FolderLock() {
  if (file_ && file_->is_at_path()) ::unlink(path_.c_str());
  file_.reset();
  for (const std::string& folder : created_)
    if (::rmdir(folder.c_str()) != 0) break;
}

void FolderLock::acquire() {
  auto file = std::make_unique<FileLock>(path_, user_);
  if (!file->held()) {  // is_locked() holds it for an instant
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    file = std::make_unique<FileLock>(path_, user_);
  }
  if (!file->held())
    fail(user_.command, ": ", folder_, " is in use by another program", holder_of(file->descriptor()),
         "; wait until it ends", other_setting_advice(user_, ", or "));
  file_ = std::move(file);
  const std::string number = text(::getpid(), "\n");
  // Only another program's message uses the number, so a failed write does no harm.
  if (::ftruncate(file_->descriptor(), 0) == 0) [[maybe_unused]]
    const ssize_t written = ::pwrite(file_->descriptor(), number.data(), number.size(), 0);
}

void FolderLock::ensure_held() {
  if (file_ && file_->is_at_path()) return;
  check(!file_exists(folder_), user_.command, ": ", folder_,
        " was removed or replaced after the run began; nothing is written to it; start the run again");
  acquire();
}

void FolderLock::rename_to(const std::string& folder) {
  rename_file(folder_, folder);
  if (!created_.empty()) created_[0] = folder;
  folder_ = folder, path_ = (fs::path(folder) / lock_name).string();
  file_->moved_to(path_);
}

bool is_locked(const std::string& folder) {
  const std::string path = (fs::path(folder) / lock_name).string();
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return file.number() >= 0 && ::flock(file.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

bool FolderLock::has_only_lock() const {
  const std::vector<std::string> files = files_in(folder_);
  return files.size() == 1 && fs::path(files[0]).filename() == lock_name;
}

}  // namespace orrery
