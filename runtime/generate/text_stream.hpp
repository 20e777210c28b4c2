// Turns bytes that arrive piece by piece into text that can be shown. An incomplete character is
// held back until it is whole. Bytes that are no UTF-8 become U+FFFD. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

class TextStream {
 public:
  // Returns the text that can be shown now: valid UTF-8, possibly empty.
  [[nodiscard]] std::string add(std::string_view bytes);
  // Returns the rest at the end: nothing, or U+FFFD for an incomplete character.
  [[nodiscard]] std::string finish();

 private:
  std::string held_;
};

}  // namespace sluice
