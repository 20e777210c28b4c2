// The result of `sluice bench nvme` as JSON. Pure; thread-safe.
#pragma once

#include <string>

#include "offload/nvme_bench.hpp"

namespace sluice {

[[nodiscard]] std::string to_json(const NvmeBenchResult& result);

}  // namespace sluice
