// The only CUDA word a formula needs.  It expands to nothing when a plain C++ compiler reads the file.
#pragma once

#if defined(__CUDACC__)
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif
