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

// The mesh is options.dp x options.parallel; where it is more than data-parallel, whatever `wire`
// says, the ranks talk in the process. Each rank swaps to options.offload.nvme_path. `each_rank` is
// called on rank's thread with its engine; exceptions come through, rank 0's first.
void run_world(const EngineOptions& options, Wire wire,
               const std::function<void(int rank, Engine&)>& each_rank, const RowSource& rows = {});
// The same with the communicator of all ranks. `rows` empty: formula_rows.
void run_world_with_comm(const EngineOptions& options, Wire wire,
                         const std::function<void(Communicator&, Engine&)>& each_rank,
                         const RowSource& rows = {});

// body(rank) for each rank, on threads; rank 0's is the caller's. Where a body throws, abort(rank)
// has to make the others fail; what they threw comes through, the lowest rank's first.
void run_as_threads(std::size_t ranks, const std::function<void(std::size_t rank)>& body,
                    const std::function<void(std::size_t rank)>& abort);

// Steps whose gradients overflow where the scale says so, and what came of the others.
class ScaledSteps {
 public:
  static constexpr double kScale = 256;
  static constexpr double kTooMuch = 1e30;

  ScaledSteps(Engine& engine, WorldResult& result) : engine_(engine), result_(result) {}
  void operator()(std::int64_t step, double scale);

 private:
  Engine& engine_;
  WorldResult& result_;
  std::int64_t updates_ = 0;
};

// All parameters of the whole model.
void note_weights(Engine& engine, WorldResult& result);
// Steps 1 to `steps`, then an evaluation, then the weights.
void train_steps(Engine& engine, const EngineOptions& options, int steps, WorldResult& result);

// "t2 d1 p2 sequence 1f1b"
[[nodiscard]] std::string describe_mesh(const EngineOptions& options);
[[nodiscard]] int world_size(const EngineOptions& options);
// Names of the whole model's parameters.
[[nodiscard]] std::vector<std::string> parameter_names(const Engine& engine);

void expect_same_bits(const WorldResult& a, const WorldResult& b, const std::string& what);

// `steps` training steps and one evaluation; rank 0's numbers, after checking that all ranks agree.
[[nodiscard]] WorldResult train_world(const EngineOptions& options, int steps, Wire wire,
                                      const RowSource& rows = {});

}  // namespace sluice::testing
