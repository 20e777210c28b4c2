// The log of one rank: messages of log_info and its siblings (base/log.hpp) as lines
//
//   13:04:05.123 info    resumed from step 120
//   13:04:05.123 warning [rank 3] host memory is nearly full
//
// Information goes to standard output, warnings and errors to standard error. The launcher carries
// both to rank-N.log and, for rank 0, to the terminal. Each line is flushed. Thread-safe after
// construction; build and destroy it while no other thread logs.
#pragma once

#include <functional>
#include <string_view>

#include "base/log.hpp"

namespace sluice {

class StatusLine;

struct RunLogOptions {
  int rank = 0;  // global; named in the line unless 0. A thread's own (thread_rank.hpp) goes before
  StatusLine* status = nullptr;  // of the terminal that standard output is; borrowed
  // Also gets each line that the log prints. Must not log.
  std::function<void(LogLevel, std::string_view)> also = {};
};

// Installs the sink; the destructor restores standard error.
class RunLog {
 public:
  explicit RunLog(const RunLogOptions& options);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
};

}  // namespace sluice
