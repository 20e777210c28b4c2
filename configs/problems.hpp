// The mistakes so far, one line each.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace sluice {

class Problems {
 public:
  // The line omits an empty key or place.
  void add(const std::string& place, const std::string& key, const std::string& what) {
    std::string line;
    if (!place.empty()) line += place + ": ";
    if (!key.empty()) line += key + ": ";
    lines_.push_back(line + what);
  }

  [[nodiscard]] bool empty() const { return lines_.empty(); }

  void throw_if_any() const {
    if (lines_.empty()) return;
    std::string text;
    for (std::size_t i = 0; i < lines_.size() && i < kMostLines; ++i) {
      text += (i == 0 ? "" : "\n") + lines_[i];
    }
    if (lines_.size() > kMostLines) {
      text += "\nand " + std::to_string(lines_.size() - kMostLines) + " more mistakes";
    }
    throw ConfigError(text);
  }

 private:
  static constexpr std::size_t kMostLines = 100;  // a file with more is no configuration

  std::vector<std::string> lines_;
};

}  // namespace sluice
