// A fuzz target over its corpus (tests/fuzz/corpus), and over thousands of damaged copies of it,
// the same on every run.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace sluice::testing {

using FuzzTarget = void (*)(std::span<const std::byte> bytes);

// `pieces`: what readers of this format trip on, put in at random. `fix` may repair what would end
// every trial at once. REQUIRES: at least three seeds.
void run_mutations(const std::string& corpus, FuzzTarget target,
                   const std::vector<std::string>& pieces,
                   const std::function<void(std::string&)>& fix);

}  // namespace sluice::testing
