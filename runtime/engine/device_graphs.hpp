// Graphs of a GPU: work that a thread enqueues, recorded once and launched as a whole.
//
// All graphs of an object share one pool of libtorch's allocator. Recorded work keeps the addresses
// it was recorded with, so the pool's memory must not be used for anything else between two
// operations of a program that are launched. Calls are made on one thread, whose current stream
// stays the same. Errors: functions throw Error with the action and the cause.
#pragma once

#include <memory>
#include <utility>

namespace sluice {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Enqueues the recorded work on the calling thread's stream. Does not wait.
  virtual void launch() = 0;
};

class DeviceGraphs {
 public:
  virtual ~DeviceGraphs() = default;
  // Between these calls the allocator takes the memory of tensors on the calling thread's stream
  // from the pool. Such a tensor's memory returns to the pool whenever the tensor dies.
  virtual void begin_pool() = 0;
  virtual void end_pool() noexcept = 0;
  // Between these calls, and between those of the pool, work on the stream is recorded and not
  // done.
  virtual void begin_recording() = 0;
  [[nodiscard]] virtual std::unique_ptr<DeviceGraph> end_recording() = 0;
  // After an error in between.
  virtual void abandon_recording() noexcept = 0;
};

class PoolScope {
 public:
  explicit PoolScope(DeviceGraphs& graphs) : graphs_(graphs) { graphs_.begin_pool(); }
  ~PoolScope() { graphs_.end_pool(); }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  DeviceGraphs& graphs_;
};

class Recording {
 public:
  explicit Recording(DeviceGraphs& graphs) : graphs_(graphs), pool_(graphs) {
    graphs_.begin_recording();
  }
  ~Recording() {
    if (open_) graphs_.abandon_recording();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  [[nodiscard]] std::unique_ptr<DeviceGraph> finish() {
    open_ = false;
    return graphs_.end_recording();
  }

 private:
  DeviceGraphs& graphs_;
  const PoolScope pool_;
  bool open_ = true;
};

}  // namespace sluice
