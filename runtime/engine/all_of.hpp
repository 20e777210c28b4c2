// Several operations awaited as one.
#pragma once

#include <vector>

#include "kernels/base/ticket.hpp"

namespace sluice {

// Done when all are; the first error in the order given is the error.
[[nodiscard]] Ticket all_of(std::vector<Ticket> parts);

}  // namespace sluice
