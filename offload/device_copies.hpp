// How bytes cross between the host and the device that a rank computes on.
//
// A device may run behind its host: an operation of the compute lane is issued in its turn and over
// some time later, and so is what NCCL does. The threads beside the executing one are not like
// that: each has a stream of its own, and the host waits for it, so that "over" means over for
// whoever waits for a thread's operation, whatever it uses. The calls, and what each is there for:
//
//   mark()     on the executing thread, when an operation is handed to another thread: all that was
//              issued to the compute stream so far. after(mark), on that thread: its stream goes on
//              when the device has come there. So a copy reads what compute operations before it
//              have made, and writes to no slot, nor to memory that an allocator has given out
//              again, that one issued before it may still be using.
//   settle()   when what an operation waits for has been waited for: a wait for NCCL only holds up
//              the thread's stream (Ticket); now the host has waited as well. So a host or disk
//              operation that waited for a collective does not end before it, nor do those that
//              wait for that operation.
//   settle()   at the end of an operation that copies: what was copied is there. So the host's
//              optimizer, the disk, the compute stream and the wire find it, and memory that dies
//              after the operation is no longer in use.
//
// Compute operations that use what another thread's operation made wait for it before they are
// issued: no event is needed there. tests/runtime/program/device_order_test.cpp has the proof.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ticket.hpp"

namespace sluice {

// An address in the device's memory. Only DeviceCopies knows what to do with it.
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

// mark() on the executing thread; what acts on "the calling thread" on those that have called
// begin_thread(); the others anywhere. Each throws Error with what was done, the bytes, and the
// cause; after that the rank's engine is not to be used.
class DeviceCopies {
 public:
  // How far the compute stream had been filled. Empty: it is never behind.
  using Mark = std::shared_ptr<void>;

  virtual ~DeviceCopies() = default;
  // Of memory as its tensors have it.
  [[nodiscard]] virtual DevicePtr address(void* memory) const {
    return DevicePtr(reinterpret_cast<std::uintptr_t>(memory));
  }
  // One address space: what a DevicePtr says may be read and written in place.
  [[nodiscard]] virtual bool is_host() const { return false; }

  // Once on each thread beside the executing one, before all else there.
  virtual void begin_thread() = 0;
  [[nodiscard]] virtual Mark mark() = 0;
  // Whatever the calling thread copies, or hands to NCCL, from now on is after. Does not block.
  virtual void after(const Mark& mark) = 0;

  // On the calling thread's stream, in the order of the calls; they do not block where the host's
  // memory is registered (TierOptions::dma_pages). The memory is the copy's until it is over.
  // bytes >= 0.
  virtual void to_host(void* to, DevicePtr from, std::int64_t bytes) = 0;
  virtual void to_device(DevicePtr to, const void* from, std::int64_t bytes) = 0;
  // Of what the calling thread has begun so far. wait() blocks the host, on any thread.
  [[nodiscard]] virtual Ticket begun() = 0;
  // Blocks until all of that is over.
  virtual void settle() = 0;

  // Whether copies were begun that are not known to be over: the host's memory that they may still
  // reach must not be given back.
  [[nodiscard]] virtual bool lost() const { return false; }
};

// What one operation copies on the calling thread: after `mark`, and over when this ends, failed or
// not.
class CopyScope {
 public:
  CopyScope(DeviceCopies& copies, const DeviceCopies::Mark& mark);
  ~CopyScope();
  CopyScope(const CopyScope&) = delete;
  CopyScope& operator=(const CopyScope&) = delete;

  void finish() { copies_.settle(); }  // to hear of what failed

 private:
  DeviceCopies& copies_;
};

// Host and device are one address space: copies are made at once, by the caller.
[[nodiscard]] std::shared_ptr<DeviceCopies> make_host_copies();

}  // namespace sluice
