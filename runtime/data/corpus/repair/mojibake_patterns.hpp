// Expressions that find mojibake in texts and in bytes.
#pragma once

#include "runtime/data/corpus/repair/pattern.hpp"

namespace sluice {

// Sequences of characters that are hardly ever meant.
[[nodiscard]] const Pattern& unlikely_characters();
// Runs of characters that are UTF-8 sequences in a Windows page or Latin-1.
[[nodiscard]] const Pattern& embedded_utf8();
// Over bytes: UTF-8 sequences in which byte A0 became a space.
[[nodiscard]] const Pattern& spaced_utf8();
// Over bytes: UTF-8 sequences in which a byte was lost, marked by 1A or '?'.
[[nodiscard]] const Pattern& lossy_utf8();
// Over bytes: byte C3 and a space that stand for the word "a" with a grave accent.
[[nodiscard]] const Pattern& a_grave_word();

}  // namespace sluice
