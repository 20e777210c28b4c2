// One rank's training engine: executes the step programs over a model, a communicator and data.
//
// Every public call but the accessors is collective: all ranks of the mesh make it, with the same
// arguments. Not thread-safe. After an exception all of its groups are lost.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "parallel/mesh_comms.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/engine/engine_settings.hpp"
#include "runtime/engine/exchange_timing.hpp"
#include "runtime/engine/group_store.hpp"
#include "runtime/engine/mesh_ref.hpp"
#include "runtime/engine/state_pieces.hpp"
#include "runtime/engine/tier_store.hpp"
#include "runtime/model/units.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/program/model/memory_model.hpp"

namespace sluice {

// Rows [first_row, first_row + rows) of global batch `index`: optimizer step (from 1) of the
// training data, batch (from 0) of the validation data.
using RowSource = std::function<void(std::int64_t index, std::int64_t first_row, std::int64_t rows,
                                     SampleRows& out)>;

// Told before each operation what the rank is at, and whether it only waits for others.
using PhaseObserver = std::function<void(const std::string& phase, bool waiting)>;

struct StepTimes {     // milliseconds of the executing thread
  double forward = 0;  // the loss head and, in training, its gradients included
  double backward = 0;
  double comm = 0;       // waiting for collectives
  double optimizer = 0;  // off the device: of the host lane, beside the others
  double io = 0;         // a transfer to or from NVMe was under way, beside the others
  double data = 0;
};

struct StepInput {
  std::int64_t step = 1;  // picks the data and the dropout masks
  double lr = 0;
  std::int64_t update = 0;  // of AdamW's bias correction, from 1; 0: as step (no step was skipped)
  double loss_scale = 1;
  double vote = 0;  // any number; the result has the largest of all ranks, so that they can agree
};

struct StepResult {
  double loss = 0;       // mean over the global batch's tokens, before the update
  double grad_norm = 0;  // before clipping, unscaled, each parameter counted once
  double vote = 0;       // the largest of the ranks' votes
  StepTimes times;
  // False: loss or norm is not finite on some rank, and nothing was updated.
  [[nodiscard]] bool finite() const;
  // The loss is finite and the gradients are not: what a smaller loss scale may cure.
  [[nodiscard]] bool overflowed() const;
};

// Steps with early updates (offload.speculate), by what became of these.
struct SpeculationCounts {
  std::int64_t kept = 0;
  std::int64_t redone = 0;  // after a step that was clipped, or thrown away
};

class Engine final : private OpHandler {
 public:
  // `plan`: of these options and this model (runtime/plan/step_profile.hpp); planned_engine()
  // (runtime/run) makes both. The model's units, in its spec's order, may be anybody's; on a mesh
  // they are of this rank's part and talk over comms->tensor(). options.model is not looked at: the
  // spec has its own.
  Engine(EngineOptions options, Model model, StepPlan plan, MeshRef comms, at::Device device,
         RowSource train, RowSource valid, PhaseObserver observer = {});
  ~Engine() override;

  [[nodiscard]] StepResult train_step(const StepInput& input);
  // Mean loss over the tokens of validation batches [0, batches).
  [[nodiscard]] double evaluate(std::int64_t batches);
  // The sum of the losses of each of `count` micro-batches, none added to another, so that they
  // are the same whoever runs them: rows(i, 0, train.micro_batch, out) is micro-batch i. Targets
  // may be kIgnoreTarget. All ranks get all.
  [[nodiscard]] std::vector<double> losses(const RowSource& rows, std::int64_t count);
  // Generation with options.generate_positions: runs positions [first, first + tokens.size()) of a
  // sequence, equal on every rank, and gives the fp32 logits [1, V] of the last. Any number from
  // position 0, which forgets what was, then one at a time. Whatever else runs a program forgets
  // too. Throws Error where positions do not come in turn or are too many.
  [[nodiscard]] at::Tensor decode(std::int64_t first, std::span<const std::int64_t> tokens);
  // fp32 logits [B, V] of position S - 1. tokens: rows x S, S <= seq, equal on every rank.
  [[nodiscard]] at::Tensor next_token_logits(const SampleRows& tokens, std::int64_t rows);
  // Where the first non-finite value of step `step` is made: the step is run again without its
  // update, looking at every unit. "rank 1, unit h.3, forward, micro-batch 0".
  [[nodiscard]] std::string find_non_finite(std::int64_t step);
  // Full parameter by name, fp32 on the host: gathered from all ranks that hold a part of it.
  [[nodiscard]] at::Tensor full_parameter(const std::string& name);
  // Replaces a parameter (whole, fp32, on the host); each rank keeps its share. Moments stay as
  // they are.
  void set_parameter(const std::string& name, const at::Tensor& value);

