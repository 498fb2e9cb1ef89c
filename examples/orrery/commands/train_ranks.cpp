#include "examples/orrery/commands/train_ranks.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "engine/distributed/launcher.h"
#include "engine/system/parallel.h"
#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/process_io.h"

namespace orrery::program {
namespace {

constexpr double default_wait_limit = 600;

// Unless memory is exhausted, each process of the launcher fails in the same way. Rank 0 prints; a launcher ends all
// processes when the first one fails, so the others wait for that.
[[noreturn]] void fail_once(const Launch& launch) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    end_with_others(exit_code_of_current_exception());
  } catch (...) {
    if (launch.rank > 0) {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      silence_output();
    }
    end_program(exit_code_of_current_exception());
  }
}

// Divides the cores of a host among its ranks, unless OMP_NUM_THREADS decides.
void use_cores(Ranks& ranks) {
  const HostCores cores = cores_of(ranks);
  if (cores.of_rank > 0 && !std::getenv("OMP_NUM_THREADS")) set_thread_count(cores.of_rank);
  if (cores.of_ranks < cores.of_host && ranks.is_first())
    warn(text("the launcher has bound the ranks of ", ranks.hosts()[0], " to ", cores.of_ranks, " of ",
              pluralize(cores.of_host, "core"), "; for all of them, add --bind-to none"));
}

}  // namespace

int on_ranks(const std::function<int(Ranks&)>& work) {
  const Launch launch = launch_of_process();
  if (!launch.has_others()) {
    Ranks alone;
    return work(alone);
  }
  ::setenv("TERM", "dumb", 1);  // Open MPI gives each rank a terminal
  std::optional<Ranks> opened;
  try {
    opened.emplace(open_transport(launch), default_wait_limit);
  } catch (...) {
    fail_once(launch);
  }
  Ranks& ranks = *opened;
  try {
    check(ranks.is_first() || silence_output(), "ranks: cannot open /dev/null: ", std::strerror(errno));
    if (!work) throw;
    ranks.greet();
    use_cores(ranks);
    const int code = work(ranks);
    ranks.finish();
    return code;
  } catch (...) {
    int code = 1;
    if (ranks.end(ExceptionMessage().text())) {
      restore_errors();
      code = exit_code_of_current_exception();
    }
    end_program(ranks.leave(code));
  }
}

void check_one_process(const std::string& command) {
  const Launch launch = launch_of_process();
  if (!launch.has_others()) return;
  const bool has_pool = command == "sweep" || command == "study";
  fail_usage("orrery ", command, " runs in one process, not as one of ", launch.count, "; leave the launcher out",
             has_pool ? ", and start it once on each machine with the same --runs" : "");
}

void end_other_ranks() {
  if (!has_joined() && launch_of_process().has_others()) on_ranks({});
}

}  // namespace orrery::program
