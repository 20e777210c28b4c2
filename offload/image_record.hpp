// The record that makes a rank's swap files an image, from which another process can resume.
// Format: docs/formats/swap_file.md, "Records". Pure functions over bytes; thread-safe.
//
// An image has two records, written in turn, so one record is whole while the other is being
// written. A record is whole if its checksum matches the bytes after the checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

inline constexpr std::uint32_t kImageFormat = 1;

struct ImageRecord {
  std::string id;          // id of the run that began the image; cut to 127 bytes
  std::uint32_t rank = 0;  // global
  std::uint64_t layout_hash = 0;
  std::uint64_t sequence = 0;  // rises by one with every commit; record `sequence mod 2` holds it
  std::int64_t step = 0;
  std::uint32_t place = 0;  // the current place of every pair of extents: 0 or 1
  std::string state;        // opaque bytes of the caller
};

// Fills `record` and returns the bytes used. `checksums` holds one span per pair of extents: the
// checksums of the grains of the pair's current extent. REQUIRES: `record` is large enough
// (offload/image_size.hpp).
[[nodiscard]] std::int64_t encode_image_record(
    const ImageRecord& image, std::span<const std::span<const std::uint64_t>> checksums,
    std::span<std::byte> record);

struct DecodedImage {
  ImageRecord image;
  std::vector<std::uint64_t> checksums;
};
// Returns nullopt if the record is not whole. `why` then names the defect; it is empty if the
// record was never written.
[[nodiscard]] std::optional<DecodedImage> decode_image_record(std::span<const std::byte> record,
                                                              std::string& why);

}  // namespace sluice