  // Brings updates that were left to the next step to an end; its bits stay what they were.
  void settle();
  // Elements [first, first + values.size()) of a piece of this rank's (owned_pieces), in fp32, on
  // whatever tier they are, without more host memory than a few MiB. Of moments in 16 bits: exact
  // when read, rounded to nearest when written. Writing master weights writes the parameters made
  // of them as well. Not collective. REQUIRES: settle().
  void read_state(const StatePiece& piece, StateKind kind, std::int64_t first,
                  std::span<float> values);
  void write_state(const StatePiece& piece, StateKind kind, std::int64_t first,
                   std::span<const float> values);

  // --- offload.image: what is committed on NVMe at every step ---
  [[nodiscard]] bool keeps_image() const { return tiers_ && tiers_->keeps_image(); }
  // What this engine went on from: its states are those after that step.
  [[nodiscard]] const std::optional<ImageVersion>& image() const { return image_; }
  // What a run keeps beside its states, as it is after the last step (before the first: at the
  // start): the next step commits both. At most kImageStateBytes.
  void set_image_state(std::string state);
  // Commits the last step now, to go on from there after an orderly end. Collective.
  void commit_image();
  // The run is over: nothing is left to go on from.
  void end_image();

  // Whether the next training step does all that its program says: where it begins with the updates
  // of the step before, these have not been brought to an end by an evaluation or a save; and where
  // it has early updates, it makes them, and the last ones were kept.
  [[nodiscard]] bool next_step_is_whole() const;

  // This rank's (state_pieces.hpp).
  [[nodiscard]] std::vector<StatePiece> owned_pieces() const;
  [[nodiscard]] std::vector<StatePiece> saved_pieces() const;

  [[nodiscard]] const StepPlan& plan() const { return plan_; }
  [[nodiscard]] const Program& train_program() const { return train_program_; }
  [[nodiscard]] const std::vector<OpTiming>& timings() const { return timings_; }
  // Of the program that ran last, in the order they were finished; recorded with options.trace.
  [[nodiscard]] const std::vector<ExchangeTiming>& exchanges() const { return exchanges_; }
  [[nodiscard]] const ModelSpec& spec() const { return model_.spec; }
  [[nodiscard]] SpeculationCounts speculation_counts() const { return speculation_counts_; }
  // Off the device; null where nothing is.
  [[nodiscard]] const TierStore* tiers() const { return tiers_.get(); }

 private:
  enum class Mode { kTrain, kEvaluate, kLosses, kLogits, kDecode, kDiagnose, kUpdate };
  class Sink;
  class SplitSink;

  // What a micro-batch holds between its first forward and its last backward.
  struct Flight {
    at::Tensor tokens;
    at::Tensor targets;
    std::vector<at::Tensor> inputs;       // of each unit
    std::vector<BufferId> input_buffers;  // whose memory they have
    std::vector<std::unique_ptr<Saved>> saved;
    // By unit, of split backwards: what is left, and the gradients that were made at once.
    std::vector<std::unique_ptr<Deferred>> deferred;
    std::vector<std::vector<std::pair<int, at::Tensor>>> early;
    at::Tensor gradient;  // of the activation between the last unit done and the next
    // Between pipeline stages: what the last forward made for another stage; and by unit that ends
    // a chunk, the gradient of its output as it came.
    at::Tensor output;
    std::vector<at::Tensor> arrived;
  };
  struct Place {
    int group = 0;
    int index = 0;
  };
  [[nodiscard]] std::optional<Place> place_of(const std::string& name) const;
  [[nodiscard]] const ParamSpec& spec_of(Place place) const;
  [[nodiscard]] at::Tensor gather_part(Place place);
  [[nodiscard]] at::Tensor join_parts(const std::string& name, std::optional<Place> place);
  void enter(const Op& op) override;
  Ticket run(const Op& op) override;
  void leave(const Op& op) override;
  void waiting(const Op& op, bool begins) override;
  void stop_lanes();
  void execute_program(const Program& program, Mode mode, std::int64_t index);
  [[nodiscard]] bool training() const { return mode_ == Mode::kTrain || mode_ == Mode::kDiagnose; }
  void bind_slots(const std::vector<BufferId>& buffers);
  void unbind_slots(const std::vector<BufferId>& buffers);
  [[nodiscard]] char* slot(BufferId buffer) const;
  [[nodiscard]] UnitCall call_of(const Op& op) const;
  [[nodiscard]] Flight& flight(const Op& op) {
    return flights_[static_cast<std::size_t>(op.micro_batch)];
  }
  [[nodiscard]] std::size_t index_of(const Op& op) const {
    return static_cast<std::size_t>(&op - program_->ops.data());
  }
  void open_grads(const Op& op);
  void prepare_gather(const Op& op);
  void prepare_reduction(const Op& op);
  void bind_input(BufferId id);
  void unbind_input(BufferId id);
  void prepare_move(const Op& op);
  void move_input(const Op& op);
  Ticket run_here(const Op& op);
  // Updates that the next step would begin with.
  void begin_updates();
  void end_updates();
  [[nodiscard]] bool next_step_speculates() const;
  [[nodiscard]] bool begin_speculation();
  void end_speculation(bool speculated);
  void finish_updates();
  void make_tiers(std::span<const Program* const> programs);
  void make_first_weights();
  void fill_from_image(int g, std::int64_t begin, std::int64_t elems);
  Ticket commit();
  [[nodiscard]] UpdateArgs update_args() const;
  [[nodiscard]] std::vector<double> gradient_sums(int g);
  [[nodiscard]] at::Tensor owned_master(int g);
  void write_owned(int g, std::int64_t begin, const at::Tensor& values);
  [[nodiscard]] std::int64_t first_row(const Op& op) const;
  void read_rows(const Op& op, SampleRows& rows) const;
  void load_batch(const Op& op);
  Ticket gather(const Op& op);
  void forward(const Op& op);
  void loss_head(const Op& op);
  void backward(const Op& op);
  void backward_weights(const Op& op);
  [[nodiscard]] bool comes_after_commit(const Op& op) const;
  void meet(const Op& op);
  void look_at_grads(const Op& op);
  [[nodiscard]] at::Tensor empty_boundary() const;
  void prepare_receive(const Op& op);
  Ticket receive(const Op& op);
  Ticket send(const Op& op);
  [[nodiscard]] at::Tensor share_logits();
  [[nodiscard]] double place_in_step(const Op& op) const;
  Ticket reduce_grads(const Op& op);
  void add_grads(const Op& op);
  Ticket gather_grads(const Op& op);
  void add_replicas(const Op& op);
  void count_groups();
  void watch_exchanges();
  // Of the ranks that compute one and the same loss, one adds it.
  [[nodiscard]] bool counts_loss() const {
    return comms_->at().tp == 0 && plan_.shape.ends_model();
  }
  void norm_and_scale();
  [[nodiscard]] double squares_of_all(std::span<const double> all, std::size_t stride) const;
  void use_norm(double squares);
  void update(const Op& op);
  void look_for_non_finite(const at::Tensor& value);
  [[nodiscard]] StepTimes sum_times() const;

