// A function on a stack of its own, which can stop in the middle and go on later. A fiber stays on
// the thread that made it.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>

#include "tests/gpu/emulated/fiber_switch.hpp"

namespace emulated_gpu {

class Fiber {
 public:
  using Body = void (*)(void* argument);
  Fiber();  // throws std::bad_alloc
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it ends or stops. REQUIRES: the body before has ended.
  void start(Body body, void* argument);
  // Goes on behind stop(). REQUIRES: the body has stopped.
  void go_on();
  // Called by the body: returns to the caller of start() or go_on().
  void stop();

 private:
  using Place = std::array<void*, 5>;  // what the compiler's setjmp keeps
  static void enter(unsigned high, unsigned low);
  void run_bodies();

  char* stack_ = nullptr;
  bool entered_ = false;
  ucontext_t first_{};
  Place inside_{}, outside_{};
  Body body_ = nullptr;
  void* argument_ = nullptr;
  FiberSwitch switch_;
};

}  // namespace emulated_gpu
