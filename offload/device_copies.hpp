// Copies between the host and the device of a rank, and the order that these copies keep.
//
// A device runs asynchronously to its host. The executing thread issues an operation of the compute
// lane; the device completes the operation later. NCCL operations behave the same way. Every other
// thread has a stream of its own, and the host waits for that stream. An operation of such a thread
// therefore has completed on the device once the host has seen it complete.
//
// clang-format off
//   call         thread       when                        effect
//   mark()       executing    before another thread       the mark names all work issued to the
//                             gets an operation           compute stream so far
//   after(mark)  the other    when the operation starts   the thread's stream waits for the mark
//   settle()     the other    after the operation's       the host waits for collectives too (an
//                             waits                       NCCL Ticket only blocks the stream)
//   settle()     the other    after the operation's       the host waits for the copies
//                             copies
// clang-format on
//
// What follows from these calls:
//   - A copy reads the results of all compute operations before it. A copy never overwrites a slot,
//     or memory that an allocator has reused, while an earlier compute operation uses it.
//   - A host or disk operation that waits for a collective completes after the collective. So does
//     every operation that waits for that host or disk operation.
//   - When a copying operation has completed, the host's optimizer, the disk, the compute stream
//     and the network see the copied bytes. Memory that dies after the operation is not in use.
//
// A compute operation that uses the result of another thread's operation is issued only after that
// operation has completed, so no event is needed. tests/runtime/program/device_order_test.cpp
// proves the order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ticket.hpp"

namespace sluice {

// An address in device memory, not a pointer that may be dereferenced. Device memory is accessed
// only through DeviceCopies.
class DevicePtr {
 public:
  DevicePtr() = default;
  explicit DevicePtr(std::uintptr_t address) : address_(address) {}
  [[nodiscard]] std::uintptr_t address() const { return address_; }
  [[nodiscard]] DevicePtr operator+(std::int64_t bytes) const {
    return DevicePtr(address_ + static_cast<std::uintptr_t>(bytes));
  }

 private:
  std::uintptr_t address_ = 0;
};

// Threads: the executing thread calls mark(). Functions that act on "the calling thread" require
// begin_thread() on that thread first. Any thread may call the others.
// Errors: every function throws Error with the action, the bytes and the cause. After an error the
// rank's engine must not be used.
class DeviceCopies {
 public:
  // A position in the compute stream. Empty: the device is never behind the host.
  using Mark = std::shared_ptr<void>;

  virtual ~DeviceCopies() = default;
  // The device address of a tensor's data pointer.
  [[nodiscard]] virtual DevicePtr address(void* memory) const {
    return DevicePtr(reinterpret_cast<std::uintptr_t>(memory));
  }
  // True where host and device share one address space: the host may dereference device addresses.
  [[nodiscard]] virtual bool is_host() const { return false; }

  // Every thread but the executing one calls this once, before all other calls on that thread.
  virtual void begin_thread() = 0;
  [[nodiscard]] virtual Mark mark() = 0;
  // Later copies and NCCL calls of the calling thread run after `mark`. Does not block.
  virtual void after(const Mark& mark) = 0;

  // Copies on the calling thread's stream, in call order. Copies to and from registered host memory
  // (TierOptions::dma_pages) do not block. Both ranges must stay valid and unchanged until the copy
  // has completed. REQUIRES: bytes >= 0.
  virtual void to_host(void* to, DevicePtr from, std::int64_t bytes) = 0;
  virtual void to_device(DevicePtr to, const void* from, std::int64_t bytes) = 0;
  // Copies `elems` fp32 values as bf16, rounded to nearest even; the rules of to_host(). A device
  // with memory of its own rounds in place before the copy: `from` then holds no fp32 values.
  virtual void to_host_bf16(void* to, DevicePtr from, std::int64_t elems) = 0;
  // A Ticket for all copies that the calling thread has begun. Any thread may wait; the wait blocks
  // the host.
  [[nodiscard]] virtual Ticket begun() = 0;
  // Blocks until all copies and collectives on the calling thread's stream have completed.
  virtual void settle() = 0;

  // True after an error where copies may still be in flight. Host memory that such copies may reach
  // must not be freed.
  [[nodiscard]] virtual bool lost() const { return false; }
};

// Brackets the copies of one operation on the calling thread. The copies start after `mark`; the
// destructor waits for them, after an error as well.
class CopyScope {
 public:
  CopyScope(DeviceCopies& copies, const DeviceCopies::Mark& mark);
  ~CopyScope();
  CopyScope(const CopyScope&) = delete;
  CopyScope& operator=(const CopyScope&) = delete;

  void finish() { copies_.settle(); }  // waits and throws errors; the destructor cannot throw

 private:
  DeviceCopies& copies_;
};

// For a device that shares the host's address space. Each copy is a memcpy on the calling thread.
[[nodiscard]] std::shared_ptr<DeviceCopies> make_host_copies();

}  // namespace sluice
