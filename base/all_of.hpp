// Several Tickets as one.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/ticket.hpp"

namespace sluice {

// The Ticket is done when all parts are done. wait() waits for every part, then throws the first
// error in the order of `parts`.
[[nodiscard]] Ticket all_of(std::vector<Ticket> parts);

// Waits for every part and ignores the errors.
void wait_out(std::span<const Ticket> parts) noexcept;

// all_of() the Tickets of issue(0) ... issue(count - 1). If issue(i) throws, issue_all() waits for
// the Tickets issued before and rethrows. The caller may then free the memory of the operations.
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
