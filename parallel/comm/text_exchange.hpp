// What ranks tell each other over the communicator's control data: texts, and whether something
// holds. Collective.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/communicator.hpp"

namespace sluice {

// Every rank's text, by rank.
[[nodiscard]] std::vector<std::string> exchange_text(Communicator& comm, std::string_view mine);

// "rank 1: no space; rank 3: ...": the texts that are not empty; empty where all are.
[[nodiscard]] std::string first_errors(const std::vector<std::string>& by_rank);

[[nodiscard]] bool on_any_rank(Communicator& comm, bool mine);
[[nodiscard]] bool on_all_ranks(Communicator& comm, bool mine);

}  // namespace sluice
