// One rank's training engine: executes the step programs over a model, a communicator and data.
//
// Public calls are collective unless their comment says otherwise: all ranks of the mesh make the
// call, with the same arguments. Accessors are not collective. Not thread-safe. After an exception
// in a program all communicators are aborted, and no program can be executed any more.
//
// The engine only owns its parts and calls the parts in order; README.md has a diagram.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/access/model_use.hpp"
#include "runtime/engine/access/owned_states.hpp"
#include "runtime/engine/access/whole_parameters.hpp"
#include "runtime/engine/engine_programs.hpp"
#include "runtime/engine/engine_setup.hpp"
#include "runtime/engine/group_store.hpp"
#include "runtime/engine/ops/op_clock.hpp"
#include "runtime/engine/ops/program_memory.hpp"
#include "runtime/engine/ops/run_image.hpp"
#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/ops/step_ops.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/program_runner.hpp"
#include "runtime/engine/tiers/tier_store.hpp"
#include "runtime/program/model/memory_model.hpp"

namespace sluice {

class Engine final {
 public:
  // `plan`: of these options and this model (runtime/plan/step_profile.hpp); planned_engine()
  // (runtime/run) makes both. `model`: units in the order of its spec, of any maker; on a mesh the
  // units are those of this rank's part and communicate over comms->tensor(). options.model is
  // ignored: the spec has its own.
  Engine(EngineOptions options, Model model, StepPlan plan, MeshRef comms, at::Device device,
         RowSource train, RowSource valid, PhaseObserver observer = {});
  ~Engine();

  [[nodiscard]] StepResult train_step(const StepInput& input);
  // Mean loss over the targets of validation batches [0, batches): those that rows count as learned
  // (SampleRows::learned_targets), else all.
  [[nodiscard]] double evaluate(std::int64_t batches);
  // The same, but leave() is called before each batch, and true ends the evaluation without a loss.
  // The answers must be equal on every rank.
  [[nodiscard]] std::optional<double> evaluate(std::int64_t batches,
                                               const std::function<bool()>& leave);
  // The sum of the losses of each of `count` micro-batches, on all ranks. A sum does not depend on
  // the rank that runs its micro-batch. rows(i, 0, train.micro_batch, out) is micro-batch i;
  // targets may be kIgnoreTarget.
  [[nodiscard]] std::vector<double> losses(const RowSource& rows, std::int64_t count);
  // Generation with options.generate_positions: runs positions [first, first + tokens.size()) of a
  // sequence, equal on every rank, and returns the fp32 logits [1, V] of the last. Any number of
  // positions from position 0, which starts a new sequence, then one at a time. Running another
  // program ends the sequence. Throws Error where positions are out of turn or too many.
  [[nodiscard]] at::Tensor decode(std::int64_t first, std::span<const std::int64_t> tokens);
  // fp32 logits [B, V] of position S - 1. tokens: rows x S, S <= seq, equal on every rank.
  [[nodiscard]] at::Tensor next_token_logits(const SampleRows& tokens, std::int64_t rows);
  // Runs step `step` again without its update and checks the result of every unit. Returns the
  // place of the first non-finite value: "rank 1, unit h.3, forward, micro-batch 0"; or a text that
  // begins with "no unit" if all values are finite this time.
  [[nodiscard]] std::string find_non_finite(std::int64_t step);
  // Full parameter by name, fp32 on the host: gathered from all ranks that hold a part of it.
  [[nodiscard]] at::Tensor full_parameter(const std::string& name);
  // Replaces a parameter (whole, fp32, on the host); each rank keeps its share. Moments do not
  // change.
  void set_parameter(const std::string& name, const at::Tensor& value);

  // With options.later_weights, one of the next two calls must precede every use of weights.
  // Draws or reads the first weights, unless the engine has weights. Not collective.
  void make_first_weights();
  // Called after every element of the master weights of owned_pieces() has been written.
  void weights_restored() { has_weights_ = true; }
  // Of the weights that the engine read or was given. Not collective.
  [[nodiscard]] FrozenRounding& frozen_rounding() { return states_.rounding(); }

