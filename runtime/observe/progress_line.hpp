// A line on a terminal that shows that the program is working: "planning, 12 s". The line appears
// after a while, is rewritten each second and disappears at the end. On another descriptor nothing
// is written. A thread of its own writes, so the work needs no calls; the work must not write to
// the terminal meanwhile.
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
