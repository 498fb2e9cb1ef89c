// The number of threads that the environment gives.
#pragma once

namespace orrery::program {

// Applies OMP_NUM_THREADS, the default of --threads: a number, or a list such as 4,2, of which the
// first number counts. Warns about any other value and ignores it.
void apply_omp_num_threads();

}  // namespace orrery::program
