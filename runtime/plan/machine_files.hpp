// The profiles that are built into the program.
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct MachineFile {
  std::string name;
  std::string text;
};

[[nodiscard]] const std::vector<MachineFile>& machine_files();

}  // namespace sluice
