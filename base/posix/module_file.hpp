// Finds the file of a library that the program loads when it is first needed.
#pragma once

#include <filesystem>
#include <string>

namespace sluice {

// The path in the environment variable `setting` if that is set; else the file `name` beside the
// program; else in `build_folder`, unless that is empty. If no such file exists, the path beside
// the program.
[[nodiscard]] std::filesystem::path module_file(const char* setting, const std::string& name,
                                                const std::filesystem::path& build_folder);

}  // namespace sluice
