#include "runtime/run/op_ranges.hpp"

#include <utility>

#include "runtime/program/executor.hpp"

namespace sluice {

// By the first operation that runs on the thread. Comm and pipe may run on the executing thread,
// which has its name before.
void OpRanges::name_thread(Lane lane) {
  static thread_local bool named = false;
  if (!std::exchange(named, true)) ranges_.name_thread(std::string(name_of(lane)));
}

void OpRanges::program_begins(const std::string& name) {
  name_thread(Lane::kCompute);
  ranges_.push_once(name);
  const std::lock_guard lock(mutex_);
  under_way_.clear();  // operations of a program that failed
}

void OpRanges::wait_begins(const Op& op) { ranges_.push("wait for " + describe(op)); }

void OpRanges::begin(const Op& op, bool followed) {
  name_thread(op.lane);
  const std::string text = describe(op);
  if (followed && goes_on(op.lane)) {
    const std::uint64_t range = ranges_.start(text);
    const std::lock_guard lock(mutex_);
    under_way_[&op] = range;
  }
  ranges_.push(text);
}

void OpRanges::completed(const Op& op) {
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = under_way_.find(&op);
    if (found == under_way_.end()) return;
    range = found->second;
    under_way_.erase(found);
  }
  ranges_.end(range);
}

}  // namespace sluice
