// What the warp-wide instructions do, with the lane layouts of the PTX ISA.  Each function runs once per warp, in the
// thread of the last lane to arrive.  It reads other lanes' registers, so ThreadSanitizer must not look.
#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {

void shuffle(void* const* lane, unsigned mask) {
  uint64_t bits[32];
  for (unsigned i = 0; i < 32; ++i)  // from a lane outside the mask: undefined on a GPU, NaN here
    bits[i] = mask >> i & 1u ? static_cast<const Shuffle*>(lane[i])->bits : ~uint64_t{0};
  for (unsigned i = 0; i < 32; ++i)
    if (mask >> i & 1u) {
      Shuffle& mine = *static_cast<Shuffle*>(lane[i]);
      mine.bits = bits[mine.source % 32];
    }
}

void ballot(void* const* lane, unsigned mask) {
  unsigned votes = 0;
  for (unsigned i = 0; i < 32; ++i)
    if (mask >> i & 1u) votes |= static_cast<const Vote*>(lane[i])->predicate << i;
  for (unsigned i = 0; i < 32; ++i)
    if (mask >> i & 1u) static_cast<Vote*>(lane[i])->ballot = votes;
}

}  // namespace cuda_on_cpu
