// The size of an image's records (nvme_image.hpp). Pure.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace sluice {

inline constexpr std::int64_t kImageGrainBytes = 128 * kKiB;  // = NvmeOptions::checksum_bytes
// Largest state of a record. A run's state is a few KiB of text, mostly its configuration.
inline constexpr std::int64_t kImageStateBytes = 128 * kKiB;
inline constexpr std::int64_t kImageHeadBytes = 256;

// Bytes of one record of an image whose current places have `grains` grains. An image has two
// records on NVMe and one record buffer in memory.
[[nodiscard]] constexpr std::int64_t image_record_bytes(std::int64_t grains) {
  constexpr std::int64_t kPage = 4096;
  return round_up(kImageHeadBytes + kImageStateBytes + 8 * grains, kPage);
}

}  // namespace sluice
