// SentencePiece's precompiled table of character rules: a double-array trie over byte strings,
// whose values are positions in a list of strings that end with a zero.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Thread-safe. Damaged tables give wrong or no matches, never a fault.
class Charsmap {
 public:
  struct Match {
    std::size_t bytes = 0;  // 0: no rule
    std::string_view to;
  };
  // Throws IoError, naming `path`, if the sizes in the blob do not fit the blob.
  Charsmap(const std::string& path, std::string_view blob);
  // The shortest or the longest rule for a prefix of `text`.
  [[nodiscard]] Match match(std::string_view text, bool longest) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string strings_;
};

}  // namespace sluice
