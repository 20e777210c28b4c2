# Sets build_facts, a source, and built_commit, a file to link: what `sluice --version` knows of the build. Part of runtime/cli/CMakeLists.txt.
set(SLUICE_TORCH_VERSION "unknown")
if(EXISTS "${TORCH_ROOT}/version.py")
  file(STRINGS "${TORCH_ROOT}/version.py" line REGEX "^__version__ = ")
  string(REGEX REPLACE "^__version__ = '(.*)'.*" "\\1" SLUICE_TORCH_VERSION "${line}")
elseif(EXISTS "${TORCH_ROOT}/build-version")
  file(STRINGS "${TORCH_ROOT}/build-version" SLUICE_TORCH_VERSION LIMIT_COUNT 1)
endif()
set(SLUICE_TOOLKIT_VERSION "")
set(SLUICE_MODULE_ARCHITECTURES "")
if(SLUICE_CUDA_ENABLED)
  set(SLUICE_TOOLKIT_VERSION "${CUDAToolkit_VERSION}")
  string(REPLACE "-real" "" SLUICE_MODULE_ARCHITECTURES "${SLUICE_CUDA_ARCHITECTURES}")
  string(REPLACE ";" ", " SLUICE_MODULE_ARCHITECTURES "${SLUICE_MODULE_ARCHITECTURES}")
endif()
configure_file(help/build_facts.cpp.in build_facts.cpp @ONLY)

# The commit is asked for again after a commit or checkout (git's log of HEAD), and after anything was built anew that
# the program is made of: then a source may have changed. The file changes only if the answer does.
find_package(Git QUIET)
set(depends "${CMAKE_SOURCE_DIR}/cmake/built_commit.cmake" "${CMAKE_SOURCE_DIR}/cmake/archive_commit.txt")
if(GIT_FOUND)
  foreach(file HEAD logs/HEAD)
    execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${CMAKE_SOURCE_DIR}" rev-parse --path-format=absolute --git-path ${file}
                    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(path AND EXISTS "${path}")
      list(APPEND depends "${path}")
    endif()
  endforeach()
endif()
get_property(libraries GLOBAL PROPERTY SLUICE_LIBRARIES)
file(GLOB_RECURSE own CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp" "${CMAKE_CURRENT_SOURCE_DIR}/*.hpp")
add_custom_command(OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/built_commit.cpp"
  COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${CMAKE_SOURCE_DIR}" "-DOUT=${CMAKE_CURRENT_BINARY_DIR}/built_commit.cpp"
          "-DGIT=${GIT_EXECUTABLE}" -P "${CMAKE_SOURCE_DIR}/cmake/built_commit.cmake"
  DEPENDS ${depends} ${libraries} ${own}
  COMMENT "Asking for the commit")
# A file and no target: sources that are linked with a target whose sources are made wait for what makes them, and the
# program's own would wait for all libraries.
set(build_facts "${CMAKE_CURRENT_BINARY_DIR}/build_facts.cpp")
set(built_commit "${CMAKE_CURRENT_BINARY_DIR}/built_commit.o")
add_custom_command(OUTPUT "${built_commit}"
  COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -fPIC "-I${CMAKE_SOURCE_DIR}" -c "${CMAKE_CURRENT_BINARY_DIR}/built_commit.cpp"
          -o "${built_commit}"
  DEPENDS "${CMAKE_CURRENT_BINARY_DIR}/built_commit.cpp" "${CMAKE_CURRENT_SOURCE_DIR}/help/version.hpp"
  COMMENT "Compiling the commit")
add_custom_target(sluice_built_commit DEPENDS "${built_commit}")
