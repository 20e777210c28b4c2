// Order of suggestions. Pure.
#pragma once

#include <vector>

namespace sluice {

struct Suggestion;

// Sorts suggestions by step time and keeps at most `most`. Drops a suggestion that is
// slower than another one, has at least as many settings, and has no tier's peak that is lower by a
// tenth.
void keep_best(std::vector<Suggestion>& suggestions, int most);

}  // namespace sluice
