// The readers of our own files over damaged ones.
#include "tests/runtime/checkpoint/mutation.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/targets.hpp"

namespace sluice::testing {
namespace {

// On which readers of JSON, of numbers and of ranges trip.
const std::vector<std::string> kPieces{"{",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       ":",
                                       "\"",
                                       "\\u0000",
                                       "\\ud800",
                                       "null",
                                       "true",
                                       "-1",
                                       "0",
                                       "1.5",
                                       "1e99",
                                       "9223372036854775807",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       "[0,0]",
                                       "[[",
                                       "\n",
                                       "\xFF",
                                       "\"shape\":[]",
                                       "\"shape\":[0]",
                                       "\"box\":[[0,1]]",
                                       "\"elems\":[0,1]",
                                       "\"kind\":\"master\"",
                                       "\"dtype\":\"F32\"",
                                       "\"dtype\":\"BOOL\"",
                                       "\"data_offsets\":[0,8]",
                                       "\"__metadata__\":{}",
                                       std::string(1, '\0'),
                                       std::string(300, '[')};

TEST(Mutation, Safetensors) {
  run_mutations("safetensors", fuzz_safetensors, kPieces, [](std::string& text) {
    // The header's length, so that more than one in a hundred comes to the JSON.
    const std::size_t end = text.rfind('}');
    if (text.size() < 8 || end == std::string::npos || end < 8) return;
    const std::uint64_t length = end + 1 - 8;
    for (unsigned i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xFFU);
  });
}

TEST(Mutation, Manifest) {
  run_mutations("manifest", fuzz_manifest, kPieces, [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
