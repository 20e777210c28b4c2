// The secret that the ranks of one job share: what a rank reads from the rendezvous counts only
// with a code that was made with it. docs/launch.md has the trust boundary.
//
// A launcher makes a secret for each job and gives it to its ranks in the environment, to agents on
// standard input. It is never an argument of a command and never printed.
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
// Of the environment; empty where there is none. Throws ConfigError where it is shorter than 32
// characters: 128 bits in hexadecimal.
[[nodiscard]] std::string job_secret();

// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): libtorch brings no cryptography, the kernel's
// (AF_ALG) is missing in many containers, and OpenSSL would be a dependency for this alone.
using Digest = std::array<std::uint8_t, 32>;
[[nodiscard]] Digest sha256(std::string_view message);
[[nodiscard]] Digest hmac_sha256(std::string_view key, std::string_view message);
// Takes the same time wherever the two differ.
[[nodiscard]] bool same_code(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

}  // namespace sluice