  // Runs the deferred update now. Results are bit-identical to running it in the next step.
  void settle();
  // Elements [first, first + values.size()) of one of this rank's pieces (owned_pieces), in fp32,
  // on any tier, with no more than a few MiB of host memory. 16-bit moments are read exactly and
  // rounded to nearest when written. Writing master weights also writes the parameters made of
  // them. Not collective. REQUIRES: settle().
  void read_state(const StatePiece& piece, StateKind kind, std::int64_t first,
                  std::span<float> values);
  void write_state(const StatePiece& piece, StateKind kind, std::int64_t first,
                   std::span<const float> values);

  // --- offload.image: states committed on NVMe at every step ---
  [[nodiscard]] bool keeps_image() const { return image_.keeps(); }
  // The version of the image that this engine resumed from; empty: no resume from an image.
  [[nodiscard]] const std::optional<ImageVersion>& image() const { return image_.found(); }
  // Sets the run's data beside its states, as of the last step (or as of the start). The next step
  // commits data and states. At most kImageStateBytes.
  void set_image_state(std::string state);
  // Commits the last step now, so that a run can go on from it after an orderly end. Collective.
  void commit_image();
  // The run has completed: no run may go on from its image.
  void end_image();

  // On a GPU: reserves up to `bytes` for later steps (gpu_memory.hpp, reserve_bytes), less what
  // small tensors take beside that segment.
  void reserve_device(std::int64_t bytes);

  // Whether the next training step executes everything in its program: the deferred update, if the
  // program begins with one, was not run by an evaluation or a save; and speculative updates, if
  // the program has any, run and the last ones were kept.
  [[nodiscard]] bool next_step_is_whole() const { return carry_.next_step_is_whole(); }

  // Pieces of this rank (state_pieces.hpp).
  [[nodiscard]] std::vector<StatePiece> owned_pieces() const;
  [[nodiscard]] std::vector<StatePiece> saved_pieces() const;

  [[nodiscard]] const StepPlan& plan() const { return setup_.plan; }
  [[nodiscard]] const Program& train_program() const { return programs_.train; }
  [[nodiscard]] const std::vector<OpTiming>& timings() const { return run_.timings; }
  // Exchanges of the program that ran last, in the order of their ends; recorded with
  // options.trace.
  [[nodiscard]] const std::vector<ExchangeTiming>& exchanges() const { return run_.exchanges; }
  // On a GPU, with options.device_times: replaces times of issue by those of the device, for the
  // timings and exchanges of the last training step. The host waits for the device.
  void read_device_times(std::vector<OpTiming>& timings,
                         std::vector<ExchangeTiming>& exchanges) const;
  [[nodiscard]] const ModelSpec& spec() const { return setup_.spec(); }
  [[nodiscard]] SpeculationCounts speculation_counts() const { return carry_.speculation_counts(); }
  // The off-device store; null if everything is on the device.
  [[nodiscard]] const TierStore* tiers() const { return tiers_.get(); }

 private:
  void require_weights() const;
  [[nodiscard]] StepTimes step_times() const;
  void remake_parameters();

  const EngineSetup setup_;
  const EnginePrograms programs_;
  GroupStore store_;
  const ProgramMemory memory_;
  const std::shared_ptr<DeviceCopies>
      copies_;  // null: a CPU on which everything lives on the device
  const std::unique_ptr<TierStore> tiers_;
  const std::unique_ptr<DeviceGraphs> graphs_;  // null: steps are not launched as graphs
  const std::unique_ptr<OpClock> clock_;        // null: times are the host's; outlives the graphs
  RunImage image_;
  StepCarry carry_;
  OwnedStates states_;
  WholeParameters parameters_;
  StepRun run_;
  Flights flights_;
  StepOps ops_;
  const PhaseObserver observer_;
  ProgramRunner runner_;  // after all that its lanes' threads use
  ModelUse use_;
  bool has_weights_ = false;
};

}  // namespace sluice
