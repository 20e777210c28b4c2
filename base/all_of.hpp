// Several Tickets as one.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/ticket.hpp"

namespace sluice {

// Done when all are; the first error in the order given is the error.
[[nodiscard]] Ticket all_of(std::vector<Ticket> parts);

// Returns when all have completed or failed.
void wait_out(std::span<const Ticket> parts) noexcept;

// All of issue(0) ... issue(count - 1). Where issue(i) throws, the operations issued before are
// waited out first: the caller that catches the error may free their memory.
template <class Issue>
[[nodiscard]] Ticket issue_all(std::size_t count, const Issue& issue) {
  std::vector<Ticket> parts;
  parts.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i) parts.push_back(issue(i));
  } catch (...) {
    wait_out(parts);
    throw;
  }
  return all_of(std::move(parts));
}

}  // namespace sluice
