// The table of DeepSpeed's keys as a page for readers. Pure function; thread-safe.
#pragma once

#include <string>

namespace sluice::migrate {

// docs/deepspeed-keys.md: every row of the table, section by section.
[[nodiscard]] std::string deepspeed_keys_markdown();

}  // namespace sluice::migrate
