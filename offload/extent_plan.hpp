// The layout of a store's extents in its files. Pure integers.
//
// clang-format off
//   two files, one extent of five blocks, first_file = 0:
//     file 0   header | block 0 | block 2 | block 4
//     file 1   header | block 1 | block 3
// clang-format on
//
// An extent is cut into blocks of block_bytes. Block k lies in file (first_file + k) mod files. The
// blocks of one extent in one file are contiguous. first_file is the file that holds the fewest
// bytes so far, so many small extents spread as evenly as one large extent. Every extent starts at
// a multiple of kAlignment. Only the last block may be shorter; it is padded to kAlignment. Each
// file begins with a header of kHeaderBytes.
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
    std::vector<std::int64_t> base;  // for each file: offset of the extent's first block
  };
  struct Place {
    int file = 0;
    std::int64_t offset = 0;      // in the file
    std::int64_t contiguous = 0;  // bytes from `offset` to the end of the block or extent
  };

  // REQUIRES: files > 0, block_bytes a positive multiple of kAlignment.
  ExtentPlan(int files, std::int64_t block_bytes);

  // Returns the index of the new extent. Throws ConfigError if the name is in use or bytes < 1.
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
  // Padded bytes of each tag, largest first.
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> bytes_by_tag() const;
  // Equal for two plans with the same extents at the same offsets and the same text `more`.
  [[nodiscard]] std::uint64_t layout_hash(const std::string& more = {}) const;

 private:
  std::int64_t block_bytes_;
  std::vector<std::int64_t> file_bytes_;
  std::vector<Extent> extents_;
};

}  // namespace sluice
