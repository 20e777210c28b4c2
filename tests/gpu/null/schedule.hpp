// The schedule of a null GPU that computes: NULL_GPU_COMPUTES. Not thread-safe.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace null_gpu {

class Schedule {
 public:
  enum class Kind { kEarly, kLate, kRandom };

  // `early`, `late` or a whole number. Throws std::invalid_argument with a message.
  explicit Schedule(const std::string& text);

  [[nodiscard]] Kind kind() const { return kind_; }
  // Random: how many tasks run at this call of the host. Fewer than one on average, so that streams
  // fall behind.
  [[nodiscard]] int tasks_now();
  // Random: one of the streams.
  [[nodiscard]] const void* chosen(const std::vector<const void*>& streams);

 private:
  [[nodiscard]] std::uint64_t weight(const void* stream) const;

  Kind kind_ = Kind::kRandom;
  std::uint64_t seed_ = 0;
  std::mt19937_64 numbers_;
};

}  // namespace null_gpu
