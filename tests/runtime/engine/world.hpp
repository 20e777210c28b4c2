// Runs an engine on every rank of a small world, ranks being threads of the test, over Gloo or over
// the in-process communicator, on tokens made from a formula.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/engine/engine.hpp"

namespace sluice::testing {

enum class Wire { kGloo, kLocal };

struct WorldResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> weights;  // fp32 masters, by parameter
  double eval_loss = 0;
};

// A tiny GPT-2: 2 layers, hidden 32, 2 heads, vocabulary 61, sequence 16; AdamW lr 1e-2, clip 1.
[[nodiscard]] EngineOptions tiny_options();

// Row r of batch b: tokens that depend on (b, r, position) alone, each partly predictable from the
// last.
[[nodiscard]] RowSource formula_rows(std::int64_t seq, std::int64_t vocab);

// Each rank swaps to options.offload.nvme_path. `each_rank` is called on rank's thread with its
// engine; exceptions come through, rank 0's first.
void run_world(const EngineOptions& options, Wire wire,
               const std::function<void(int rank, Engine&)>& each_rank);
// The same with the rank's communicator.
void run_world_with_comm(const EngineOptions& options, Wire wire,
                         const std::function<void(Communicator&, Engine&)>& each_rank);

void expect_same_bits(const WorldResult& a, const WorldResult& b, const std::string& what);

// `steps` training steps and one evaluation; rank 0's numbers, after checking that all ranks agree.
[[nodiscard]] WorldResult train_world(const EngineOptions& options, int steps, Wire wire);

}  // namespace sluice::testing
