# cmake -DSOURCE=... -DFOLDER=... -P cuda_toolkit.cmake: what SluiceCudaToolkit.cmake makes of toolkits, with scripts in place of nvcc.
include("${SOURCE}/cmake/SluiceCudaToolkit.cmake")

# Sets NVCC to a compiler of that release and those architectures.
function(make_nvcc release)
  set(path "${FOLDER}/nvcc-${release}")
  string(REPLACE ";" "\\n" codes "${ARGN}")
  file(WRITE "${path}" "#!/bin/sh\ncase $1 in --version) echo 'Cuda compilation tools, release ${release}, V${release}.1' ;; *) printf '${codes}\\n' ;; esac\n")
  file(CHMOD "${path}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(NVCC "${path}" PARENT_SCOPE)
endfunction()

function(expect found wanted)
  if(NOT found MATCHES "${wanted}")
    message(SEND_ERROR "'${found}' does not match '${wanted}'")
  endif()
endfunction()

# A library's strings end with a byte that is no text.
string(ASCII 1 other)
set(TORCH_C10_CUDA_LIBRARY "${FOLDER}/libc10_cuda.so")
file(WRITE "${TORCH_C10_CUDA_LIBRARY}" "${other}libc10.so${other}libcudart.so.13${other}libm.so.6${other}")

make_nvcc(13.1 sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_103 sm_120)
sluice_cuda_architectures("${NVCC}" found)
expect("${found}" "^80-real;89-real;90-real;100-real;120$")
sluice_cuda_mismatch("${NVCC}" why)
expect("${why}" "^$")

make_nvcc(12.4 sm_80 sm_86 sm_89 sm_90 sm_90a)
sluice_cuda_architectures("${NVCC}" found)
expect("${found}" "^80-real;89-real;90$")
sluice_cuda_mismatch("${NVCC}" why)
expect("${why}" "nvcc-12.4 is of CUDA 12 and libtorch of CUDA 13: install a toolkit of CUDA 13")
file(WRITE "${TORCH_C10_CUDA_LIBRARY}" "${other}libcudart-a1b2.so.12${other}")
sluice_cuda_mismatch("${NVCC}" why)
expect("${why}" "^$")
