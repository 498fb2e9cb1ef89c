#include "examples/orrery/terminal/process_io.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <stdexcept>
#include <system_error>

#include "engine/distributed/launcher.h"
#include "engine/system/machine_memory.h"
#include "engine/system/signals.h"
#include "engine/types/check.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/style.h"
#include "models/data/data_format.h"
#include "models/formats/shown_text.h"

extern "C" [[gnu::weak]] void __lsan_do_leak_check();  // defined in sanitizer builds; normally an exit handler calls it

namespace orrery::program {

int write_all(int descriptor, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // a non-blocking terminal, set so by another program
      pollfd ready{descriptor, POLLOUT, 0};
      if (::poll(&ready, 1, -1) < 0 && errno != EINTR) return errno;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

namespace {

class Line {  // an error message
 public:
  void add_codes(std::string_view codes) noexcept {  // of a color
    for (const char c : codes) bytes_[size_++] = c;
  }
  void add(std::string_view text, bool keeps_lines = false) noexcept {
    for (size_t at = 0; at < text.size();) {
      if (size_ + 16 > bytes_.size()) return;
      const models::ShownCharacter next = models::shown_character(text, at);
      for (const char c : keeps_lines && text[at] == '\n' ? "\n" : next.text()) bytes_[size_++] = c;
      at += next.read;
    }
  }
  std::string_view end() noexcept {
    if (size_ + 16 > bytes_.size()) bytes_[size_++] = '.', bytes_[size_++] = '.', bytes_[size_++] = '.';
    bytes_[size_++] = '\n';
    return {bytes_.data(), size_};
  }

 private:
  std::array<char, 4000> bytes_;
  size_t size_ = 0;
};

void print_line(std::string_view message, bool keeps_lines) noexcept {
  const StyleCodes codes = style_codes(Style::error, STDERR_FILENO);
  Line line;
  line.add_codes(codes.begin), line.add("orrery:"), line.add_codes(codes.end), line.add(" ");
  line.add(message, keeps_lines);
  write_all(STDERR_FILENO, line.end());
}

int output_error = 0;  // errno of a failed write; 0: none

class BrokenPipe : public Error {  // no program reads standard output any more
 public:
  using Error::Error;
};

[[noreturn]] void cannot_print(int error) {
  if (error == EPIPE) throw BrokenPipe("cannot write to the standard output: no program reads it any more");
  fail("cannot write to the standard output: ", std::generic_category().message(error));
}

}  // namespace

class CheckedOutput::Buffer final : public std::streambuf {
 public:
  Buffer() : terminal_(isatty(STDOUT_FILENO) != 0) { setp(bytes_.data(), bytes_.data() + bytes_.size()); }

 private:
  int_type overflow(int_type c) override {
    sync();
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    *pptr() = traits_type::to_char_type(c);
    pbump(1);
    if (terminal_ && traits_type::to_char_type(c) == '\n') sync();
    return c;
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::streamsize done = std::streambuf::xsputn(text, size);
    if (terminal_ && std::memchr(text, '\n', static_cast<size_t>(size))) sync();
    return done;
  }
  int sync() override {
    const std::string_view waiting(pbase(), static_cast<size_t>(pptr() - pbase()));
    setp(bytes_.data(), bytes_.data() + bytes_.size());  // does not retry a failed write
    if (const int error = write_all(STDOUT_FILENO, waiting)) output_error = error, cannot_print(error);
    return 0;
  }

  bool terminal_;
  std::array<char, 1 << 15> bytes_;
};

namespace {

void (*system_exit)(int) = nullptr;  // the C library's _exit, which the definition at the end of this file hides
// The process that runs main; 0 while constructors of libraries run, which may end the program by _exit.
const pid_t main_process = ::getpid();

[[noreturn]] void end_process(int code) {
  system_exit(code);
  __builtin_unreachable();
}

// True if this thread's last allocation failed; its exception may still propagate.
thread_local bool memory_refused = false;

[[noreturn]] void refuse_memory() {
  memory_refused = true;
  throw std::bad_alloc();
}

// Handles exceptions that cannot propagate: in destructors, threads, initializers before main.
[[noreturn]] void end_without_catch() {
  // g++ 12 hides the exception when it meets noexcept: destructors of JSON allocate memory.
  const bool hidden = !std::current_exception() && std::uncaught_exceptions() > 0 && memory_refused;
  if (!std::current_exception() && !hidden) std::abort();  // a bug in the program
  restore_errors();
  ExceptionMessage().print();
  end_with_others(1);
}

// If a standard stream is closed, the next file opened would get its number and its output.
void occupy(int descriptor, int flags) {
  if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) return;
  const int opened = ::open("/dev/null", flags);
  if (opened < 0 || opened == descriptor) return;
  ::dup2(opened, descriptor);
  ::close(opened);
}

// Handles exit by others: the program itself ends with end_program, without exit handlers.
[[noreturn]] void refuse_exit() {
  print_error(
      "a plug-in or a library called exit before the command finished, so its output is incomplete; remove that call");
  end_process(1);
}

void prepare() {
  system_exit = reinterpret_cast<void (*)(int)>(::dlsym(RTLD_NEXT, "_exit"));
  std::set_terminate(end_without_catch);
  std::atexit(refuse_exit), std::at_quick_exit(refuse_exit);
  std::set_new_handler(refuse_memory);
  for (const int signal : {SIGPIPE, SIGXFSZ}) set_signal(signal, SIG_IGN);
  occupy(STDIN_FILENO, O_WRONLY);
  occupy(STDOUT_FILENO, O_RDONLY);  // read-only: writes still fail
  occupy(STDERR_FILENO, O_RDONLY);
}
// Runs before all constructors of the program and its libraries, whose allocations may fail.
[[gnu::section(".preinit_array"), gnu::used]] void (*const prepared)() = prepare;

}  // namespace

void print_error(std::string_view message) noexcept { print_line(message, false); }

void end_program(int code) noexcept {
  std::fflush(nullptr);
  if (__lsan_do_leak_check) __lsan_do_leak_check();
  end_process(code);
}

void end_with_others(int code) noexcept {
  const Launch launch = launch_of_process();
  if (launch.by == Launch::By::mpich && launch.has_others() && !has_joined()) ::raise(SIGKILL);
  end_process(code);
}

template <class... Parts>
void ExceptionMessage::set(const Parts&... parts) {
  const auto add = [&](std::string_view part) {
    const size_t length = std::min(part.size(), bytes_.size() - size_);
    std::copy_n(part.begin(), length, bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += length;
  };
  (add(parts), ...);
}
void ExceptionMessage::set_out_of_memory() { set("out of memory; ", out_of_memory_advice()); }

ExceptionMessage::ExceptionMessage() noexcept {
  if (std::current_exception())
    set_current();
  else
    set_out_of_memory();  // see end_without_catch
}
void ExceptionMessage::set_current() {
  try {
    throw;
  } catch (const models::UnknownFormat& error) {  // a line for each format
    keeps_lines_ = true;
    set(error.what());
  } catch (const Error& error) {
    set(error.what());
  } catch (const std::bad_alloc&) {
    set_out_of_memory();
  } catch (const std::length_error&) {  // a container larger than any memory
    set_out_of_memory();
  } catch (const std::ios::failure&) {  // a write after a failed one
    set("cannot write to the standard output: ", std::strerror(output_error));
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string& path = error.path1().native();  // empty: the call reads the current folder
    set("cannot use ", path.empty() ? "the current folder" : path.c_str(), ": ", std::strerror(error.code().value()));
  } catch (const std::system_error& error) {
    set("a system call failed: ", std::strerror(error.code().value()));
  } catch (const std::exception& error) {
    if (std::strstr(error.what(), "pthread_create"))  // oneTBB's message
      set("the system cannot start another thread; raise its limits on processes or memory, as with ulimit");
    else
      set("a library failed: ", error.what());
  } catch (...) {
    set("a library failed without a message");
  }
}
void ExceptionMessage::print() const noexcept { print_line(text(), keeps_lines_); }

namespace {
int silenced_errors = -1;  // the standard error stream while it is silent
}

bool silence_output() noexcept {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  silenced_errors = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  const bool done = nowhere >= 0 && silenced_errors >= 0 && ::dup2(nowhere, STDOUT_FILENO) >= 0 &&
                    ::dup2(nowhere, STDERR_FILENO) >= 0;
  if (nowhere >= 0) ::close(nowhere);
  return done;
}
void restore_errors() noexcept {
  if (silenced_errors >= 0) ::dup2(silenced_errors, STDERR_FILENO);
}

int exit_code_of_current_exception() noexcept {
  bool silent = false;
  int code = 1;
  try {
    throw;
  } catch (const UsageError&) {
    code = 2;
  } catch (const BrokenPipe&) {
    silent = true;
  } catch (const std::ios::failure&) {  // a write after a failed one
    silent = output_error == EPIPE;
  } catch (...) {
    silent = false;
  }
  if (silent) {
    set_signal(SIGPIPE, SIG_DFL);
    ::raise(SIGPIPE);
    return 128 + SIGPIPE;  // reached if SIGPIPE is blocked
  }
  ExceptionMessage().print();
  return code;
}

CheckedOutput::CheckedOutput() : to_(std::make_unique<Buffer>()), before_(std::cout.rdbuf(to_.get())) {
  std::cout.exceptions(std::ios::badbit);  // forwards the buffer's exceptions
}
CheckedOutput::~CheckedOutput() {
  std::cout.exceptions(std::ios::goodbit);
  std::cout.rdbuf(before_);
}
void CheckedOutput::finish() {
  if (output_error != 0) cannot_print(output_error);
  std::cout.flush();
}
void CheckedOutput::finish_after_error() noexcept {
  try {
    if (std::cout.good()) std::cout.flush();
  } catch (const std::exception&) {  // the first error is reported
  }
}

}  // namespace orrery::program

// The dynamic loader takes the program's definition of a function before a library's, so that these
// two also catch the calls of plug-ins and libraries. Child processes end by them.
extern "C" {
void _exit(int code) {
  if (::getpid() == orrery::program::main_process) orrery::program::refuse_exit();
  orrery::program::end_process(code);
}
void _Exit(int code) noexcept { ::_exit(code); }
}
