// Broken configurations, each with its complete message.
#pragma once

#include <string>
#include <vector>

namespace sluice::testing {

struct Broken {
  std::string name;
  std::string yaml;     // of c.yaml
  std::string message;  // all of it
  std::vector<std::string> sets{};
};

[[nodiscard]] const std::vector<Broken>& broken_values();

}  // namespace sluice::testing
