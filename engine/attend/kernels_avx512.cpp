// The kernels of attention, compiled for AVX-512 by the build.
#include "engine/attend/backward.h"
#include "engine/attend/forward.h"
#include "engine/attend/statistics.h"

namespace orrery::detail::attend {

constinit const InstructionSet avx512 = {"avx512",
                                         {forward<float>, statistics<float>, backward<float>},
                                         {forward<double>, statistics<double>, backward<double>}};

}  // namespace orrery::detail::attend
