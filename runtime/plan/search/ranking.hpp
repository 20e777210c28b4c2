// Order of suggestions. Pure.
#pragma once

#include <vector>

namespace sluice {

struct Suggestion;

// Returns whether any suggestion fits. If none fits, keeps the one with the fewest missing bytes.
// Else keeps at most `most` of those that fit, sorted by step time. Drops a suggestion that is
// slower than another one, has at least as many settings, and has no tier's peak that is lower by a
// tenth.
bool keep_best(std::vector<Suggestion>& suggestions, int most);

}  // namespace sluice
