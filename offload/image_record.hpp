// What makes the extents of a rank's swap files an image that another process can go on from:
// docs/formats/swap_file.md, "Records". Bytes alone; thread-safe.
//
// There are two records, written in turn, so that one is whole while the other is being written. A
// record is whole where its checksum says so: it covers everything behind it.
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
  std::string id;          // of the image: the run that began it; cut to 127 bytes
  std::uint32_t rank = 0;  // global
  std::uint64_t layout_hash = 0;
  std::uint64_t sequence = 0;  // rises by one with every commit; it lies in record sequence mod 2
  std::int64_t step = 0;
  std::uint32_t place = 0;  // of the pairs of extents: 0 the first ones are current, 1 the others
  std::string state;        // the caller's
};

// Fills `record` and gives the bytes used; `checksums`: of the current extents' grains, in order of
// their pairs. REQUIRES: room (offload/image_size.hpp).
[[nodiscard]] std::int64_t encode_image_record(
    const ImageRecord& image, std::span<const std::span<const std::uint64_t>> checksums,
    std::span<std::byte> record);

struct DecodedImage {
  ImageRecord image;
  std::vector<std::uint64_t> checksums;
};
// nullopt where the record is not whole; `why` says what is wrong with it, and is empty where
// nothing was ever written there.
[[nodiscard]] std::optional<DecodedImage> decode_image_record(std::span<const std::byte> record,
                                                              std::string& why);

}  // namespace sluice
