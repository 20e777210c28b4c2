# Target checkheaders: every header compiles alone, and twice in one file. One generated source for each, in
# two groups by what its folder may see: a header of a torch-free folder gets no libtorch on its include path.
# Not part of `all`.
set(check_headers_dir "${CMAKE_BINARY_DIR}/check_headers")
# -O1: at -O0 the compiler's intrinsics are macros, with warnings of their own.
set(check_headers_flags_avx2 -O1 -mavx2 -mfma -mf16c)
set(check_headers_flags_avx512 ${check_headers_flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)

file(GLOB_RECURSE own_headers RELATIVE "${CMAKE_SOURCE_DIR}"
  "${CMAKE_SOURCE_DIR}/kernels/*.hpp" "${CMAKE_SOURCE_DIR}/offload/*.hpp"
  "${CMAKE_SOURCE_DIR}/parallel/*.hpp" "${CMAKE_SOURCE_DIR}/zero/*.hpp"
  "${CMAKE_SOURCE_DIR}/runtime/*.hpp" "${CMAKE_SOURCE_DIR}/configs/*.hpp")

set(plain_sources)
set(torch_sources)
foreach(header IN LISTS own_headers)
  # cuda/ headers need the toolkit's headers and are compiled by their .cu files.
  if(header MATCHES "/cuda/")
    continue()
  endif()
  string(REPLACE "/" "__" name "${header}")
  set(source "${check_headers_dir}/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  foreach(isa avx2 avx512)
    if(header MATCHES "_${isa}\\.hpp$")
      set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "${check_headers_flags_${isa}}")
    endif()
  endforeach()
  if(header MATCHES "^(kernels|configs|offload|runtime/(data|observe|launch|program))/"
     OR header MATCHES "_(options|plan)\\.hpp$")
    if(header MATCHES "^runtime/program/executor")
      list(APPEND torch_sources "${source}")
    else()
      list(APPEND plain_sources "${source}")
    endif()
  else()
    list(APPEND torch_sources "${source}")
  endif()
endforeach()

add_custom_target(checkheaders)
function(_sluice_check_headers name tier)
  if(NOT ARGN OR (tier GREATER 0 AND NOT SLUICE_TORCH))
    return()
  endif()
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${name} PRIVATE sluice_flags)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0 -g0>)
  _sluice_apply_tier(${name} ${tier})
  add_dependencies(checkheaders ${name})
endfunction()
_sluice_check_headers(check_plain_headers 0 ${plain_sources})
_sluice_check_headers(check_torch_headers 2 ${torch_sources})
