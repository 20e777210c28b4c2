// The name of this host.
#pragma once

#include <string>

namespace sluice {

// "localhost" if the system names none.
[[nodiscard]] std::string host_name();

}  // namespace sluice
