// Bytes that come piece by piece, as text that can be shown at any time: a character that is not
// whole yet is held back, bytes that are no UTF-8 become U+FFFD. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

class TextStream {
 public:
  // What can be shown now: valid UTF-8, possibly empty.
  [[nodiscard]] std::string add(std::string_view bytes);
  // What is left at the end: nothing, or U+FFFD for a character that was cut off.
  [[nodiscard]] std::string finish();

 private:
  std::string held_;
};

}  // namespace sluice
