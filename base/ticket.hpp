// Completion of one asynchronous operation. A value; copies share the operation.
//
// wait() makes what the caller does next come after the operation: for host memory the calling
// thread waits, for CUDA memory the thread's current stream does (the host runs on). It throws the
// error the operation ended with, every time it is called. A default-made Ticket is done.
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
