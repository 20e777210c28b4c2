// One file of the NVMe tier: header, reserved space, removal. Format: docs/formats/swap_file.md.
// Failpoints: nvme.open, nvme.open.direct (error: no O_DIRECT), nvme.fallocate (error: ENOSPC),
// nvme.header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/posix/descriptor.hpp"

namespace sluice {

inline constexpr std::uint32_t kSwapFormat = 1;
inline constexpr std::int64_t kSwapHeaderBytes = 4096;

struct SwapHeader {
  std::string run_id;
  std::string host;
  std::uint32_t pid = 0, rank = 0;
  std::uint32_t file = 0, files = 1;  // index of this file, and number of files, of the rank
  std::uint64_t layout_hash = 0;
  std::uint64_t file_bytes = 0;
  bool image = false;  // a step was committed: a run can resume from the image
};

// Writes kSwapHeaderBytes to `block`. Texts are cut to their fields (127 and 63 bytes).
void encode_header(const SwapHeader& header, std::byte* block);
// Returns nullopt if the block is not a whole header of this format.
[[nodiscard]] std::optional<SwapHeader> decode_header(const std::byte* block);

enum class SwapKind {
  kOurs,       // begins with a whole header
  kUnwritten,  // empty, or a block of zeros without data behind it: the process or the power was
               // lost before the header reached the disk
  kDamaged,    // has lost its header: begins with the magic, or with zeros and has data behind them
  kForeign,    // any other file
};
// Reads the first block of `path`. Sets `header` if it decodes. Throws IoError if the read fails.
[[nodiscard]] SwapKind inspect_swap_file(const std::string& path,
                                         std::optional<SwapHeader>* header);

// The end of the object closes the file; the file stays.
class SwapFile {
 public:
  enum class Open { kCreate, kFound };
  // kCreate: creates the file, which must not exist. kFound: opens a file of a former run. Throws
  // IoError; error_number EINVAL means that `direct` is set and the file system has no O_DIRECT.
  SwapFile(std::string path, bool direct, Open how = Open::kCreate);

  // Writes the header and reserves `bytes` in total. If the file system cannot reserve space, the
  // file gets its size without blocks and the log says so.
  void prepare(const SwapHeader& header, std::int64_t bytes);
  void write_header(const SwapHeader& header);
  // Throws IoError if the file does not begin with a whole header.
  [[nodiscard]] SwapHeader read_header() const;
  [[nodiscard]] std::int64_t bytes() const;
  void remove() noexcept;

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool direct() const { return direct_; }

 private:
  std::string path_;
  bool direct_ = false;
  Descriptor descriptor_;
};

}  // namespace sluice
