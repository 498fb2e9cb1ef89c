#include "engine/system/signals.h"

#include <array>
#include <csignal>

namespace orrery {

void set_signal(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

namespace {

// Signals whose default action ends a process:
//   save first: a user's (INT, TERM, HUP), a limit of CPU time (XCPU), a batch system's warning (USR1, USR2), a failing
//     power supply (PWR), timers that a parent process has left running (ALRM, VTALRM, PROF), IO and STKFLT
//   end at once: QUIT and KILL, which request that
//   ignored (process_io.cpp): PIPE and XFSZ, whose write calls return an error
//   default: ABRT, BUS, FPE, ILL, SEGV, SYS, TRAP, after which the program's state may be wrong
constexpr std::array stop_signals = {SIGINT, SIGTERM, SIGHUP,    SIGXCPU, SIGUSR1, SIGUSR2,
                                     SIGPWR, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,   SIGSTKFLT};
volatile std::sig_atomic_t received_signal = 0;

bool has_handler(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == handler;
}

void request_stop(int signal) {
  if (received_signal == 0) received_signal = signal;
  for (const int each : stop_signals) {
    const bool is_timer = each == SIGALRM || each == SIGVTALRM || each == SIGPROF;  // and may repeat
    if (has_handler(each, request_stop) && each != SIGXCPU) set_signal(each, is_timer ? SIG_IGN : SIG_DFL);
  }
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  for (const int signal : stop_signals)
    if (signal == SIGINT || signal == SIGTERM || has_handler(signal, SIG_DFL)) set_signal(signal, request_stop);
}
StopSignals::~StopSignals() {
  for (const int signal : stop_signals)
    if (has_handler(signal, request_stop)) set_signal(signal, SIG_DFL);
}
int StopSignals::received() const { return received_signal; }

}  // namespace orrery
