// What the world outside does to the program: its standard streams, signals, and exceptions that nobody caught.
#pragma once

#include <memory>
#include <streambuf>
#include <string_view>

namespace orrery::program {

// One line on the standard error, "orrery: sentence", of at most 4,000 bytes; what a terminal could not show is shown
// as \x1b (models/formats/shown_text.h).
// Takes no memory, so that it can tell that there is none.
void complain(std::string_view sentence) noexcept;

// Complains about the exception that is being handled.
void complain_of_current_exception() noexcept;

// The exit code of main after the exception that is being handled, about which it complains. Where only the reader of
// the standard output is gone, as after `| head`, it ends this process by SIGPIPE instead, in silence.
int exit_code_of_current_exception() noexcept;

// std::cout for as long as this object lives: whatever cannot be written is an Error at the place that prints,
//   cannot write to the standard output: No space left on device
// A pipe without a reader is such an error too, so that a run is saved first.
class CheckedOutput {
 public:
  CheckedOutput();
  ~CheckedOutput();
  CheckedOutput(const CheckedOutput&) = delete;
  void finish();                       // writes what is left; an Error if anything could not be written
  void finish_after_error() noexcept;  // writes what is left if that is possible

 private:
  class Buffer;
  std::unique_ptr<Buffer> to_;
  std::streambuf* before_;
};

// The end of main: no handler of exit and no destructor of a plug-in runs then, which could end with
// another code. Every exit or quick_exit before it, such as a plug-in's, becomes an error message and
// exit code 1, so that an incomplete run never looks finished. _exit runs no handlers: nothing in the
// process can catch it.
[[noreturn]] void end_program(int code) noexcept;

}  // namespace orrery::program
