// ${NAME} and ${NAME:-default} in a value. Reads the environment; must not run while another thread
// changes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct Interpolated {
  std::string text;
  std::vector<std::string> names;     // the variables named, in order
  std::vector<std::string> problems;  // one sentence each; text is meaningless when there are any
};

// ${NAME} is the variable's value; an unset variable is a mistake. ${NAME:-default} is the default
// if the variable is unset or empty. $${ stands for ${. Any other $ is itself. A default ends at
// the first '}' and contains no further ${.
[[nodiscard]] Interpolated interpolate(std::string_view text);

// The text that interpolate() turns back into `value`.
[[nodiscard]] std::string escape_interpolation(std::string_view value);

}  // namespace sluice
