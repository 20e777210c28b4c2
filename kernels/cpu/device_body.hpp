// SLUICE_BODY marks a function that nvcc compiles for the device and the C++ compiler for the host,
// from one text. Sources of nvcc are C++17, so such functions use nothing later. nvcc compiles a
// function marked with SLUICE_HOST_DEVICE for both.
//
// SLUICE_DEVICE_CODE is defined where the text for the device is compiled: by nvcc, or with the
// macro on the command line by the C++ compiler for the emulated GPU (tests/gpu/emulated).
#pragma once

#ifdef __CUDACC__
#define SLUICE_DEVICE_CODE
#endif

#ifdef SLUICE_DEVICE_CODE
#define SLUICE_BODY __device__ __forceinline__
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_BODY inline
#define SLUICE_HOST_DEVICE
#endif
