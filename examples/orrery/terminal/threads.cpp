#include "examples/orrery/terminal/threads.h"

#include <cstdlib>
#include <string>

#include "engine/settings/spec.h"
#include "engine/system/parallel.h"
#include "engine/types/check.h"
#include "examples/orrery/terminal/messages.h"

namespace orrery::program {

void apply_omp_num_threads() {
  constexpr int64_t max_threads = 1024;
  const char* const value = std::getenv("OMP_NUM_THREADS");
  const std::string given = value ? value : "";
  if (given.empty()) return;
  try {
    const int64_t threads = parse_whole_number("OMP_NUM_THREADS", given.substr(0, given.find(',')));
    check(threads >= 1 && threads <= max_threads, "OMP_NUM_THREADS is ", threads, "; it must be from 1 to ",
          max_threads);
    set_thread_count(static_cast<int>(threads));
  } catch (const Error& error) {
    warn(text(error.what(), "; OMP_NUM_THREADS=", given, " is ignored"));
  }
}

}  // namespace orrery::program
