// Signals that ask a program to end.
#pragma once

namespace orrery {

void set_signal(int signal, void (*handler)(int));  // SIG_IGN, SIG_DFL, or what is called; system calls begin again

// While it lives, each signal of signals.cpp's list (SIGINT, SIGTERM, SIGHUP, SIGXCPU ...) requests
// an end: the first one is stored, a second one ends the program at once, as each does at any other
// time. SIGXCPU is the exception: the system repeats it every second. A signal that something else
// has turned off (nohup's SIGHUP) or handles (a profiler's SIGPROF) stays so, except SIGINT and
// SIGTERM.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  int received() const;  // its number; 0: none yet
};

}  // namespace orrery
