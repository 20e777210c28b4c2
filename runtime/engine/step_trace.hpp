// The last step as a trace for chrome://tracing and Perfetto: as it was measured, and as it was
// predicted.
#pragma once

#include <string>
#include <vector>

#include "runtime/observe/trace_writer.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/program/time_model.hpp"

namespace sluice {

// One slice per operation on its lane, and one where the executing thread waited: process "rank 0".
// `timings` and `predicted` (may be null) are of this program; the latter in a process of that
// name, from the same beginning of the step. Throws IoError.
void write_step_trace(const std::string& path, const Program& program,
                      const std::vector<OpTiming>& timings, const TimeReport* predicted);

// The predicted lanes' slices. Pure.
[[nodiscard]] std::vector<TraceEvent> predicted_events(const Program& program,
                                                       const TimeReport& predicted);
inline constexpr int kPredictedProcess = 1;  // TraceEvent::rank of theirs

}  // namespace sluice
