// makecontext() enters a stack for the first time. From then on the compiler's own setjmp and
// longjmp change stacks. Unlike swapcontext() they make no system call; and AddressSanitizer does
// not see them: at each longjmp() of the C library it clears its marks of a whole stack.
#include "tests/gpu/emulated/fibers.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

namespace emulated_gpu {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;  // pages exist once they are used

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

// The lowest page is no memory: a stack that grows too large ends the process.
Fiber::Fiber() {
  void* memory = ::mmap(nullptr, kStackBytes + page_bytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::mprotect(memory, page_bytes(), PROT_NONE);
  stack_ = static_cast<char*>(memory) + page_bytes();
}

Fiber::~Fiber() {
  switch_.before_end(stack_, kStackBytes);
  ::munmap(stack_ - page_bytes(), kStackBytes + page_bytes());
}

void Fiber::start(Body body, void* argument) {
  body_ = body;
  argument_ = argument;
  go_on();
}

void Fiber::go_on() {
  switch_.before_enter(stack_, kStackBytes);
  if (__builtin_setjmp(outside_.data()) == 0) {
    if (entered_) __builtin_longjmp(inside_.data(), 1);
    entered_ = true;
    ::getcontext(&first_);
    first_.uc_stack.ss_sp = stack_;
    first_.uc_stack.ss_size = kStackBytes;
    // makecontext() hands over ints.
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&first_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                  static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
    ::setcontext(&first_);
  }
  switch_.after_return();
}

void Fiber::stop() {
  switch_.before_return();
  if (__builtin_setjmp(inside_.data()) == 0) __builtin_longjmp(outside_.data(), 1);
  switch_.after_enter();
}

void Fiber::enter(unsigned high, unsigned low) {
  const std::uintptr_t self = static_cast<std::uintptr_t>(high) << 32 | low;
  reinterpret_cast<Fiber*>(self)->run_bodies();
}

void Fiber::run_bodies() {
  switch_.after_enter();
  for (;;) {
    body_(argument_);
    stop();
  }
}

}  // namespace emulated_gpu
