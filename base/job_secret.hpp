// The secret that the ranks of one job share. A rank accepts a value from the rendezvous only with
// a code that was made with the secret. docs/launch.md has the trust boundary.
//
// A launcher makes a secret for each job. It passes the secret to ranks in the environment and to
// agents on standard input, never as an argument of a command. The secret is never printed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr char kJobSecretVariable[] = "SLUICE_JOB_SECRET";

// 256 bits of the kernel's generator, in hexadecimal. Throws Error.
[[nodiscard]] std::string make_job_secret();
// The value of kJobSecretVariable; empty if the variable is not set. Throws ConfigError if a secret
// is shorter than 32 characters (128 bits in hexadecimal).
[[nodiscard]] std::string job_secret();

// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): libtorch brings no cryptography, the kernel's
// (AF_ALG) is missing in many containers, and OpenSSL would be a dependency for this alone.
using Digest = std::array<std::uint8_t, 32>;
[[nodiscard]] Digest sha256(std::string_view message);
[[nodiscard]] Digest hmac_sha256(std::string_view key, std::string_view message);
// Comparison in constant time for codes of equal size. False if the sizes differ.
[[nodiscard]] bool same_code(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

}  // namespace sluice
