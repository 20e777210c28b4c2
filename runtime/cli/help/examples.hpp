// The examples at the end of every --help. A test gives each to the parser.
#pragma once

#include <string_view>
#include <vector>

namespace sluice {

struct Example {
  std::string_view command;  // the path of the command whose help shows it: "data prepare"
  std::string_view line;     // without the program's name, as for a shell
  std::string_view note;     // what it does
};

// In the order in which help shows them.
[[nodiscard]] const std::vector<Example>& all_examples();

}  // namespace sluice
