// One step as a picture for the terminal: one row per lane, one column per slice of time. Pure.
#pragma once

#include <span>
#include <string>

#include "runtime/program/model/time_model.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// A column's letter is the lane's main work in the slice: F forward, L loss head, B backward,
// W gradients of weights of a split backward, N norm, U update, G gather, R reduce, S states and
// gradients, P parameters, A activations, X between pipeline stages, T between tensor-parallel
// ranks. A small letter fills less than half of the slice, a dot is no work. Lanes without work are
// left out. The row under the compute lane has its exchanges (TimeReport::exchanges). Rows are at
// most `width` characters.
[[nodiscard]] std::string draw_timeline(const Program& program, const TimeReport& time,
                                        int width = 80);

// The compute lanes of a pipeline's stages on one time axis, one row per stage.
struct StageRow {
  const Program* program = nullptr;
  const TimeReport* time = nullptr;
};
[[nodiscard]] std::string draw_stages(std::span<const StageRow> stages, int width = 80);

// The operation's letter in draw_timeline().
[[nodiscard]] char timeline_letter(OpKind kind);

// "1.3 s", "41 ms", "3.2 us"
[[nodiscard]] std::string step_seconds_text(double seconds);

}  // namespace sluice
