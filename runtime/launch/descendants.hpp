// Finds and ends processes that ranks left behind. The launcher adopts orphans
// (PR_SET_CHILD_SUBREAPER), so this includes processes that left their process group. Linux; reads
// /proc.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace sluice {

// Child processes of `parent`, ended ones included.
[[nodiscard]] std::vector<pid_t> children_of(pid_t parent);

// During its lifetime orphaned descendants become children of this process. end() kills and reaps
// all children that did not exist before. The destructor restores the former state.
class OrphanKeeper {
 public:
  OrphanKeeper();
  ~OrphanKeeper();
  OrphanKeeper(const OrphanKeeper&) = delete;
  OrphanKeeper& operator=(const OrphanKeeper&) = delete;

  // REQUIRES: the ranks themselves have been reaped. Returns false if processes are left after the
  // limit.
  bool end(std::chrono::milliseconds limit);

 private:
  std::vector<pid_t> callers_own_;
  int former_ = 0;
};

}  // namespace sluice
