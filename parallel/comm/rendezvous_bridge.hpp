// Where the ranks of a group find each other: a TCPStore, and error texts in words. Bridge: c10d
// headers.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "parallel/comm/communicator.hpp"

namespace sluice {

// The first line of what a foreign library says, without its stack trace.
[[nodiscard]] std::string first_line(const std::exception& error);

class Rendezvous {
 public:
  explicit Rendezvous(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  [[nodiscard]] const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

// A store whose keys are the group's own. Returns when all ranks of the group have come. Throws
// CommError: port in use, rank 0 absent, or which ranks did not come before the deadline.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> join_rendezvous(
    const CommOptions& options, std::chrono::steady_clock::time_point deadline);

// make_gloo_communicator for ranks that have joined already. Keeps the store. REQUIRES: size > 1,
// SIGPIPE blocked on this thread.
[[nodiscard]] std::unique_ptr<Communicator> make_gloo_communicator(
    const CommOptions& options, c10::intrusive_ptr<c10d::Store> store);

}  // namespace sluice
