// A line on a terminal that says that the program is at work, and since when: "planning, 12 s". It
// appears after a while, is rewritten each second and is gone at the end. Where the descriptor is
// no terminal nothing is written. A thread of its own writes, so that the work needs no calls; the
// work writes nothing to the terminal meanwhile.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace sluice {

class ProgressLine {
 public:
  explicit ProgressLine(int fd, std::string work,
                        std::chrono::milliseconds after = std::chrono::seconds(1));
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void run(std::chrono::milliseconds after);

  const int fd_;
  const std::string work_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace sluice
