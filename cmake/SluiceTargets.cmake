# Helpers every folder's CMakeLists.txt uses.
#
#   sluice_library(NAME zero TIER 1 SOURCES a.cpp b.cpp DEPS sluice::kernels [BRIDGES c_bridge.cpp] [HOT] [BUSY]
#                  [JSON d_json.cpp] [JSON_O1 e_json.cpp] [APART f.cpp] [PRECOMPILE <ATen/ops/empty.h>])
#   sluice_test(NAME zero TIER 1 SOURCES a_test.cpp DEPS sluice::zero [LABELS cpu multi] [SERIAL] [FIRST]
#               [BUSY] [APART] [JSON])
#
# TIER says how much of libtorch a source may see (STYLE: the torch fence):
#   0  none at all;
#   1  ATen/core/Tensor.h and single ATen/ops headers: the two fence macros make wider ones an error;
#   2  everything. In a library only the sources named BRIDGES are tier 2.
# PRECOMPILE: headers that most of a tier 1 library's sources include beside ATen/core/Tensor.h.
# FIRST: among the longest; ctest -j starts it before others, so that it is not alone at the end.
# JSON: sources, or a whole test, that compile the JSON library's templates and whose run time does not count: -O0, with
# a precompiled header of that library. JSON_O1: the same for sources whose run time counts.
# APART: the test's sources have file-local names in common, so SLUICE_UNITY_TESTS does not join them. In a library,
# the sources of which a file-local name is also another source's: SLUICE_UNITY compiles each of them alone.

add_library(sluice_flags INTERFACE)
target_compile_options(sluice_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wsign-conversion>
  # The warnings that count are those of a source that is compiled alone.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:SLUICE_JOINED>>>>:-Werror>)
target_include_directories(sluice_flags INTERFACE "${CMAKE_SOURCE_DIR}")
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all
                                                -fno-omit-frame-pointer -g1
                         $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)  # as sluice_cold
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

# Precompiled headers, with g++: one for all targets that are compiled alike, made in a target of its own, which has
# to be of their type: g++ takes none that was made with other -O or -fPIC, and reads the headers then.
option(SLUICE_PCH "Precompile the headers that most sources of a tier include (g++)" ON)
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/precompiled.cpp" CONTENT "int main() {}\n")

