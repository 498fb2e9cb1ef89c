// A folder that one process at a time may write into.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/files.h"

namespace orrery::models {

// Makes the folder and holds a lock on the file .orrery.lock in it, which the system takes away with the process,
// however it ends.  Errors:
//   train: runs/a is in use by another run (process 1234); wait for its end, or choose another --out
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  ~FolderLock();  // removes the file, and the folders that it made if they are still empty
  FolderLock(const FolderLock&) = delete;

  // An Error if the folder is no longer the one that was locked.  One that is gone is made and locked again.
  void ensure_held();

 private:
  void acquire();
  bool holds() const;

  std::string folder_, path_;
  std::vector<std::string> made_;  // folders, the deepest first
  std::unique_ptr<Descriptor> file_;
};

}  // namespace orrery::models
