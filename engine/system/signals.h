// Signals that request a program to end.
#pragma once

namespace orrery {

void set_signal(int signal, void (*handler)(int));  // SIG_IGN, SIG_DFL or a function; interrupted system calls restart

// While it lives, each signal of signals.cpp's list (SIGINT, SIGTERM, SIGHUP, SIGXCPU ...) requests
// an end. The first signal is stored; a second one ends the program at once, as without this
// object. SIGXCPU is the exception: the system repeats it every second. A signal that is already
// ignored (nohup's SIGHUP) or handled (a profiler's SIGPROF) stays so, except SIGINT and SIGTERM.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  int received() const;  // signal number; 0: none yet
};

}  // namespace orrery
