// What a GPU could do at the most, for the share of it that is used (MFU).
#pragma once

#include "engine/matmul/matmul.h"
#include "engine/types/device.h"
#include "engine/types/dtype.h"

namespace orrery {

namespace cuda {
struct Card;  // cuda/runtime/runtime.h
}

// Operations a second, two for each multiply-add, of products of that dtype; 0: unknown.  On the CPU always 0, as its
// clock under load is its own affair.
double peak_flops(Device device, Dtype dtype);
// Of a card; f32 by the way that products are reckoned.  0 unless its architecture is in the table of peak.cpp.
double peak_flops(const cuda::Card& card, Dtype dtype, ProductPrecision precision);

}  // namespace orrery
