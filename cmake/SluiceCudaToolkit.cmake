# What a CUDA toolkit can compile for this libtorch.

# Code for A100 and RTX 30, RTX 40, H100 and H200, B200, RTX 50. A driver compiles PTX only of toolkits that are not newer than itself,
# so each of these GPUs has code of its own.
set(sluice_cuda_code 80 89 90 100 120)

# Sets `out` to sluice_cuda_code as far as nvcc knows it, the last also as PTX, for GPUs to come.
function(sluice_cuda_architectures nvcc out)
  execute_process(COMMAND "${nvcc}" --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
  set(found)
  foreach(code ${sluice_cuda_code})
    if(known MATCHES "sm_${code}\n")
      list(APPEND found ${code}-real)
    endif()
  endforeach()
  string(REGEX REPLACE "-real$" "" found "${found}")
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Sets `out` to why this nvcc cannot serve libtorch, or to "". Two major versions of the CUDA runtime would be in one process.
function(sluice_cuda_mismatch nvcc out)
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)\\.[0-9]+" release "${text}")
  set(toolkit "${CMAKE_MATCH_1}")
  file(STRINGS "${TORCH_C10_CUDA_LIBRARY}" text REGEX "^libcudart[^ ]*\\.so\\.[0-9]+$")
  string(REGEX MATCH "[0-9]+$" runtime "${text}")
  set(${out} "" PARENT_SCOPE)
  if(toolkit AND runtime AND NOT toolkit EQUAL runtime)
    set(${out} "since ${nvcc} is of CUDA ${toolkit} and libtorch of CUDA ${runtime}: install a toolkit of CUDA ${runtime}" PARENT_SCOPE)
  endif()
endfunction()