# _sluice_precompile(TARGET KIND LIBRARY|EXECUTABLE TIER HEADERS <a.h> LIKE what the targets' flags come from)
function(_sluice_precompile target kind type tier)
  cmake_parse_arguments(P "" "" "HEADERS;LIKE" ${ARGN})
  if(NOT SLUICE_PCH OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  set(owner sluice_precompiled_${kind})
  if(NOT TARGET ${owner})
    if(type STREQUAL "LIBRARY")
      add_library(${owner} OBJECT EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/precompiled.cpp")
    else()
      add_executable(${owner} EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/precompiled.cpp")
    endif()
    target_link_libraries(${owner} PRIVATE ${P_LIKE})
    target_compile_options(${owner} PRIVATE -fpch-preprocess)
    _sluice_apply_tier(${owner} ${tier})
    target_precompile_headers(${owner} PRIVATE ${P_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  set_target_properties(${target} PROPERTIES SLUICE_PRECOMPILED ON)
  # -fpch-preprocess is for ccache, which looks at what a precompiled header was made of.
  # g++ 12 forgets that what a precompiled header brings is the system's, and warns of std::string's own code.
  target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-error=invalid-pch -Wno-error=array-bounds)
endfunction()

add_library(sluice_quick INTERFACE)
target_compile_options(sluice_quick INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O0>)

function(_sluice_apply_tier target tier)
  if(tier GREATER 0)
    target_link_libraries(${target} PUBLIC sluice_torch)
    if(tier EQUAL 1)
      target_compile_definitions(${target} PRIVATE AT_PER_OPERATOR_HEADERS
                                                   TORCH_ASSERT_ONLY_METHOD_OPERATORS)
    endif()
  endif()
endfunction()

# _sluice_join(TARGET): under SLUICE_UNITY the target's sources are compiled several at a time. A source with compile
# options or definitions of its own is compiled alone.
function(_sluice_join target)
  if(SLUICE_UNITY)
    set_target_properties(${target} PROPERTIES SLUICE_JOINED ON UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    # A class of one source may hold a file-local type: nobody else sees the class.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
    # g++ would inline less than in a small unit: tokenising took 5 % longer, and takes 28 % less with this.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=large-unit-insns=1000000>)
  endif()
endfunction()

# sluice_json_sources(TARGET TIER 0|1 [O1] SOURCES a.cpp... DEPS what the sources see)
function(sluice_json_sources target)
  cmake_parse_arguments(J "O1" "TIER" "SOURCES;DEPS" ${ARGN})
  set(kind json)
  set(like sluice_flags sluice_quick)
  if(J_O1)
    set(kind json_o1)
    set(like sluice_flags sluice_cold sluice_unoptimised)
  endif()
  find_package(nlohmann_json REQUIRED)
  add_library(${target}_${kind} OBJECT ${J_SOURCES})
  target_link_libraries(${target}_${kind} PRIVATE ${like} ${J_DEPS} nlohmann_json::nlohmann_json)
  _sluice_apply_tier(${target}_${kind} ${J_TIER})
  _sluice_join(${target}_${kind})
  _sluice_precompile(${target}_${kind} ${kind} LIBRARY 0 HEADERS <nlohmann/json.hpp>
                     LIKE ${like} nlohmann_json::nlohmann_json)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${kind}>)
endfunction()

function(sluice_library)
  cmake_parse_arguments(L "HOT;BUSY" "NAME;TIER" "SOURCES;BRIDGES;JSON;JSON_O1;APART;DEPS;PRIVATE_DEPS;PRECOMPILE" ${ARGN})
  if(L_TIER GREATER 0 AND NOT SLUICE_TORCH)
    return()
  endif()
  set_source_files_properties(${L_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
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
  _sluice_join(sluice_${L_NAME})
  set_property(GLOBAL APPEND PROPERTY SLUICE_LIBRARIES sluice_${L_NAME})
  _sluice_apply_tier(sluice_${L_NAME} ${L_TIER})
  if(L_TIER EQUAL 1)
    set(kind tensor)
    if(L_PRECOMPILE)
      set(kind ${L_NAME})
    endif()
    _sluice_precompile(sluice_${L_NAME} ${kind} LIBRARY 1 HEADERS <ATen/core/Tensor.h> ${L_PRECOMPILE}
                       LIKE sluice_flags ${optimisation})
  endif()
  if(L_BRIDGES)
    add_library(sluice_${L_NAME}_bridges OBJECT ${L_BRIDGES})
    target_link_libraries(sluice_${L_NAME}_bridges PRIVATE sluice_flags ${optimisation} ${L_DEPS}
                                                           ${L_PRIVATE_DEPS})
    _sluice_apply_tier(sluice_${L_NAME}_bridges 2)
    _sluice_join(sluice_${L_NAME}_bridges)
    target_sources(sluice_${L_NAME} PRIVATE $<TARGET_OBJECTS:sluice_${L_NAME}_bridges>)
  endif()
  if(L_JSON)
    sluice_json_sources(sluice_${L_NAME} TIER ${L_TIER} SOURCES ${L_JSON} DEPS ${L_DEPS} ${L_PRIVATE_DEPS})
  endif()
  if(L_JSON_O1)
    sluice_json_sources(sluice_${L_NAME} O1 TIER ${L_TIER} SOURCES ${L_JSON_O1} DEPS ${L_DEPS} ${L_PRIVATE_DEPS})
  endif()
endfunction()

function(sluice_test)
  cmake_parse_arguments(T "SERIAL;FIRST;BUSY;APART;JSON" "NAME;TIER;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(T_TIER GREATER 0 AND NOT SLUICE_TORCH)
    return()
  endif()
  if(NOT T_LABELS)
    set(T_LABELS cpu)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 600)
  endif()
  set(target sluice_test_${T_NAME})
  add_executable(${target} ${T_SOURCES})
  set(like sluice_flags sluice_cold sluice_unoptimised GTest::gtest GTest::gmock)
  if(T_BUSY)
    list(REMOVE_ITEM like sluice_unoptimised)
  elseif(T_JSON)
    list(TRANSFORM like REPLACE "^sluice_cold$" sluice_quick)
  endif()
  if(T_JSON)
    find_package(nlohmann_json REQUIRED)
    list(APPEND like nlohmann_json::nlohmann_json)
  endif()
  target_link_libraries(${target} PRIVATE ${like} ${T_DEPS} GTest::gtest_main)
  if(SLUICE_UNITY_TESTS AND NOT T_APART)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  _sluice_apply_tier(${target} ${T_TIER})
  if(T_TIER LESS 2 AND NOT (T_BUSY AND SLUICE_SANITIZE))
    set(kind tier_${T_TIER}_test)
    set(headers <gmock/gmock.h> <gtest/gtest.h>)
    if(T_TIER EQUAL 1)
      list(APPEND headers <ATen/core/Tensor.h>)
    endif()
    if(T_JSON)
      set(kind tier_${T_TIER}_json_test)
      list(APPEND headers <nlohmann/json.hpp>)
    endif()
    _sluice_precompile(${target} ${kind} EXECUTABLE ${T_TIER} HEADERS ${headers} LIKE ${like})
  endif()
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
