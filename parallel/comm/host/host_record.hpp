// Comparison and text of the calls that the ranks of one host make. Internal to comm.
#pragma once

#include <string>

#include "parallel/comm/host/host_segment.hpp"

namespace sluice {

[[nodiscard]] const char* name_of(HostOp op);
// "all_gather of 3 fp32 elements in 2 pieces"
[[nodiscard]] std::string describe(const HostRecord& record);
// True if the calls of two ranks form one operation: equal calls, or a send and its receive.
[[nodiscard]] bool fits(const HostRecord& a, const HostRecord& b);

}  // namespace sluice
