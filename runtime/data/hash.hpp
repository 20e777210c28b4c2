// xxHash over bytes, for keys and checksums of caches. Not secure against an attacker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

[[nodiscard]] std::uint64_t hash64(std::span<const std::byte> bytes);

struct Hash128 {
  std::uint64_t high = 0, low = 0;
};
[[nodiscard]] Hash128 hash128(std::span<const std::byte> bytes);

// XXH3 with 64 and 128 bits of the same input. Each field is hashed with its length, so ("ab", "c")
// and ("a", "bc") differ. Not thread-safe.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add_bytes(std::span<const std::byte> bytes);  // without a length
  void add(std::string_view field);
  void add(std::int64_t field);
  [[nodiscard]] std::uint64_t digest64() const;
  [[nodiscard]] std::string digest_hex() const;  // 32 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice
