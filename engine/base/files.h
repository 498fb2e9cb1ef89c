// Files that are written whole or not at all: under a temporary name beside the target, synced, renamed.  A crash or a
// full disk leaves what was there before.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/check.h"

namespace orrery {

class FileWriter {  // handed to the callback below
 public:
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

 private:
  friend void write_file_atomically(const std::string&, const std::function<void(FileWriter&)>&);
  FileWriter(int descriptor, const std::string& path) : descriptor_(descriptor), path_(path) {}
  int descriptor_;
  const std::string& path_;
};

// If anything fails, the callback included, the temporary file is removed and the target is as it was.  Errors:
//   write: cannot write run/state.json: No space left on device
void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& write);
void write_file_atomically(const std::string& path, std::string_view text);

std::string read_file(const std::string& path);  // whole; "read: cannot read run/state.json: No such file or directory"
void sync_folder(const std::string& path);       // after a rename: the new name survives a loss of power

}  // namespace orrery
