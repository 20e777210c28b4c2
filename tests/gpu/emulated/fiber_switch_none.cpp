#include "tests/gpu/emulated/fiber_switch.hpp"

namespace emulated_gpu {

void FiberSwitch::before_enter(const void*, std::size_t) {}
void FiberSwitch::after_return() {}
void FiberSwitch::after_enter() {}
void FiberSwitch::before_return() {}
void FiberSwitch::before_end(const void*, std::size_t) {}

}  // namespace emulated_gpu
