// Fault injection. A failpoint is a named place in the code. SLUICE_FAILPOINTS (or
// arm_failpoints()) arms failpoints with an action:
//
//   engine.step@3:rank=1:abort          the third time rank 1 passes engine.step, abort()
//   comm.reduce_scatter@2:rank=0:hang   sleep for ever
//   data.read@1:error                   throw sluice::Error
//   engine.loss@5:rank=1:nan            the caller poisons its value (failpoint() returns kPoison)
//   engine.step@2:delay=250             sleep 250 ms
//   engine.step@2:exit=7                _exit(7)
//   engine.step@4:kill                  raise(SIGKILL)
//
// ';' separates entries. An entry counts its passes over all threads of the process; without @N the
// action runs at every pass. The rank is that of the calling thread (thread_rank.hpp). If nothing
// is armed, a failpoint costs one relaxed atomic load. Thread-safe.
#pragma once

#include <string_view>

namespace sluice {

enum class FailpointOutcome { kNone, kPoison };

// Parses and installs; replaces what was armed. Throws ConfigError on a text that is not
// understood.
void arm_failpoints(std::string_view text);
void arm_failpoints_from_environment();

// Executes what is armed for this place.
FailpointOutcome failpoint(std::string_view name);

}  // namespace sluice
