// How many multiplications and additions were done, of products and attention: those who do them say so.
#pragma once

namespace orrery {

// Of all threads, for a loop's pieces may multiply for the operation that runs it.
void count_flops(double flops);
double flops_counted();

}  // namespace orrery
