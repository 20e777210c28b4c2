// The lists of the recipe "openwebtext" (Megatron's tools): names separated by spaces.
#pragma once

#include <string_view>

namespace sluice {

// The label of a registered domain: "youtube" stands for youtube.com and youtube.co.uk.
[[nodiscard]] std::string_view openwebtext_domains();
// Of files that hold no text, without the dot.
[[nodiscard]] std::string_view openwebtext_extensions();

}  // namespace sluice
