# libtorch by its three libraries. The wheel's own TorchConfig.cmake insists on a CUDA toolkit and on
# every NVIDIA library at link time; this needs only what a CPU run loads (libcudart and libcupti come
# in through libtorch_cpu's own run path).
find_path(TORCH_INCLUDE_DIR ATen/core/Tensor.h PATHS "${TORCH_ROOT}/include" NO_DEFAULT_PATH)
find_library(TORCH_CPU_LIBRARY torch_cpu PATHS "${TORCH_ROOT}/lib" NO_DEFAULT_PATH)
find_library(TORCH_C10_LIBRARY c10 PATHS "${TORCH_ROOT}/lib" NO_DEFAULT_PATH)
find_library(TORCH_CUDA_LIBRARY torch_cuda PATHS "${TORCH_ROOT}/lib" NO_DEFAULT_PATH)
find_library(TORCH_C10_CUDA_LIBRARY c10_cuda PATHS "${TORCH_ROOT}/lib" NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchLibs
  REQUIRED_VARS TORCH_CPU_LIBRARY TORCH_C10_LIBRARY TORCH_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "set -DTORCH_ROOT= to a libtorch 2.11 folder, or run ./sluice, which fetches one")

if(TorchLibs_FOUND AND NOT TARGET sluice_torch)
  add_library(sluice_torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(sluice_torch SYSTEM INTERFACE
    "${TORCH_INCLUDE_DIR}" "${TORCH_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_libraries(sluice_torch INTERFACE "${TORCH_CPU_LIBRARY}" "${TORCH_C10_LIBRARY}")
  # The libraries name their own dependencies by run path; the linker need not look for them.
  target_link_options(sluice_torch INTERFACE -Wl,--allow-shlib-undefined)
  if(NOT SLUICE_PACKAGE)
    target_link_options(sluice_torch INTERFACE "-Wl,-rpath,${TORCH_ROOT}/lib")
  endif()
endif()
