// Process I/O: standard streams, signals and uncaught exceptions.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <streambuf>
#include <string_view>

namespace orrery::program {

// Writes all bytes; returns 0 or an errno.
int write_all(int descriptor, std::string_view bytes) noexcept;

// Prints the line "orrery: message" to standard error, at most 4,000 bytes. Escapes control
// characters, such as \x1b (models/formats/shown_text.h). Allocates no memory, so that it can
// report that memory is exhausted.
void print_error(std::string_view message) noexcept;

// The message for the exception that is being handled, at most 4,000 bytes. Allocates no memory.
class ExceptionMessage {
 public:
  ExceptionMessage() noexcept;
  std::string_view text() const { return {bytes_.data(), size_}; }
  void print() const noexcept;  // as print_error does

 private:
  template <class... Parts>
  void set(const Parts&... parts);
  void set_current();
  void set_out_of_memory();
  std::array<char, 4000> bytes_;
  size_t size_ = 0;
  bool keeps_lines_ = false;
};

// Prints nothing from now on. Returns false if the system cannot do that.
bool silence_output() noexcept;
// Error messages are printed again.
void restore_errors() noexcept;

// Prints a message for the exception that is being handled; returns main's exit code, 2 for a
// usage error (engine/types/usage_error.h). If only standard output's reader is gone (`| head`),
// ends the process by SIGPIPE without a message.
int exit_code_of_current_exception() noexcept;

// Checks std::cout during its lifetime: a failed write throws where the program prints,
//   cannot write to the standard output: No space left on device
// A pipe without a reader is such an error too, so that a run saves a checkpoint first.
class CheckedOutput {
 public:
  CheckedOutput();
  ~CheckedOutput();
  CheckedOutput(const CheckedOutput&) = delete;
  void finish();                       // flushes; throws if a write failed
  void finish_after_error() noexcept;  // flushes if possible

 private:
  class Buffer;
  std::unique_ptr<Buffer> to_;
  std::streambuf* before_;
};

// Ends the process in main: no exit handler and no destructor of a plug-in runs, which could change
// the code. An earlier exit, quick_exit, _exit or _Exit, such as a plug-in's, becomes an error
// message and exit code 1, so that an incomplete run never looks finished.
[[noreturn]] void end_program(int code) noexcept;
// Ends the process after an error. Others that a launcher has started wait until it has joined them; MPICH's launcher
// ends them before that only if a signal ends this process.
[[noreturn]] void end_with_others(int code) noexcept;

}  // namespace orrery::program
