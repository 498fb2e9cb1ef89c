// map, rows and reduce on a GPU, as defined in engine/loops/loops.h. That header includes this one
// after its Broadcast, Outputs, load, store, Terms and destination.
//
// Splits depend on the sizes alone and no sum is atomic, so equal calls give identical bits.
#pragma once

#include "cuda/loops/map.cuh"
#include "cuda/loops/reduce.cuh"
#include "cuda/loops/rows.cuh"
#include "cuda/loops/rows_with_sums.cuh"
