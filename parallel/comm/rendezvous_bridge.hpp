// The rendezvous of the ranks of a group: a TCPStore with readable errors. Bridge: c10d headers.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "parallel/comm/communicator.hpp"

namespace sluice {

// The first line of a foreign library's message, without the stack trace.
[[nodiscard]] std::string first_line(const std::exception& error);

class Rendezvous {
 public:
  explicit Rendezvous(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  [[nodiscard]] const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

// A store whose keys belong to the group alone. Returns when all ranks of the group have joined.
// Throws CommError if the port is in use, if rank 0 is missing, or if ranks do not join before the
// deadline (names them).
[[nodiscard]] c10::intrusive_ptr<c10d::Store> join_rendezvous(
    const CommOptions& options, std::chrono::steady_clock::time_point deadline);

// make_gloo_communicator() for ranks that have joined already. Keeps the store. REQUIRES: size > 1,
// and SIGPIPE is blocked on this thread.
[[nodiscard]] std::unique_ptr<Communicator> make_gloo_communicator(
    const CommOptions& options, c10::intrusive_ptr<c10d::Store> store);

}  // namespace sluice
