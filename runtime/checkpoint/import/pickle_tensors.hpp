// What of a pickle says what a tensor is. Only for this folder's pickle sources. Pure.
#pragma once

#include <optional>
#include <string>

#include "runtime/checkpoint/import/pickle.hpp"

namespace sluice {

// torch._utils._rebuild_tensor_v2, and what wraps its result.
[[nodiscard]] bool is_tensor_global(const std::string& name);
[[nodiscard]] bool is_parameter_global(const std::string& name);

// A tensor that was given attributes: (function, type, its arguments, attributes).
[[nodiscard]] bool is_typed_global(const std::string& name);
[[nodiscard]] bool is_plain_type(const std::string& name);

// Of a persistent id, ("storage", type, key, location, elements). nullopt: `why` says.
[[nodiscard]] std::optional<PickleStorage> storage_of(const PickleTree& tree, const PickleValue& id,
                                                      std::string& why);
// Of the arguments (storage, offset, shape, strides, ...), within the storage. nullopt: `why` says.
[[nodiscard]] std::optional<PickleTensor> tensor_of(const PickleTree& tree,
                                                    const std::vector<PickleId>& arguments,
                                                    std::size_t most_dims, std::string& why);

}  // namespace sluice
