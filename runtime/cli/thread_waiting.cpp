// Starts the program once more with kSpinSetting (kernels/cpu/thread_waiting.hpp) in its
// environment, unless the user chose how OpenMP threads wait. Ranks inherit the variable, so only
// the first process of a job starts twice.
//
// The dynamic linker calls .preinit_array before the constructor of any library. So libgomp has not
// read the environment, and the second start repeats only the mapping of the libraries (some 50 ms;
// libtorch's constructors take ten times as long). No library is initialised at this point, so this
// file uses system calls alone.
#include "kernels/cpu/thread_waiting.hpp"

#include <alloca.h>
#include <elf.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstddef>

#if defined(__clang__)
#define SLUICE_BEFORE_SANITIZERS __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define SLUICE_BEFORE_SANITIZERS \
  __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif

namespace sluice {
namespace {

SLUICE_BEFORE_SANITIZERS bool sets(const char* entry, const char* name) {
  while (*name != '\0' && *entry == *name) {
    ++entry;
    ++name;
  }
  return *name == '\0' && *entry == '=';
}

SLUICE_BEFORE_SANITIZERS void bound_waiting(int /*argc*/, char** argv, char** environment) {
  // Started by naming the dynamic linker: /proc/self/exe is the linker, not this program.
  if (getauxval(AT_BASE) == 0 || getauxval(AT_SECURE) != 0) return;
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (sets(environment[count], kSpinVariable) || sets(environment[count], kWaitPolicyVariable)) {
      return;
    }
  }
  auto** entries = static_cast<const char**>(alloca((count + 2) * sizeof(char*)));
  for (std::size_t i = 0; i < count; ++i) entries[i] = environment[i];
  entries[count] = kSpinSetting;
  entries[count + 1] = nullptr;
  // Returns only after a failure (no /proc): the program then runs with libgomp's default.
  execve("/proc/self/exe", argv, const_cast<char**>(entries));
}

using AtStart = void (*)(int, char**, char**);
[[gnu::section(".preinit_array"), gnu::used]] const AtStart at_start = bound_waiting;

}  // namespace
}  // namespace sluice
