// The communicators that the contract suite runs against. Ranks are threads of the test for all of
// them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "tests/free_port.hpp"

namespace sluice {

// No test that passes waits for so long.
inline constexpr std::chrono::milliseconds kPatience{30'000};

using Group = std::vector<std::unique_ptr<Communicator>>;  // by rank
struct Backend {
  std::string name;
  Group (*make)(int size, std::chrono::milliseconds timeout);
};

// Those besides local: defined by the file that CMake chose.
[[nodiscard]] std::vector<Backend> network_backends();
[[nodiscard]] std::vector<Backend> all_backends();
[[nodiscard]] std::vector<std::string> backend_names();  // of all

// Runs body(communicator) on a thread per rank, giving each its communicator to own; what a body
// throws is returned by rank (empty: nothing), as error_chain text with "[secondary] " before a
// secondary one.
std::vector<std::string> run_ranks(Group group, const std::function<void(Communicator&)>& body);
// The same, and fails the test unless all are empty.
void run_ranks_ok(Group group, const std::function<void(Communicator&)>& body);

}  // namespace sluice
