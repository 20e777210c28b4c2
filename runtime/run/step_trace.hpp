// The last step as a trace for chrome://tracing and Perfetto: as it was measured, and as it was
// predicted.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/engine/exchange_timing.hpp"
#include "runtime/observe/trace_writer.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

// One slice per operation on its lane, and one where the executing thread waited: process "rank 0".
// `timings`, `exchanges` and `predicted` (may be null) are of this program; the latter in a process
// of that name, from the same beginning of the step. Throws IoError.
void write_step_trace(const std::string& path, const Program& program,
                      const std::vector<OpTiming>& timings, const TimeReport* predicted,
                      std::span<const ExchangeTiming> exchanges = {});

// The measured lanes' slices, microseconds since the step began. Each of the four wires between
// pipeline stages is a lane ("pipe activations in"); a message's slice begins where its end here
// was issued, or the one before it on its wire was over. "tensor" has the exchanges, from when they
// were started to when their results were handed over; waited_us is how long compute stood still
// for them. Pure.
[[nodiscard]] std::vector<TraceEvent> measured_events(const Program& program,
                                                      const std::vector<OpTiming>& timings,
                                                      std::span<const ExchangeTiming> exchanges);
// The predicted lanes' slices. "tensor" has the exchanges that units declare, those in a row as one
// slice, where TimeReport::exchanges places them. Pure.
[[nodiscard]] std::vector<TraceEvent> predicted_events(const Program& program,
                                                       const TimeReport& predicted);
inline constexpr int kPredictedProcess = 1;  // TraceEvent::rank of theirs

}  // namespace sluice
