// How a GPU walks memory: map, rows and reduce with the meaning that engine/loops/loops.h gives them.  That header
// includes this one, below its Broadcast, Outputs, load, store, Terms and destination.
//
// Every split depends on the sizes alone and no number is added atomically, so the same call gives the same bits.
#pragma once

#include "cuda/loops/map.cuh"
#include "cuda/loops/reduce.cuh"
#include "cuda/loops/rows.cuh"
