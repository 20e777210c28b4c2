# Helpers every folder's CMakeLists.txt uses.
#
#   sluice_library(NAME zero TIER 1 SOURCES a.cpp b.cpp DEPS sluice::kernels [BRIDGES c_bridge.cpp] [HOT] [BUSY])
#   sluice_test(NAME zero TIER 1 SOURCES a_test.cpp DEPS sluice::zero [LABELS cpu multi] [SERIAL] [FIRST]
#               [BUSY] [APART])
#
# TIER says how much of libtorch a source may see (STYLE: the torch fence):
#   0  none at all;
#   1  ATen/core/Tensor.h and single ATen/ops headers: the two fence macros make wider ones an error;
#   2  everything. In a library only the sources named BRIDGES are tier 2.
# FIRST: among the longest; ctest -j starts it before others, so that it is not alone at the end.
# APART: the test's sources have file-local names in common, so SLUICE_UNITY_TESTS does not join them.

add_library(sluice_flags INTERFACE)
target_compile_options(sluice_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wsign-conversion -Werror>)
target_include_directories(sluice_flags INTERFACE "${CMAKE_SOURCE_DIR}")
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all
                                                -fno-omit-frame-pointer -g1)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()

# Most of the code arranges work that libtorch and kernels/ do: at -O1 it compiles in two thirds of the time
# and runs as fast. HOT libraries, whose own loops count, keep the build type's optimisation.
add_library(sluice_cold INTERFACE)
target_compile_options(sluice_cold INTERFACE
  $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>
  # g++ 12 at -O1 sees uninitialised members in std::variants that are moved.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)

# A sanitizer's checks are many: at -O0 they compile in half the time of -O1, and few tests are that much longer.
# BUSY ones are, and keep the preset's optimisation.
add_library(sluice_unoptimised INTERFACE)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_unoptimised INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endif()

function(_sluice_apply_tier target tier)
  if(tier GREATER 0)
    target_link_libraries(${target} PUBLIC sluice_torch)
    if(tier EQUAL 1)
      target_compile_definitions(${target} PRIVATE AT_PER_OPERATOR_HEADERS
                                                   TORCH_ASSERT_ONLY_METHOD_OPERATORS)
    endif()
  endif()
endfunction()

function(sluice_library)
  cmake_parse_arguments(L "HOT;BUSY" "NAME;TIER" "SOURCES;BRIDGES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(L_TIER GREATER 0 AND NOT SLUICE_TORCH)
    return()
  endif()
  add_library(sluice_${L_NAME} STATIC ${L_SOURCES})
  add_library(sluice::${L_NAME} ALIAS sluice_${L_NAME})
  set(optimisation $<BUILD_INTERFACE:sluice_cold>)
  if(L_HOT)
    set(optimisation)
  elseif(NOT L_BUSY)
    list(APPEND optimisation $<BUILD_INTERFACE:sluice_unoptimised>)
  endif()
  # How this build compiles is not the business of who links an installed library.
  target_link_libraries(sluice_${L_NAME} PRIVATE $<BUILD_INTERFACE:sluice_flags> ${optimisation} ${L_PRIVATE_DEPS}
                                         PUBLIC ${L_DEPS})
  set_property(GLOBAL APPEND PROPERTY SLUICE_LIBRARIES sluice_${L_NAME})
  _sluice_apply_tier(sluice_${L_NAME} ${L_TIER})
  if(L_BRIDGES)
    add_library(sluice_${L_NAME}_bridges OBJECT ${L_BRIDGES})
    target_link_libraries(sluice_${L_NAME}_bridges PRIVATE sluice_flags ${optimisation} ${L_DEPS}
                                                           ${L_PRIVATE_DEPS})
    _sluice_apply_tier(sluice_${L_NAME}_bridges 2)
    target_sources(sluice_${L_NAME} PRIVATE $<TARGET_OBJECTS:sluice_${L_NAME}_bridges>)
  endif()
endfunction()

function(sluice_test)
  cmake_parse_arguments(T "SERIAL;FIRST;BUSY;APART" "NAME;TIER;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(T_TIER GREATER 0 AND NOT SLUICE_TORCH)
    return()
  endif()
  if(NOT T_LABELS)
    set(T_LABELS cpu)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  set(target sluice_test_${T_NAME})
  add_executable(${target} ${T_SOURCES})
  target_link_libraries(${target} PRIVATE sluice_flags sluice_cold ${T_DEPS} GTest::gtest_main GTest::gmock)
  if(NOT T_BUSY)
    target_link_libraries(${target} PRIVATE sluice_unoptimised)
  endif()
  if(SLUICE_UNITY_TESTS AND NOT T_APART)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  _sluice_apply_tier(${target} ${T_TIER})
  target_compile_definitions(${target} PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                               SLUICE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${T_NAME} COMMAND ${target})
  set_tests_properties(${T_NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
                                            SKIP_RETURN_CODE 77)
  if(T_FIRST)
    set_tests_properties(${T_NAME} PROPERTIES COST 1)
  endif()
  if(T_SERIAL)
    set_tests_properties(${T_NAME} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
