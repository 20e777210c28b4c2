// One step as a picture for the terminal: a row a lane, a column a slice of time. Pure.
#pragma once

#include <string>

#include "runtime/program/program.hpp"
#include "runtime/program/time_model.hpp"

namespace sluice {

// A column's letter is what the lane does most of that time: F forward, L loss head, B backward,
// N norm, U update, G gather, R reduce, S states and gradients, P parameters, A activations; small
// where that is less than half of it, a dot where it is nothing. Lanes without work are left out.
// Rows are at most `width` characters.
[[nodiscard]] std::string draw_timeline(const Program& program, const TimeReport& time,
                                        int width = 80);

// What it is drawn with, above.
[[nodiscard]] char timeline_letter(OpKind kind);

// "1.3 s", "41 ms", "3.2 us"
[[nodiscard]] std::string step_seconds_text(double seconds);

}  // namespace sluice
