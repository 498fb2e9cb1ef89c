#include "engine/system/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "engine/system/folders.h"
#include "engine/system/machine_memory.h"
#include "engine/system/open_file.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t max_generated_bytes = uint64_t{1} << 24;

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void cannot_read(const std::string& path, const std::string& why) {
  fail("read: cannot read ", path, ": ", why);
}
[[noreturn]] void cannot_write(const std::string& path, const std::string& why) {
  fail("write: cannot write ", path, ": ", why);
}

// Rejects a git-lfs pointer: a clone without git-lfs has a few lines in place of each large file.
void check_no_pointer(const FileReader& file, const std::string& path) {
  constexpr std::string_view begin = "version https://git-lfs.github.com/spec/";
  constexpr uint64_t max_bytes = 1024;  // by the specification
  if (file.size() < begin.size() || file.size() > max_bytes) return;
  std::string found(begin.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(found)));
  check(found != begin, "read: ", path,
        " is a git-lfs pointer, not the file itself; fetch the file with `git lfs pull`");
}

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "it is a folder"
         : S_ISFIFO(mode) ? "it is a pipe"
         : S_ISSOCK(mode) ? "it is a socket"
                          : "it is a device";
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}
int Descriptor::close() {
  const int result = ::close(number_);
  number_ = -1;
  return result == 0 ? 0 : errno;
}

// Without O_NONBLOCK, opening a pipe would wait for a writer.
FileReader::FileReader(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (file_.number() < 0) cannot_read(path, reason(errno));
  struct stat status = {};
  if (::fstat(file_.number(), &status) != 0) cannot_read(path, reason(errno));
  if (!S_ISREG(status.st_mode)) cannot_read(path, text(kind_of(status.st_mode), "; only regular files are read"));
  size_ = static_cast<uint64_t>(status.st_size);
  check_no_pointer(*this, path);
}

// Repeats the system call get(bytes, number done) until all bytes are read or none are left.
template <class Get>
size_t FileReader::get_all(std::span<std::byte> bytes, const Get& get) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = get(bytes.subspan(done), done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot_read(path_, reason(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}
void FileReader::check_all(size_t got, std::span<std::byte> bytes) const {
  if (got < bytes.size())
    cannot_read(path_, text("it ended after ", got, " of ", bytes.size(),
                            " bytes; another program may be changing it; try again"));
}

size_t FileReader::read_up_to(std::span<std::byte> bytes) {
  return get_all(bytes, [&](std::span<std::byte> to, size_t) { return ::read(file_.number(), to.data(), to.size()); });
}
void FileReader::read(std::span<std::byte> bytes) { check_all(read_up_to(bytes), bytes); }
void FileReader::read_at(uint64_t at, std::span<std::byte> bytes) const {
  const auto get = [&](std::span<std::byte> to, size_t done) {
    return ::pread(file_.number(), to.data(), to.size(), static_cast<off_t>(at + done));
  };
  check_all(get_all(bytes, get), bytes);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot_write(path_, reason(errno));
    if (written == 0) cannot_write(path_, "the disk accepts no more bytes; free some space");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

// With O_NONBLOCK, opening a pipe without a reader fails at once.
int open_unlinked(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0666);
  if (file < 0 && errno == ELOOP)
    cannot_write(path, "it is a symbolic link, which is not followed; remove it, or choose another folder");
  return file;
}

FileAppender::FileAppender(const std::string& path) : path_(path), file_(open_unlinked(path, O_WRONLY | O_APPEND)) {
  if (file_.number() < 0) cannot_write(path, reason(errno));
  struct stat status = {};
  if (::fstat(file_.number(), &status) != 0) cannot_write(path, reason(errno));
  if (!S_ISREG(status.st_mode)) cannot_write(path, text(kind_of(status.st_mode), "; only regular files are written"));
}

void write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& write) {
  const std::string temporary = text(path, ".", ::getpid(), ".partial");
  Descriptor file(open_unlinked(temporary, O_WRONLY | O_TRUNC));
  if (file.number() < 0) cannot_write(path, reason(errno));
  try {
    FileWriter writer(file.number(), path);
    write(writer);
    if (::fsync(file.number()) != 0) cannot_write(path, reason(errno));
    if (const int error = file.close()) cannot_write(path, reason(error));
    if (std::rename(temporary.c_str(), path.c_str()) != 0) cannot_write(path, reason(errno));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(fs::path(path).parent_path().string());
}

void write_file_atomically(const std::string& path, std::string_view text) {
  write_file_atomically(path, [&](FileWriter& writer) { writer.write(text); });
}

std::string read_file(const std::string& path, uint64_t limit) {
  FileReader file(path);
  check(file.size() <= limit, "read: ", path, " has ", file.size(), " bytes, but at most ", limit,
        " are expected; check that it is the right file");
  check_memory("read: " + path, static_cast<double>(file.size()), "use a smaller file");
  std::string bytes(file.size(), '\0');
  file.read(std::as_writable_bytes(std::span(bytes)));
  if (!bytes.empty()) return bytes;
  std::string chunk(4096, '\0');  // for files that the kernel generates, as below /proc, the size is 0
  while (const size_t got = file.read_up_to(std::as_writable_bytes(std::span(chunk)))) {
    bytes.append(chunk, 0, got);
    check(bytes.size() <= std::min(limit, max_generated_bytes), "read: ", path,
          " has too many bytes; use a smaller file");
  }
  return bytes;
}

bool is_pipe(const std::string& path) {
  struct stat status = {};
  return path == "-" || (::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode));
}

std::string read_pipe(const std::string& path, uint64_t limit) {
  const bool standard = path == "-";
  const std::string named = standard ? "the standard input" : path;
  const Descriptor pipe(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (pipe.number() < 0) cannot_read(named, reason(errno));
  std::string bytes, chunk(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = ::read(pipe.number(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot_read(named, reason(errno));
    if (got == 0) return bytes;
    bytes.append(chunk, 0, static_cast<size_t>(got));
    check(bytes.size() <= limit, "read: ", named, " has more than ", limit, " bytes, the maximum; use a shorter text");
  }
}

void sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0) fail("write: cannot open the folder ", path, ": ", reason(errno));
  // Some file systems cannot sync a folder and return EINVAL. Then no better method exists.
  if (::fsync(folder.number()) != 0 && errno != EINVAL)
    fail("write: cannot sync the folder ", path, ": ", reason(errno));
}

bool file_exists(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) cannot_read(path, reason(errno));
  return false;
}

bool folder_exists(const std::string& path) {
  struct stat status = {};
  return file_exists(path) && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

void make_folders(const std::string& path) {
  std::error_code problem;
  fs::create_directories(path, problem);
  check(!problem, "write: cannot create the folder ", path, ": ", problem.message());
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail("write: cannot rename ", from, " to ", to, ": ", reason(errno));
}

std::string unused_name(const std::string& path, const std::string& end) {
  std::string name = path + end;
  for (int number = 2; path_exists(name); ++number) name = text(path, ".", number, end);
  return name;
}

// Avoids std::filesystem's iterator, which ends the program when memory runs out.
std::vector<std::string> files_in(const std::string& folder) {
  const auto close = [](DIR* open) { ::closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> open(::opendir(folder.c_str()), close);
  std::vector<std::string> all;
  while (open) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") all.push_back((fs::path(folder) / name).string());
  }
  if (errno != 0) fail("read: cannot read the folder ", folder, ": ", reason(errno));
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace orrery
