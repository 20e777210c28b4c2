# Writes the commit that a build is made from as a C++ source, and leaves the file alone where it would be the same:
#
#   cmake -DSOURCE=<checkout> -DOUT=<file.cpp> [-DGIT=<git>] -P built_commit.cmake
#
# The commit comes from git, or in an unpacked source archive from archive_commit.txt. Neither: "". A build has local
# changes where a tracked file of the folders below differs from the commit: what else changed is not in the program.
set(built base kernels offload parallel zero runtime configs cmake CMakeLists.txt CMakePresets.json)

set(commit "")
set(changed false)
set(top "")
if(GIT)
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" rev-parse --show-toplevel OUTPUT_VARIABLE top ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
get_filename_component(source "${SOURCE}" REALPATH)
if(top AND top STREQUAL source)  # and not an archive that was unpacked inside another checkout
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" rev-parse HEAD OUTPUT_VARIABLE commit ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND "${GIT}" --no-optional-locks -C "${SOURCE}" diff --quiet HEAD -- ${built}
                  RESULT_VARIABLE differs OUTPUT_QUIET ERROR_QUIET)
  if(differs EQUAL 1)
    set(changed true)
  endif()
else()
  file(STRINGS "${SOURCE}/cmake/archive_commit.txt" line LIMIT_COUNT 1)
  if(line MATCHES "^[0-9a-f]+$")
    set(commit "${line}")
  endif()
endif()
string(SUBSTRING "${commit}" 0 12 commit)
file(CONFIGURE OUTPUT "${OUT}" @ONLY CONTENT [[
#include "runtime/cli/help/version.hpp"

namespace sluice {

BuiltCommit built_commit() { return {.name = "@commit@", .changed = @changed@}; }

}  // namespace sluice
]])
