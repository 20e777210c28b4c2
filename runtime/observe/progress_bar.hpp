// The progress line of a terminal, which is rewritten in place:
//
//    42 % ████████░░░░░░░░░░░░ 1008/2400 | eta 0:13:02 | 19.9k tok/s | loss 3.412 ↓0.021 | ...
//
// Parts that do not fit the terminal's width are left out, in this order: learning rate, gradient
// norm, share of the measured rate, step time, memory, step, trend, rate, bar, eta, loss. Without
// UTF-8 the bar is of '#' and '-' and the trend is (-0.021). Pure.
#pragma once

#include <string>

#include "runtime/observe/progress.hpp"

namespace sluice {

struct BarOptions {
  int columns = 0;  // of the terminal; 0: unknown, and the line is made for 121
  bool utf8 = false;
};

// Without a line break; at most columns - 1 columns wide, where these hold the share of the steps.
[[nodiscard]] std::string format_progress_bar(const ProgressState& state,
                                              const BarOptions& options);

// `share` of `width` columns filled.
[[nodiscard]] std::string bar_text(double share, int width, bool utf8);

// The numbers of progress lines.
[[nodiscard]] std::string number_text(const char* format, double value);
[[nodiscard]] std::string time_text(double ms);             // 3.2 ms, 412 ms, 61.2 s
[[nodiscard]] std::string short_bytes(std::int64_t bytes);  // 1.3 GiB, 412 MiB
[[nodiscard]] std::string rate_text(double per_second);     // 19.9k; "?" if it is no rate

}  // namespace sluice
