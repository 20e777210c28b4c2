// Files that users take for DeepSpeed's. Pure function; thread-safe.
#pragma once

#include <string>

namespace sluice::migrate {

// The kind of another file than DeepSpeed's, with the remedy; "" if `text` may be DeepSpeed's.
[[nodiscard]] std::string other_file(const std::string& text, const std::string& path);

}  // namespace sluice::migrate
