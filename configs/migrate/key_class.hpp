// What a key of another trainer's configuration becomes, and where the key stands.
#pragma once

#include <string_view>

namespace sluice::migrate {

// Every key of a source has exactly one class (README.md).
enum class KeyClass { kMapped, kChanged, kNotNeeded, kRefused, kRemoved, kIgnored };

// "mapped", "changed", "not_needed", "refused_unless_default", "removed_upstream",
// "ignored_upstream".
[[nodiscard]] std::string_view class_name(KeyClass kind);

struct Place {
  int line = 0;    // from 1; 0: the value stands in no file
  int column = 0;  // from 1; of a command line: the number of the argument, with line 0
};

}  // namespace sluice::migrate
