// The kernels of attention, compiled for AVX2 and FMA by the build.
#include "engine/attend/backward.h"
#include "engine/attend/forward.h"
#include "engine/attend/statistics.h"

namespace orrery::detail::attend {

constinit const InstructionSet avx2 = {"avx2",
                                       {forward<float>, statistics<float>, backward<float>},
                                       {forward<double>, statistics<double>, backward<double>}};

}  // namespace orrery::detail::attend
