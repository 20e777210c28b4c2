// The directory of a zip file as torch.save writes it: uncompressed entries, with or without zip64.
// Every other zip is refused: compressed, encrypted, split, with duplicate names, overlapping
// entries, or entries at another offset than in the directory. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/checkpoint_error.hpp"

namespace sluice {

struct ZipEntry {
  std::string name;
  std::int64_t offset = 0;  // of the first byte in the file
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;  // 0: the writer gave no checksum
};

struct ZipLimits {
  std::int64_t entries = 1 << 20;
  std::int64_t name_bytes = 1024;
};

// Returns the entries ordered by offset. `file`: the whole file. Throws CheckpointError with `path`
// and byte.
[[nodiscard]] std::vector<ZipEntry> parse_zip(std::span<const std::byte> file,
                                              const std::string& path,
                                              const ZipLimits& limits = {});

// CRC-32 of zip and gzip. `before`: the CRC of the preceding bytes.
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace sluice
