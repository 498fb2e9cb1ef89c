// The kernels of attention, compiled for AVX2 and FMA by the build.
#include "engine/attention/backward.h"
#include "engine/attention/forward.h"
#include "engine/attention/statistics.h"

namespace orrery::detail::attention {

constinit const InstructionSet avx2 = {"avx2",
                                       {forward<float>, statistics<float>, backward<float>},
                                       {forward<double>, statistics<double>, backward<double>}};

}  // namespace orrery::detail::attention
