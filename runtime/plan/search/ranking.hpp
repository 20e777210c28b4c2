// Order of suggestions. Pure.
#pragma once

#include <vector>

namespace sluice {

struct Suggestion;

// Sorts suggestions by step time and keeps at most `most`. Drops a suggestion by which the user
// gains nothing over a faster one: it has as many settings, and no tier's peak is a tenth lower.
void keep_best(std::vector<Suggestion>& suggestions, int most);

}  // namespace sluice
