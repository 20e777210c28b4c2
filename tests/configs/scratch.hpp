// A folder that is the working directory for its lifetime, so that messages contain short names.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sluice::testing {

class Scratch {
 public:
  Scratch() : before_(std::filesystem::current_path()) {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-configs-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    folder_ = name;
    std::filesystem::current_path(folder_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  static void write(const std::string& name, std::string_view text) {
    const std::filesystem::path path(name);
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
    std::filesystem::remove(
        path);  // file systems flush a file that is cut to nothing and rewritten
    std::ofstream(path, std::ios::binary) << text;
  }

 private:
  std::filesystem::path before_;
  std::filesystem::path folder_;
};

}  // namespace sluice::testing
