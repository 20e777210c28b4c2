// Several operations awaited as one.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/ticket.hpp"

namespace sluice {

// Done when all are; the first error in the order given is the error.
[[nodiscard]] Ticket all_of(std::vector<Ticket> parts);

// Until all are over, whatever they end with.
void wait_out(std::span<const Ticket> parts) noexcept;

// All of issue(0) ... issue(count - 1). Where one cannot be issued, those before it are waited out:
// their memory is theirs until then, and whoever catches the error may give it back.
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
