// Progress of a command of `data` on standard error: "hashes: 1.2 GiB of 4.0 GiB, 52.1 MB/s,
// eta 0:00:54". A terminal rewrites the line; another output gets a line of the log every ten
// seconds. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace sluice {

// Pure; without a line break. The rate is 0 before anything is known.
[[nodiscard]] std::string format_byte_progress(const std::string& stage, std::int64_t done,
                                               std::int64_t all, double bytes_per_s);

class ByteProgress {
 public:
  ByteProgress();
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  // The first call of a stage counts the bytes that need no more work, apart from the rate.
  void update(const std::string& stage, std::int64_t done, std::int64_t all);

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_;
  std::string stage_;
  std::int64_t first_ = 0;
  Clock::time_point started_, told_;
};

}  // namespace sluice
