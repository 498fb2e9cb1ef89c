// The one place that reads and writes files: what the outside world does there becomes an Error, a sentence with the
// file's name and the system's reason.  Files are written whole or not at all: under a temporary name beside the
// target, synced, renamed.  A crash or a full disk leaves what was there before.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/types/check.h"

namespace orrery {

class Descriptor {  // an open file; -1: none
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  int number() const { return number_; }
  int close();  // 0, or what went wrong: a network disk may report a full disk only now

 private:
  int number_;
};

// A regular file, open for reading.  Folders, pipes and devices are refused: they have no size that could be held
// against what is read, and may have no end.  Errors:
//   read: cannot read run/state.json: No such file or directory
//   read: cannot read /dev/zero: it is a device; only regular files are read
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  uint64_t size() const { return size_; }         // bytes, when it was opened
  void read(std::span<std::byte> bytes);          // the next ones, all of them; an Error if the file ends before
  size_t read_up_to(std::span<std::byte> bytes);  // fewer only at the file's end
  // Those that begin at byte `at`; threads may do so at once.
  void read_at(uint64_t at, std::span<std::byte> bytes) const;

 private:
  template <class Get>
  size_t get_all(std::span<std::byte> bytes, const Get& get) const;
  void check_all(size_t got, std::span<std::byte> bytes) const;
  std::string path_;
  Descriptor file_;
  uint64_t size_ = 0;
};

class FileWriter {  // handed to the callback below
 public:
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

 private:
  friend class FileAppender;
  friend void write_file_atomically(const std::string&, const std::function<void(FileWriter&)>&);
  FileWriter(int descriptor, const std::string& path) : descriptor_(descriptor), path_(path) {}
  int descriptor_;
  const std::string& path_;
};

class FileAppender {  // a log: made if it is not there; what is written stands at its end at once
 public:
  explicit FileAppender(const std::string& path);
  void write(std::string_view text) { FileWriter(file_.number(), path_).write(text); }

 private:
  std::string path_;
  Descriptor file_;
};

// If anything fails, the callback included, the temporary file is removed and the target is as it was.  Errors:
//   write: cannot write run/state.json: No space left on device
void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& write);
void write_file_atomically(const std::string& path, std::string_view text);

// A regular file, whole.  An Error also if it has more bytes than `limit`, before any is read:
//   read: run/state.json has 20,971,520 bytes, more than the 16,777,216 that are read
std::string read_file(const std::string& path, uint64_t limit = std::numeric_limits<int64_t>::max());
void sync_folder(const std::string& path);  // after a rename: the new name survives a loss of power

// Questions and orders to the file system.  "No" is an answer only if there is nothing of that name; what cannot be
// asked (a name that is too long, a folder that may not be entered) is an Error.
bool file_exists(const std::string& path);  // a folder, too
bool folder_exists(const std::string& path);
std::string without_last_slashes(std::string path);  // "runs/a/" is "runs/a"
void make_folders(const std::string& path);  // with those above it; none needs to be missing
void rename_file(const std::string& from, const std::string& to);
// A name with that end that nothing has: PATH.partial, or PATH.2.partial.
std::string free_name(const std::string& path, const std::string& end);
std::vector<std::string> files_in(const std::string& folder);  // their paths, sorted

}  // namespace orrery
