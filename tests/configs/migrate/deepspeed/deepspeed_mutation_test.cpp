// The reader and the rules over thousands of damaged configurations.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"

namespace sluice::testing {
namespace {

// On which readers of Hjson and rules between keys trip.
const std::vector<std::string> kPieces{"{",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       ":",
                                       "\"",
                                       "'",
                                       "'''",
                                       "\\u",
                                       "\\ud800",
                                       "#",
                                       "//",
                                       "/*",
                                       "*/",
                                       "\n",
                                       "\r\n",
                                       "\t",
                                       "null",
                                       "true",
                                       "True",
                                       "auto",
                                       "\"auto\"",
                                       "-1",
                                       "0",
                                       "1.5",
                                       "1e99",
                                       "1e999",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "18446744073709551616",
                                       "{{x}}",
                                       "${X}",
                                       "\xFF",
                                       "\xc3\xa9",
                                       "\"stage\": 3,",
                                       "\"enabled\": true,",
                                       "\"world\": {},",
                                       "\"optimizer\": {\"type\": \"Lamb\"},",
                                       "\"zero_optimization\": true,",
                                       "\"params\": [],",
                                       "\"train_batch_size\": 9223372036854775807,",
                                       "\"sequence_parallel_size\": 0,",
                                       "\"bf16\": null,",
                                       "\"scheduler\": {\"type\": \"WarmupLR\"},",
                                       std::string(1, '\0'),
                                       std::string(300, '[')};

TEST(Mutation, DeepSpeedConfig) {
  run_mutations("deepspeed_config", fuzz_deepspeed_config, kPieces, [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
