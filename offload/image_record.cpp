#include "offload/image_record.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "offload/image_size.hpp"
#include "offload/text_field.hpp"

namespace sluice {
namespace {

constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'I', 'M'};

// The head of a record, little-endian. The state follows, then the checksums at a multiple of 8.
struct RawRecord {
  char magic[8];
  std::uint64_t hash;  // XXH3-64 of all used bytes after this field
  std::uint32_t format, rank, place, reserved;
  std::uint64_t layout_hash, sequence;
  std::int64_t step;
  std::uint64_t state_bytes, checksums;
  char id[128];
  char zero[56];
};
static_assert(sizeof(RawRecord) == kImageHeadBytes && std::is_trivially_copyable_v<RawRecord>);

constexpr std::size_t kHashed = offsetof(RawRecord, format);

std::int64_t checksums_at(std::uint64_t state_bytes) {
  return kImageHeadBytes + round_up(static_cast<std::int64_t>(state_bytes), std::int64_t{8});
}

std::uint64_t hash_of(std::span<const std::byte> used) {
  return XXH3_64bits(used.data() + kHashed, used.size() - kHashed);
}

}  // namespace

std::int64_t encode_image_record(const ImageRecord& image,
                                 std::span<const std::span<const std::uint64_t>> checksums,
                                 std::span<std::byte> record) {
  RawRecord raw{};
  std::memcpy(raw.magic, kMagic, sizeof(kMagic));
  raw.format = kImageFormat;
  raw.rank = image.rank;
  raw.place = image.place;
  raw.layout_hash = image.layout_hash;
  raw.sequence = image.sequence;
  raw.step = image.step;
  raw.state_bytes = image.state.size();
  for (const auto& part : checksums) raw.checksums += part.size();
  put_text(raw.id, image.id);
  std::int64_t at = checksums_at(raw.state_bytes);
  const std::int64_t used = at + 8 * static_cast<std::int64_t>(raw.checksums);
  check(used <= std::ssize(record), "an image's record fits into its extent");
  std::memcpy(record.data() + kImageHeadBytes, image.state.data(), image.state.size());
  const std::int64_t state_end = kImageHeadBytes + std::ssize(image.state);
  std::memset(record.data() + state_end, 0, static_cast<std::size_t>(at - state_end));
  for (const auto& part : checksums) {
    std::memcpy(record.data() + at, part.data(), part.size_bytes());
    at += static_cast<std::int64_t>(part.size_bytes());
  }
  std::memcpy(record.data(), &raw, sizeof(raw));
  raw.hash = hash_of(record.first(static_cast<std::size_t>(used)));
  std::memcpy(record.data() + offsetof(RawRecord, hash), &raw.hash, sizeof(raw.hash));
  return used;
}

std::optional<DecodedImage> decode_image_record(std::span<const std::byte> record,
                                                std::string& why) {
  why.clear();
  RawRecord raw;
  if (record.size() < sizeof(raw)) return std::nullopt;
  std::memcpy(&raw, record.data(), sizeof(raw));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&raw);
  if (std::all_of(bytes, bytes + sizeof(raw), [](unsigned char b) { return b == 0; })) {
    return std::nullopt;
  }
  why = "a record is damaged";
  if (std::memcmp(raw.magic, kMagic, sizeof(kMagic)) != 0) return std::nullopt;
  const std::uint64_t room = record.size() - sizeof(raw);
  if (raw.state_bytes > room || raw.checksums > room / 8) return std::nullopt;
  const std::int64_t at = checksums_at(raw.state_bytes);
  const std::int64_t used = at + 8 * static_cast<std::int64_t>(raw.checksums);
  if (used > std::ssize(record)) return std::nullopt;
  if (raw.hash != hash_of(record.first(static_cast<std::size_t>(used)))) return std::nullopt;
  if (raw.format != kImageFormat || raw.place > 1) {
    why = "a record is of format " + std::to_string(raw.format) + ", this program reads " +
          std::to_string(kImageFormat);
    return std::nullopt;
  }
  why.clear();
  DecodedImage result;
  result.image = {.id = get_text(raw.id),
                  .rank = raw.rank,
                  .layout_hash = raw.layout_hash,
                  .sequence = raw.sequence,
                  .step = raw.step,
                  .place = raw.place,
                  .state = {reinterpret_cast<const char*>(record.data()) + kImageHeadBytes,
                            static_cast<std::size_t>(raw.state_bytes)}};
  result.checksums.resize(raw.checksums);
  std::memcpy(result.checksums.data(), record.data() + at, 8 * raw.checksums);
  return result;
}

}  // namespace sluice
