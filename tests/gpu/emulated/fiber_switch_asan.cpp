#include <cstddef>

#include "tests/gpu/emulated/fiber_switch.hpp"

// From <sanitizer/common_interface_defs.h> and <sanitizer/asan_interface.h>, which Clang does not
// find where only GCC's exists.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom,
                                     std::size_t* old_size);
void __asan_unpoison_memory_region(const volatile void* begin, std::size_t size);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace emulated_gpu {

void FiberSwitch::before_enter(const void* stack, std::size_t bytes) {
  __sanitizer_start_switch_fiber(&outside_, stack, bytes);
}
void FiberSwitch::after_return() { __sanitizer_finish_switch_fiber(outside_, nullptr, nullptr); }
void FiberSwitch::after_enter() {
  __sanitizer_finish_switch_fiber(inside_, &outer_stack_, &outer_bytes_);
}
void FiberSwitch::before_return() {
  __sanitizer_start_switch_fiber(&inside_, outer_stack_, outer_bytes_);
}
void FiberSwitch::before_end(const void* stack, std::size_t bytes) {
  __asan_unpoison_memory_region(stack, bytes);
}

}  // namespace emulated_gpu
