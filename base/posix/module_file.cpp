#include "base/posix/module_file.hpp"

#include <cstdlib>
#include <system_error>

namespace sluice {

std::filesystem::path module_file(const char* setting, const std::string& name,
                                  const std::filesystem::path& build_folder) {
  if (const char* path = std::getenv(setting); path != nullptr && *path != '\0') return path;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::filesystem::path beside = program.parent_path() / name;
  if (std::filesystem::is_regular_file(beside, error)) return beside;
  if (build_folder.empty()) return beside;
  std::filesystem::path built = build_folder / name;
  return std::filesystem::is_regular_file(built, error) ? built : beside;
}

}  // namespace sluice
