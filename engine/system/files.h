// Reads and writes files; no other code does. A failure becomes an Error with the file's name and
// the system's reason. Files are written atomically: under a temporary name next to the target,
// synced, then renamed. A crash or a full disk leaves the previous file intact.
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

class Descriptor {  // an open file, closed by the destructor; -1: none
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  int number() const { return number_; }
  int close();  // returns 0 or the errno: a network disk may report a full disk only now

 private:
  int number_;
};

// A regular file, open for reading. Folders, pipes and devices are rejected: they have no size to
// check the bytes against and may be endless. Errors:
//   read: cannot read run/state.json: No such file or directory
//   read: cannot read /dev/zero: it is a device; only regular files are read
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  uint64_t size() const { return size_; }         // bytes at the time of opening
  void read(std::span<std::byte> bytes);          // fills `bytes`; throws if the file ends before
  size_t read_up_to(std::span<std::byte> bytes);  // reads fewer bytes only at the end of the file
  // Reads the bytes from offset `at`. Several threads may call it at once.
  void read_at(uint64_t at, std::span<std::byte> bytes) const;

 private:
  template <class Get>
  size_t get_all(std::span<std::byte> bytes, const Get& get) const;
  void check_all(size_t got, std::span<std::byte> bytes) const;
  std::string path_;
  Descriptor file_;
  uint64_t size_ = 0;
};

class FileWriter {  // passed to the callback below
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

class FileAppender {  // a log file: created if missing; each write is appended without buffering
 public:
  explicit FileAppender(const std::string& path);
  void write(std::string_view text) { FileWriter(file_.number(), path_).write(text); }

 private:
  std::string path_;
  Descriptor file_;
};

// On any error, also of the callback, removes the temporary file and keeps the target. Errors:
//   write: cannot write run/state.json: No space left on device
void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& write);
void write_file_atomically(const std::string& path, std::string_view text);

// Returns the content of a regular file. Throws before it reads if it has more than `limit` bytes.
std::string read_file(const std::string& path, uint64_t limit = std::numeric_limits<int64_t>::max());

// A pipe can be read once, to its end, and has no size before. Its path is -, the standard input,
// or that of a FIFO, such as /dev/fd/63 of a shell's <(command).
bool is_pipe(const std::string& path);
std::string read_pipe(const std::string& path, uint64_t limit);  // throws if it delivers more bytes

void sync_folder(const std::string& path);  // after a rename: the new name survives a power failure

// Queries and changes of the file system. A query returns false only if nothing of that name
// exists. It throws if it fails: for too long a name, or a folder without access.
bool file_exists(const std::string& path);  // true for a folder too
bool folder_exists(const std::string& path);
std::string without_last_slashes(std::string path);  // "runs/a/" becomes "runs/a"
void make_folders(const std::string& path);          // and missing parents; existing folders are not an error
void rename_file(const std::string& from, const std::string& to);
// Returns an unused name that ends in `end`: PATH.partial, or PATH.2.partial.
std::string unused_name(const std::string& path, const std::string& end);
std::vector<std::string> files_in(const std::string& folder);  // their paths, sorted

}  // namespace orrery
