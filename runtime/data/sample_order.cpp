#include "runtime/data/sample_order.hpp"

#include "base/error.hpp"

namespace sluice {
namespace {

constexpr unsigned kRounds = 8;  // few bits a half mix slowly, and a draw is rare: be generous

// The finaliser of splitmix64.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ value >> 30U) * 0xBF58476D1CE4E5B9U;
  value = (value ^ value >> 27U) * 0x94D049BB133111EBU;
  return value ^ value >> 31U;
}

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio

}  // namespace

SampleOrder::SampleOrder(std::int64_t samples, std::uint64_t seed)
    : samples_(samples), seed_(seed) {
  check(samples >= 0, "SampleOrder: fewer than no samples");
  while (half_bits_ < 31 && std::int64_t{1} << 2 * half_bits_ < samples) ++half_bits_;
}

std::int64_t SampleOrder::at(std::int64_t epoch, std::int64_t position) const {
  check(0 <= position && position < samples_, "SampleOrder::at outside the epoch");
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  const std::uint64_t key = mix(mix(seed_ + kGolden) + static_cast<std::uint64_t>(epoch) * kGolden);
  auto value = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (unsigned round = 0; round < kRounds; ++round) {
      const std::uint64_t next = left ^ (mix(key + (right << 8U) + round + 1) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(value);
}

std::int64_t SampleOrder::draw(std::int64_t draw) const {
  check(samples_ > 0 && draw >= 0, "SampleOrder::draw without samples");
  return at(draw / samples_, draw % samples_);
}

}  // namespace sluice
