#include "engine/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace orrery {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  int number() const { return number_; }
  int close() {  // 0, or what went wrong: a network disk may report a full disk only now
    const int result = ::close(number_);
    number_ = -1;
    return result == 0 ? 0 : errno;
  }

 private:
  int number_;
};

}  // namespace

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    check(written >= 0, "write: cannot write ", path_, ": ", reason(errno));
    check(written > 0, "write: cannot write ", path_, ": the disk takes no more bytes");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& write) {
  const std::string temporary = text(path, ".", ::getpid(), ".partial");
  const auto fail_with = [&](int error) { fail("write: cannot write ", path, ": ", reason(error)); };
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.number() < 0) fail_with(errno);
  try {
    FileWriter writer(file.number(), path);
    write(writer);
    if (::fsync(file.number()) != 0) fail_with(errno);
    if (const int error = file.close()) fail_with(error);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail_with(errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(std::filesystem::path(path).parent_path().string());
}

void write_file_atomically(const std::string& path, std::string_view text) {
  write_file_atomically(path, [&](FileWriter& writer) { writer.write(text); });
}

std::string read_file(const std::string& path) {
  const auto fail_with = [&](int error) { fail("read: cannot read ", path, ": ", reason(error)); };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) fail_with(errno);
  struct stat status = {};
  if (::fstat(file.number(), &status) != 0) fail_with(errno);
  std::string bytes;
  size_t size = 0;
  for (;;) {  // also files that do not know their size, such as pipes
    bytes.resize(std::max({size + 1, static_cast<size_t>(status.st_size) + 1, size + size / 2 + 4096}));
    const ssize_t got = ::read(file.number(), bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with(errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

void sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0) fail("write: cannot open the folder ", path, ": ", reason(errno));
  // Some file systems cannot sync a folder and say EINVAL; then nothing better can be done.
  if (::fsync(folder.number()) != 0 && errno != EINVAL)
    fail("write: cannot sync the folder ", path, ": ", reason(errno));
}

}  // namespace orrery
