// What is fuzzed: each takes any bytes and returns; anything but its reader's own error is a
// defect. Run by libFuzzer (fuzz_main.cpp) and, on bytes that are the same every time, by mutation
// tests.
#pragma once

#include <cstddef>
#include <span>

namespace sluice::testing {

void fuzz_safetensors(std::span<const std::byte> bytes);
// The bytes without the two checksums, which are made right: what lies behind them is reached.
void fuzz_manifest(std::span<const std::byte> bytes);

}  // namespace sluice::testing
