// Locks on files and folders. The system releases a lock when its process ends in any way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/system/files.h"

namespace orrery {

// A caller, as error messages name it.
struct LockUser {
  std::string command = "train";  // the first word of a message
  std::string setting = "--out";  // the setting that names the folder; empty: the user has no choice
};

// An exclusive lock on a file. The constructor creates the file and the folders above it and does
// not follow links. Errors:
//   sweep: cannot lock runs/0123.lock: No locks available; choose another --runs on a disk that supports file locks
class FileLock {
 public:
  FileLock(const std::string& path, const LockUser& user);
  bool held() const { return held_; }  // false: another process holds it
  bool is_at_path() const;             // true: the path still leads to the locked file
  int descriptor() const { return file_->number(); }
  void moved_to(const std::string& path) { path_ = path; }

 private:
  bool open(const LockUser& user);

  std::string path_;
  std::unique_ptr<Descriptor> file_;
  bool held_ = false;
};

// An exclusive lock on a folder by its file .orrery.lock. It creates the folder. Errors:
//   train: runs/a is in use by another program (process 1234); wait until it ends, or choose another --out
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder, LockUser user = {});
  ~FolderLock();  // removes the file, and the folders that were created if they are still empty
  FolderLock(const FolderLock&) = delete;
  const LockUser& user() const { return user_; }
  const std::string& folder() const { return folder_; }

  // Throws if the folder is no longer the locked one. Creates and locks a folder that is missing.
  void ensure_held();
  void keep() { created_.clear(); }  // keeps the folder even if it is empty
  // Renames the folder together with its lock.
  void rename_to(const std::string& folder);
  bool has_only_lock() const;  // true: the folder contains only the lock

 private:
  void acquire();

  LockUser user_;
  std::string folder_, path_;
  std::vector<std::string> created_;  // folders, the deepest first
  std::unique_ptr<FileLock> file_;
};

// Returns true if a program holds the lock. A concurrent attempt to lock the folder may fail.
bool is_locked(const std::string& folder);

}  // namespace orrery
