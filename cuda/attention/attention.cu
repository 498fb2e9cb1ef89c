#include "cuda/attention/attention.cuh"

namespace orrery::cuda {

template void attend_forward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                             const AttendInputs<float>&, Tokens<float>, float*);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                const AttendInputs<float>&, const float*, const RowStatistics<float>&);
template void attend_backward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                              const AttendInputs<float>&, Tokens<const float>, const float*, Tokens<const float>,
                              const AttendGradients<float>&, const StatisticsGradients<float>&);
template void attend_forward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                             const AttendInputs<double>&, Tokens<double>, double*);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                const AttendInputs<double>&, const double*, const RowStatistics<double>&);
template void attend_backward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                              const AttendInputs<double>&, Tokens<const double>, const double*, Tokens<const double>,
                              const AttendGradients<double>&, const StatisticsGradients<double>&);
template void attend_forward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&, const AttendInputs<bf16>&,
                             Tokens<bf16>, float*);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                const AttendInputs<bf16>&, const float*, const RowStatistics<float>&);
template void attend_backward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                              const AttendInputs<bf16>&, Tokens<const bf16>, const float*, Tokens<const bf16>,
                              const AttendGradients<bf16>&, const StatisticsGradients<float>&);

}  // namespace orrery::cuda
