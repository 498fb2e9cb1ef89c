// Count of the multiplications and additions in matrix products and attention, which report them.
#pragma once

namespace orrery {

// Counts all threads together, because a loop's chunks may multiply for the operation that runs it.
void count_flops(double flops);
double flops_counted();

}  // namespace orrery
