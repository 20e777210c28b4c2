// Completion of one asynchronous operation. A value; copies share the operation.
//
// wait() orders later work of the caller after the operation. For host memory the calling thread
// blocks. For CUDA memory the thread's current stream waits and the host does not block. Every call
// of wait() throws the error of a failed operation. A default-constructed Ticket is done.
// Thread-safe.
#pragma once

#include <memory>
#include <utility>

namespace sluice {

class TicketState {
 public:
  virtual ~TicketState() = default;
  virtual void wait() = 0;
  [[nodiscard]] virtual bool done() = 0;
};

class Ticket {
 public:
  Ticket() = default;
  explicit Ticket(std::shared_ptr<TicketState> state) : state_(std::move(state)) {}

  void wait() const {
    if (state_) state_->wait();
  }
  [[nodiscard]] bool done() const { return !state_ || state_->done(); }

 private:
  std::shared_ptr<TicketState> state_;
};

}  // namespace sluice
