// Exchange of texts and of yes-or-no votes over the communicator's control data. Collective.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/communicator.hpp"

namespace sluice {

// The texts of all ranks, by rank.
[[nodiscard]] std::vector<std::string> exchange_text(Communicator& comm, std::string_view mine);

// Joins the first three texts that are not empty and counts the others: "rank 1: no space; rank 3:
// ...; and 2 more ranks". Empty if all are empty. A remedy that ends all texts ("cause; remedy")
// appears once, at the end.
[[nodiscard]] std::string first_errors(const std::vector<std::string>& by_rank);

[[nodiscard]] bool on_any_rank(Communicator& comm, bool mine);
[[nodiscard]] bool on_all_ranks(Communicator& comm, bool mine);

}  // namespace sluice
