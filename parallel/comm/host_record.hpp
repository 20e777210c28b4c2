// The calls of the ranks of one host, compared and in words. Internal to comm.
#pragma once

#include <string>

#include "parallel/comm/host_segment.hpp"

namespace sluice {

[[nodiscard]] const char* name_of(HostOp op);
// "all_gather of 3 fp32 elements in 2 pieces"
[[nodiscard]] std::string describe(const HostRecord& record);
// The calls of two ranks are one operation: the same, or a send and the receive of it.
[[nodiscard]] bool fits(const HostRecord& a, const HostRecord& b);

}  // namespace sluice
