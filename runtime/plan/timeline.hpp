// One step as a picture for the terminal: a row a lane, a column a slice of time. Pure.
#pragma once

#include <span>
#include <string>

#include "runtime/program/model/time_model.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// A column's letter is what the lane does most of that time: F forward, L loss head, B backward,
// W gradients of weights of a backward in two, N norm, U update, G gather, R reduce, S states and
// gradients, P parameters, A activations, X between pipeline stages, T between tensor-parallel
// ranks; small where that is less than half of it, a dot where it is nothing. Lanes without work
// are left out. Under the compute lane: the exchanges inside its units (TimeReport::exchanges).
// Rows are at most `width` characters.
[[nodiscard]] std::string draw_timeline(const Program& program, const TimeReport& time,
                                        int width = 80);

// The compute lanes of a pipeline's stages on one axis of time, a row each.
struct StageRow {
  const Program* program = nullptr;
  const TimeReport* time = nullptr;
};
[[nodiscard]] std::string draw_stages(std::span<const StageRow> stages, int width = 80);

// What it is drawn with, above.
[[nodiscard]] char timeline_letter(OpKind kind);

// "1.3 s", "41 ms", "3.2 us"
[[nodiscard]] std::string step_seconds_text(double seconds);

}  // namespace sluice