  const EngineOptions options_;
  const Model model_;
  const MeshRef comms_;
  Communicator& world_;
  Communicator& data_;  // ranks with the same part of the model
  const at::Device device_;
  const RowSource train_rows_;
  const RowSource valid_rows_;
  const PhaseObserver observer_;
  const StepPlan plan_;
  const Program train_program_;
  const Program eval_program_;
  const Program update_program_;
  const Program decode_program_;
  GroupStore store_;
  at::Tensor arena_;
  at::Tensor comm_staging_;
  at::Tensor replica_staging_;     // [ranks, piece]: gradients of groups that others hold too
  std::vector<int> stage_groups_;  // by pipeline stage: how many groups it has
  // None where everything lives on the device.
  const std::shared_ptr<DeviceCopies> copies_;
  std::unique_ptr<TierStore> tiers_;
  std::optional<ImageVersion> image_;
  std::string image_state_;

  // Of the program that is running.
  const Program* program_ = nullptr;
  Mode mode_ = Mode::kTrain;
  std::int64_t index_ = 0;
  std::vector<OpTiming> timings_;
  std::vector<ExchangeTiming> exchanges_;
  double data_ms_ = 0;
  std::vector<Flight> flights_;  // by micro-batch
  at::Tensor scratch_;
  at::Tensor logits_;
  std::vector<at::Tensor> sent_;   // by buffer: on their way to another stage
  std::int64_t rows_at_once_ = 0;  // of the micro-batch that the program runs, and their tokens
  std::int64_t tokens_of_row_ = 0;
  std::vector<at::Tensor> caches_;  // by unit, while a sequence is run in parts
  std::int64_t decoded_ = 0;        // positions in them
  const RowSource* rows_ = nullptr;
  std::int64_t row_batches_ = 0;  // that rows_ has
  double loss_sum_ = 0;
  StepInput input_;
  double clip_coefficient_ = 1;
  StepResult result_;
  OpId op_now_ = -1;  // entered last
  OpId first_non_finite_ = -1;
  // By operation: what the wire works on, at the addresses of when it was issued.
  std::vector<std::vector<ReduceScatterPiece>> reductions_;
  std::vector<std::vector<AllGatherPiece>> gathers_;
  // The same of what moves between device and host, and by buffer what is still being read.
  std::vector<std::vector<std::pair<DevicePtr, std::int64_t>>> moves_;
  std::map<BufferId, std::vector<c10::DataPtr>> leaving_;
  // By operation of another thread: how far the compute lane had come when it was handed over.
  std::vector<DeviceCopies::Mark> marks_;

  // The update of the last step, as far as it is left to the next.
  std::optional<UpdateArgs> pending_;
  UpdateArgs applying_;
  // Speculation: what this step's early updates apply; whether they turned out to be the pending
  // one; and the steps in a row that were not clipped, the last one included.
  UpdateArgs speculating_;
  SpeculationCounts speculation_counts_;
  bool kept_ = false;
  std::int64_t unclipped_steps_ = 0;
  bool trained_ = false;  // a step, since the engine was made

  LaneThreads lanes_;  // last: its threads use the others
};

}  // namespace sluice
