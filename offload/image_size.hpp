// How large the records of an image are (nvme_image.hpp). Pure.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace sluice {

inline constexpr std::int64_t kImageGrainBytes = 128 * kKiB;  // as NvmeOptions::checksum_bytes
// What a run keeps beside its tensors is some KiB of text, most of them its configuration.
inline constexpr std::int64_t kImageStateBytes = 128 * kKiB;
inline constexpr std::int64_t kImageHeadBytes = 256;

// Of an image whose current places have `grains` checksums; on NVMe there are two of them, in
// memory one.
[[nodiscard]] constexpr std::int64_t image_record_bytes(std::int64_t grains) {
  constexpr std::int64_t kPage = 4096;
  return round_up(kImageHeadBytes + kImageStateBytes + 8 * grains, kPage);
}

}  // namespace sluice
