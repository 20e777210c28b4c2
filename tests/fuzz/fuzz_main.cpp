// libFuzzer's entry; FUZZ_TARGET is one of targets.hpp.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sluice::testing::FUZZ_TARGET(std::as_bytes(std::span(data, size)));
  return 0;
}
