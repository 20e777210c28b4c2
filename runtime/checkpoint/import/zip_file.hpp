// The directory of a zip file as torch.save writes it: entries stored as they are, zip64 or not. A
// reader for these and no others: what is compressed, encrypted, split, named twice, overlapping or
// not where the directory says is refused. Pure; thread-safe.
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
  std::int64_t offset = 0;  // of its first byte, in the file
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;  // 0: the writer left it out
};

struct ZipLimits {
  std::int64_t entries = 1 << 20;
  std::int64_t name_bytes = 1024;
};

// By offset. Throws CheckpointError with `path` and byte; `file` is all of it.
[[nodiscard]] std::vector<ZipEntry> parse_zip(std::span<const std::byte> file,
                                              const std::string& path,
                                              const ZipLimits& limits = {});

// CRC-32 of zip and gzip; `before` is that of the bytes in front.
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace sluice
