#include "runtime/data/hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstdio>

namespace sluice {

struct Hasher::State {
  XXH3_state_t xxh;
};

std::uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Hasher::Hasher() : state_(new State) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;

void Hasher::add_bytes(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void Hasher::add(std::string_view field) {
  add(static_cast<std::int64_t>(field.size()));
  add_bytes(std::as_bytes(std::span(field)));
}

void Hasher::add(std::int64_t field) { add_bytes(std::as_bytes(std::span(&field, 1))); }

std::uint64_t Hasher::digest64() const { return XXH3_64bits_digest(&state_->xxh); }

std::string Hasher::digest_hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text.data();
}

}  // namespace sluice
