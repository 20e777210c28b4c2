// What a sanitizer must be told when a thread changes its stack (fiber_switch_none.cpp,
// fiber_switch_asan.cpp).
#pragma once

#include <cstddef>

namespace emulated_gpu {

class FiberSwitch {
 public:
  // Around a change to the fiber's stack.
  void before_enter(const void* stack, std::size_t bytes);
  void after_return();
  // On the fiber's stack: at its first entry and after each other one, and before it is left.
  void after_enter();
  void before_return();
  // Before the memory of the stack is given back, whose body may have stopped in the middle.
  void before_end(const void* stack, std::size_t bytes);

 private:
  void* outside_ = nullptr;  // state of the thread's own stack
  void* inside_ = nullptr;   // state of the fiber's stack
  const void* outer_stack_ = nullptr;
  std::size_t outer_bytes_ = 0;
};

}  // namespace emulated_gpu
