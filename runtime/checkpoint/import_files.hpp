// What the readers of other programs' checkpoints share. Only for this folder's import sources.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/checkpoint/pickle.hpp"

namespace sluice {

// A count under `key`, as an int or a float without a fraction; 0 where there is none.
[[nodiscard]] std::int64_t whole_number(const PickleTree& tree, const PickleValue& in,
                                        std::string_view key);
[[nodiscard]] bool is_there(const std::string& path);

}  // namespace sluice
