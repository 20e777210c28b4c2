// The globals and arguments of a pickle that describe tensors. Only for this folder's pickle
// sources. Pure.
#pragma once

#include <optional>
#include <string>

#include "runtime/checkpoint/import/pickle.hpp"

namespace sluice {

// torch._utils._rebuild_tensor_v2, and the global that makes a Parameter of its result.
[[nodiscard]] bool is_tensor_global(const std::string& name);
[[nodiscard]] bool is_parameter_global(const std::string& name);

// A tensor with attributes: (function, type, arguments, attributes).
[[nodiscard]] bool is_typed_global(const std::string& name);
[[nodiscard]] bool is_plain_type(const std::string& name);

// The storage of a persistent id: ("storage", type, key, location, elements). nullopt: `why` has
// the reason.
[[nodiscard]] std::optional<PickleStorage> storage_of(const PickleTree& tree, const PickleValue& id,
                                                      std::string& why);
// The tensor of the arguments (storage, offset, shape, strides, ...). nullopt, with the reason in
// `why`, also if the tensor exceeds its storage.
[[nodiscard]] std::optional<PickleTensor> tensor_of(const PickleTree& tree,
                                                    const std::vector<PickleId>& arguments,
                                                    std::size_t most_dims, std::string& why);

}  // namespace sluice
