// SLUICE_BODY marks a function that nvcc compiles for the device and the C++ compiler for the host,
// from one text. Sources of nvcc are C++17, so such functions use nothing later.
#pragma once

#ifdef __CUDACC__
#define SLUICE_BODY __device__ __forceinline__
#else
#define SLUICE_BODY inline
#endif
