// The count of FLOPs, 2 per multiply-add, of matrix products and attention, which report them.
#pragma once

namespace orrery {

// All threads add to one count, because the chunks of one operation may run on several threads.
void count_flops(double flops);
double flops_counted();  // FLOPs since the program started

}  // namespace orrery
