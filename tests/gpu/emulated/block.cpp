#include "tests/gpu/emulated/block.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/gpu/null/record.hpp"

namespace emulated_gpu {
namespace {

// Fibers that no thread uses. A block whose threads never meet takes one.
std::vector<std::unique_ptr<Fiber>>& idle_fibers() {
  thread_local std::vector<std::unique_ptr<Fiber>> idle;
  return idle;
}

std::unique_ptr<Fiber> take_fiber() {
  auto& idle = idle_fibers();
  if (idle.empty()) return std::make_unique<Fiber>();
  std::unique_ptr<Fiber> fiber = std::move(idle.back());
  idle.pop_back();
  return fiber;
}

std::string text(uint3 at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) +
         ")";
}

uint3 index_of(unsigned thread, dim3 dim) {
  return {thread % dim.x, thread / dim.x % dim.y, thread / (dim.x * dim.y)};
}

bool is_same(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }
bool is_same(const Site& a, const Site& b) {
  return a.at.line() == b.at.line() && a.at.column() == b.at.column() &&
         is_same(a.operation, b.operation) && is_same(a.at.file_name(), b.at.file_name());
}

}  // namespace

constinit thread_local Block* running = nullptr;

Block::Block(std::string kernel, dim3 grid, dim3 block, Schedule* schedule)
    : kernel_(std::move(kernel)),
      schedule_(schedule),
      count_(block.x * block.y * block.z),
      threads_(count_) {
  place_.grid_dim = grid;
  place_.block_dim = block;
  for (unsigned i = 0; i < count_; ++i) threads_[i].index = index_of(i, block);
}

bool Block::run(uint3 index, const std::function<void()>& thread) {
  place_.block = index;
  body_ = &thread;
  for (Variable& each : variables_) each.fresh = true;
  for (Thread& each : threads_) each.state = State::kReady;
  Block* const before = std::exchange(running, this);
  const bool met = run_warps();
  running = before;
  return met;
}

// Every warp as far as the next barrier, until all threads have ended.
bool Block::run_warps() {
  for (;;) {
    schedule_->arrange(warps_, (count_ + kWarpLanes - 1) / kWarpLanes);
    for (const unsigned warp : warps_) {
      if (!run_warp(warp)) return false;
    }
    const auto waits = [](const Thread& each) { return each.state == State::kAtBarrier; };
    const auto waiting = std::find_if(threads_.begin(), threads_.end(), waits);
    if (waiting == threads_.end()) return true;
    const auto other = std::find_if(threads_.begin(), threads_.end(), [&](const Thread& each) {
      return !waits(each) || !is_same(each.site, waiting->site);
    });
    if (other != threads_.end()) {
      fault(static_cast<unsigned>(waiting - threads_.begin()),
            static_cast<unsigned>(other - threads_.begin()));
      return false;
    }
    for (Thread& each : threads_) each.state = State::kReady;
  }
}

// The lanes are all ready or have ended when a round begins, and none of them is when it ends.
bool Block::run_warp(unsigned warp) {
  const unsigned lanes = lanes_of(warp), first = warp * kWarpLanes;
  for (;;) {
    schedule_->arrange(lanes_, lanes);
    for (unsigned i = 0; i < lanes; ++i) {
      if (threads_[first + lanes_[i]].state == State::kReady) go_on(first + lanes_[i]);
    }
    const auto begin = threads_.begin() + first;
    if (std::none_of(begin, begin + lanes,
                     [](const Thread& each) { return each.state == State::kAtWarp; })) {
      return true;
    }
    if (!lanes_meet(warp)) return false;
    for (unsigned i = 0; i < lanes; ++i) {
      words_[i] = threads_[first + i].word;
      threads_[first + i].state = State::kReady;
    }
  }
}

bool Block::lanes_meet(unsigned warp) const {
  const unsigned lanes = lanes_of(warp), first = warp * kWarpLanes;
  unsigned waiting = first;
  while (threads_[waiting].state != State::kAtWarp) ++waiting;
  for (unsigned i = first; i < first + kWarpLanes; ++i) {
    const bool meets = i < first + lanes && threads_[i].state == State::kAtWarp &&
                       is_same(threads_[i].site, threads_[waiting].site);
    if (!meets) {
      fault(waiting, i);
      return false;
    }
  }
  return true;
}

void Block::go_on(unsigned thread) {
  running_ = thread;
  Thread& it = threads_[thread];
  place_.thread = it.index;
  if (it.fiber == nullptr) {
    it.fiber = take_fiber();
    it.state = State::kEnded;  // unless it stops before
    it.fiber->start(&Block::run_thread, this);
  } else {
    it.state = State::kEnded;
    it.fiber->go_on();
  }
  if (it.state == State::kEnded) idle_fibers().push_back(std::move(it.fiber));
}

void Block::run_thread(void* block) { (*static_cast<Block*>(block)->body_)(); }

void Block::stop(State state, const Site& site) {
  Thread& it = threads_[running_];
  it.state = state;
  it.site = site;
  it.fiber->stop();
}

void Block::meet_block(const Site& site) { stop(State::kAtBarrier, site); }

const LaneWords& Block::meet_warp(const Site& site, std::uint64_t word) {
  threads_[running_].word = word;
  stop(State::kAtWarp, site);
  return words_;
}

void* Block::shared(const void* variable, std::size_t bytes) {
  auto it = std::find_if(variables_.begin(), variables_.end(),
                         [&](const Variable& each) { return each.key == variable; });
  if (it == variables_.end()) {
    it = variables_.insert(it, {variable, std::make_unique<std::byte[]>(bytes), true});
  }
  if (std::exchange(it->fresh, false)) std::memset(it->memory.get(), 0xFF, bytes);
  return it->memory.get();
}

unsigned Block::lanes_of(unsigned warp) const {
  return std::min(count_ - warp * kWarpLanes, kWarpLanes);
}

std::string Block::text_of(unsigned thread) const {
  if (thread >= count_) {
    return "lane " + std::to_string(thread % kWarpLanes) + ", which the last warp lacks";
  }
  const std::string name = "thread " + text(index_of(thread, place_.block_dim));
  const Thread& it = threads_[thread];
  if (it.state == State::kEnded) return name + ", which has ended";
  const std::string file = it.site.at.file_name();
  return name + " at " + it.site.operation + " (" + file.substr(file.rfind('/') + 1) + ":" +
         std::to_string(it.site.at.line()) + ")";
}

void Block::fault(unsigned waiting, unsigned missing) const {
  null_gpu::fault("kernel " + kernel_ + ", block " + text(place_.block) + ": " + text_of(waiting) +
                  " waits for " + text_of(missing));
}

}  // namespace emulated_gpu
