// Where the extents of a store lie in its files. Pure integers.
//
// An extent is cut into blocks of block_bytes; block k lies in file (first_file + k) mod files, and
// the blocks of one extent in one file are contiguous there. first_file is the file that holds
// least so far, so that many small extents spread as well as one large one. Every extent starts at
// a multiple of kAlignment; only its last block is shorter, padded to kAlignment. Each file begins
// with a header of kHeaderBytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

class ExtentPlan {
 public:
  static constexpr std::int64_t kAlignment = 4096;
  static constexpr std::int64_t kHeaderBytes = 4096;

  struct Extent {
    std::string tag, name;
    std::int64_t bytes = 0;   // as declared
    std::int64_t padded = 0;  // a multiple of kAlignment
    int first_file = 0;
    std::vector<std::int64_t> base;  // of its blocks in each file
  };
  struct Place {
    int file = 0;
    std::int64_t offset = 0;      // in the file
    std::int64_t contiguous = 0;  // bytes from there to the end of the block or of the extent
  };

  // REQUIRES: files > 0, block_bytes a positive multiple of kAlignment.
  ExtentPlan(int files, std::int64_t block_bytes);

  // Index of the new extent. Throws ConfigError for a name used twice or bytes < 1.
  int add(std::string tag, std::string name, std::int64_t bytes);

  // REQUIRES: 0 <= offset < padded size of the extent.
  [[nodiscard]] Place place(int extent, std::int64_t offset) const;
  [[nodiscard]] const Extent& extent(int index) const {
    return extents_.at(static_cast<std::size_t>(index));
  }
  [[nodiscard]] int extents() const { return static_cast<int>(extents_.size()); }
  [[nodiscard]] int files() const { return static_cast<int>(file_bytes_.size()); }
  [[nodiscard]] std::int64_t file_bytes(int file) const {  // header included
    return file_bytes_.at(static_cast<std::size_t>(file));
  }
  [[nodiscard]] std::int64_t total_bytes() const;  // all extents, padded
  // Largest first; padded bytes.
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> bytes_by_tag() const;
  // Equal for plans that put the same extents in the same places, told the same `more`.
  [[nodiscard]] std::uint64_t layout_hash(const std::string& more = {}) const;

 private:
  std::int64_t block_bytes_;
  std::vector<std::int64_t> file_bytes_;
  std::vector<Extent> extents_;
};

}  // namespace sluice
