// The last step as a trace for chrome://tracing and Perfetto: measured and predicted.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/engine/exchange_timing.hpp"
#include "runtime/observe/trace_writer.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

// Process "rank 0" has one slice per operation on its lane, and one per wait of the executing
// thread. Process "predicted" begins at the same step begin. `timings`, `exchanges` and `predicted`
// (may be null) are of this program. Throws IoError.
void write_step_trace(const std::string& path, const Program& program,
                      const std::vector<OpTiming>& timings, const TimeReport* predicted,
                      std::span<const ExchangeTiming> exchanges = {});

// The predicted process alone: the plan of a step, for `sluice report`. Programs of more than
// kMostPlannedOps operations are left out: their file would delay the step that writes it. Throws
// IoError.
inline constexpr std::size_t kMostPlannedOps = 20'000;
void write_plan_trace(const std::string& path, const Program& program, const TimeReport& predicted);

// Slices of the measured lanes, microseconds since the step began. Each of the four wires between
// pipeline stages is a lane ("pipe activations in"). A message's slice begins when its send or
// receive was issued, or when the message before on the wire completed. "tensor" has the exchanges,
// from their start to the delivery of their results; waited_us is compute's wait. Pure.
[[nodiscard]] std::vector<TraceEvent> measured_events(const Program& program,
                                                      const std::vector<OpTiming>& timings,
                                                      std::span<const ExchangeTiming> exchanges);
// Slices of the predicted lanes. "tensor" has the exchanges that units declare, at the times of
// TimeReport::exchanges; consecutive exchanges are one slice. Pure.
[[nodiscard]] std::vector<TraceEvent> predicted_events(const Program& program,
                                                       const TimeReport& predicted);
inline constexpr int kPredictedProcess = 1;  // TraceEvent::rank of predicted events

}  // namespace sluice
