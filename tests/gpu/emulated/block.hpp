// A thread block of the emulated GPU. Its threads run one at a time, each until it ends or meets
// others: at a barrier of the block or at an operation of its warp.
//
// A warp runs as far as the next barrier before another warp begins, and a lane as far as the next
// operation of its warp. So an order that is neither given by a barrier nor by such an operation is
// the schedule's, which tests vary.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "tests/gpu/emulated/fibers.hpp"
#include "tests/gpu/emulated/schedule.hpp"

namespace emulated_gpu {

inline constexpr unsigned kWarpLanes = 32;

// A place in a kernel where threads meet.
struct Site {
  const char* operation = "";
  std::source_location at;
};

// threadIdx, blockIdx, blockDim and gridDim.
struct Place {
  uint3 thread{}, block{};
  dim3 block_dim, grid_dim;
};

// What each lane brought to an operation of its warp.
using LaneWords = std::array<std::uint64_t, kWarpLanes>;

class Block {
 public:
  Block(std::string kernel, dim3 grid, dim3 block, Schedule* schedule);

  // Runs `thread` as every thread. Reports a fault and returns false where threads do not meet.
  // Not reentrant: one block at a time on each thread of the host.
  bool run(uint3 index, const std::function<void()>& thread);

  // For the thread that runs.
  [[nodiscard]] const Place& place() const { return place_; }
  void meet_block(const Site& site);
  const LaneWords& meet_warp(const Site& site, std::uint64_t word);
  // Shared memory of a variable, the same for all threads; it begins as bytes of 0xFF.
  void* shared(const void* variable, std::size_t bytes);

 private:
  enum class State { kReady, kAtBarrier, kAtWarp, kEnded };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    uint3 index{};
    State state = State::kReady;
    Site site;
    std::uint64_t word = 0;
  };
  // Of shared memory. Apart, so that a sanitizer sees a step over its end.
  struct Variable {
    const void* key;
    std::unique_ptr<std::byte[]> memory;
    bool fresh;  // no thread of this block has seen it
  };

  static void run_thread(void* block);
  bool run_warps();
  bool run_warp(unsigned warp);
  void go_on(unsigned thread);
  void stop(State state, const Site& site);
  [[nodiscard]] bool lanes_meet(unsigned warp) const;
  [[nodiscard]] unsigned lanes_of(unsigned warp) const;
  [[nodiscard]] std::string text_of(unsigned thread) const;
  void fault(unsigned waiting, unsigned missing) const;

  const std::string kernel_;
  Schedule* const schedule_;
  const unsigned count_;  // of threads
  std::vector<Thread> threads_;
  std::vector<std::uint32_t> warps_, lanes_;
  const std::function<void()>* body_ = nullptr;
  Place place_;
  unsigned running_ = 0;
  LaneWords words_{};
  std::vector<Variable> variables_;
};

// The block that runs on this thread of the host. Kernels ask for it at every index, so its place
// is known when the library is loaded.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Block* running;
[[nodiscard]] inline Block& running_block() { return *running; }

}  // namespace emulated_gpu
