#include "engine/distributed/launcher.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "engine/settings/spec.h"
#include "engine/types/check.h"

namespace orrery {
namespace {

struct Mpi {
  Launch::By by;
  const char *name, *library, *package, *launcher;
  const char *count, *rank;  // environment variables
};
// Open MPI first: it may set MPICH's variables too.
constexpr Mpi known[] = {
    {Launch::By::open_mpi, "Open MPI", "liborrery_openmpi.so", "libopenmpi-dev", "mpirun.openmpi",
     "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {Launch::By::mpich, "MPICH", "liborrery_mpich.so", "libmpich-dev", "mpirun.mpich", "PMI_SIZE", "PMI_RANK"}};

bool joined = false;

const Mpi& mpi_of(Launch::By by) { return by == Launch::By::mpich ? known[1] : known[0]; }

std::string folder_of_this_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&launch_of_process), &info) == 0 || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}
std::string path_of(const Mpi& mpi) { return folder_of_this_library() + "/" + mpi.library; }
bool was_built(const Mpi& mpi) { return ::access(path_of(mpi).c_str(), R_OK) == 0; }

[[noreturn]] void fail_without_library(const Launch& launch) {
  const Mpi& needed = mpi_of(launch.by);
  std::string built;
  for (const Mpi& mpi : known)
    if (was_built(mpi)) built = text("for ", mpi.name, ": use ", mpi.launcher, ", or");
  fail("ranks: started as one of ", launch.count, " by ", needed.name, ", but this program was built ",
       built.empty() ? "without MPI: start it without " + std::string(needed.launcher) + ", or" : built, " install ",
       needed.package, " and build it again");
}

}  // namespace

Launch launch_of_process() {
  for (const Mpi& mpi : known) {
    const char *const count = std::getenv(mpi.count), *const rank = std::getenv(mpi.rank);
    if (!count || !rank) continue;
    return {mpi.by, parse_whole_number(mpi.rank, rank), parse_whole_number(mpi.count, count)};
  }
  return {};
}

bool has_joined() { return joined; }

// The library stays open: MPI cannot be unloaded.
std::unique_ptr<Transport> open_transport(const Launch& launch) {
  const Mpi& mpi = mpi_of(launch.by);
  if (!was_built(mpi)) fail_without_library(launch);
  void* const library = dlopen(path_of(mpi).c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, "ranks: cannot open ", path_of(mpi), ": ", library ? "" : dlerror());
  const auto make = reinterpret_cast<MakeTransport>(dlsym(library, make_transport_name));
  check(make != nullptr, "ranks: ", path_of(mpi), " is not of this version; build it again");
  std::unique_ptr<Transport> transport(make());
  joined = true;
  check(transport->count() == launch.count, "ranks: started as one of ", launch.count, " by ", mpi.name,
        ", but its library sees ", transport->count(), " processes; use the launcher of the same installation");
  return transport;
}

}  // namespace orrery
