// The readers of torch.save's files over damaged ones.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"

namespace sluice::testing {
namespace {

// Opcodes, counts and names.
const std::vector<std::string> kPieces{"(",
                                       "t",
                                       "R",
                                       "b",
                                       "Q",
                                       "s",
                                       "u",
                                       "e",
                                       "}",
                                       "]",
                                       ")",
                                       "N",
                                       "0",
                                       "2",
                                       ".",
                                       "q\x01",
                                       "h\x01",
                                       "K\xFF",
                                       "J\xFF\xFF\xFF\xFF",
                                       "X\xFF\xFF\xFF\x7F",
                                       "j\xFF\xFF\xFF\xFF",
                                       "\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F",
                                       "\x81",
                                       "\x87",
                                       "\x93",
                                       "ctorch\nSize\n",
                                       "ccollections\nOrderedDict\n)R",
                                       "ctorch\nLongStorage\n",
                                       "ctorch._utils\n_rebuild_parameter\n",
                                       "cos\nsystem\n",
                                       "PK\3\4",
                                       "PK\6\6",
                                       "\xFF\xFF\xFF\xFF",
                                       std::string(8, '\0'),
                                       std::string(300, '(')};

void as_it_is(std::string&) {}

TEST(Mutation, Pickle) { run_mutations("pickle", fuzz_pickle, kPieces, as_it_is); }
TEST(Mutation, Megatron) { run_mutations("megatron", fuzz_megatron, kPieces, as_it_is); }
TEST(Mutation, DeepSpeed) { run_mutations("deepspeed", fuzz_deepspeed, kPieces, as_it_is); }
TEST(Mutation, DistMetadata) {
  run_mutations("dist_metadata", fuzz_dist_metadata, kPieces, as_it_is);
}
TEST(Mutation, TorchFile) { run_mutations("torch", fuzz_torch, kPieces, as_it_is); }

}  // namespace
}  // namespace sluice::testing
