// The only CUDA macro that a formula needs. A plain C++ compiler expands it to nothing.
#pragma once

#if defined(__CUDACC__)
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif
