// Processes that ranks left behind. The launcher adopts orphans (PR_SET_CHILD_SUBREAPER), so that
// even one that left its process group is found and ended. Linux; reads /proc.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace sluice {

// The processes whose parent this is, ended ones included.
[[nodiscard]] std::vector<pid_t> children_of(pid_t parent);

// While it lives, orphaned descendants become children of this process; end() kills and reaps those
// that are not the caller's own from before. The destructor restores the former state.
class OrphanKeeper {
 public:
  OrphanKeeper();
  ~OrphanKeeper();
  OrphanKeeper(const OrphanKeeper&) = delete;
  OrphanKeeper& operator=(const OrphanKeeper&) = delete;

  // REQUIRES: the ranks themselves have been reaped. False where some are left after the limit.
  bool end(std::chrono::milliseconds limit);

 private:
  std::vector<pid_t> callers_own_;
  int former_ = 0;
};

}  // namespace sluice
