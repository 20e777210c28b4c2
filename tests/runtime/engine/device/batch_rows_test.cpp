// What recorded work finds in a step: the tokens and the documents of that step's rows, on a stage
// that loads them and on one that only has blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/ops/batch_ops.hpp"
#include "runtime/engine/ops/step_graphs.hpp"
#include "runtime/engine/rank_part.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/program/write/step_writer.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kSeq = 16, kRows = 2;
constexpr int kMicroBatches = 3;

// Documents differ by step and row; step 4 has more than any before.
std::vector<std::int32_t> ends_of(std::int64_t step, std::int64_t row) {
  if (step == 4) return {0, 1, 2, 3, 4, 5, 6, 16};
  const auto end = static_cast<std::int32_t>(1 + (5 * step + row) % 14);
  return {0, end, 16};
}

class Rows {
 public:
  void operator()(std::int64_t step, std::int64_t first, std::int64_t rows, SampleRows& out) {
    ++reads[{step, first}];
    out.tokens.assign(static_cast<std::size_t>(rows * kSeq), step * 100 + first);
    out.targets = out.tokens;
    out.cu_seqlens.clear();
    for (std::int64_t r = first; r < first + rows; ++r) out.cu_seqlens.push_back(ends_of(step, r));
    out.learned_targets = 10 + step;
  }
  std::map<std::pair<std::int64_t, std::int64_t>, int> reads;
};

// Graphs that know the micro-batches of their operations, and call back where they are launched.
class NotedGraphs final : public DeviceGraphs {
 public:
  using Launched = std::function<void(const std::set<int>& micro_batches)>;
  explicit NotedGraphs(Launched launched) : launched_(std::move(launched)) {}
  void begin_pool() override {}
  void end_pool() noexcept override {}
  void begin_recording() override { micro_batches.clear(); }
  std::unique_ptr<DeviceGraph> end_recording() override {
    ++recorded;
    return std::make_unique<Noted>(launched_, micro_batches);
  }
  void abandon_recording() noexcept override {}

  std::set<int> micro_batches;  // of the recording
  int recorded = 0;

 private:
  class Noted final : public DeviceGraph {
   public:
    Noted(const Launched& launched, std::set<int> micro_batches)
        : launched_(launched), micro_batches_(std::move(micro_batches)) {}
    void launch() override { launched_(micro_batches_); }

   private:
    const Launched& launched_;
    const std::set<int> micro_batches_;
  };
  const Launched launched_;
};

EngineOptions packed_options() {
  EngineOptions options;
  options.model = {.layers = 4, .hidden = 32, .heads = 2, .vocab = 61, .seq = kSeq};
  options.model.packed_rows = true;
  options.train.micro_batch = kRows;
  options.train.global_batch = kRows * kMicroBatches;
  return options;
}

// A rank's training steps without units: batches and graphs alone.
class BatchDocuments : public ::testing::TestWithParam<int> {  // stages of the pipeline
 protected:
  static EngineSetup make_setup(Communicator& comm) {
    EngineOptions options = packed_options();
    if (GetParam() > 1) {
      options.parallel.pipeline = GetParam();
      options.part = part_of_rank(options.model, options.parallel, {.pp = GetParam() - 2});
    }
    Model model = make_model(options.model, options.part);
    StepPlan plan = plan_step(options, model);
    return {options, std::move(model), std::move(plan), MeshRef(comm), c10::DeviceType::CPU};
  }

  void train(std::int64_t step) {
    run_.begin_program(program_, RunMode::kTrain, step, {kRows, kSeq});
    flights_.begin_program();
    steps_.begin_program();
    for (const Op& op : program_.ops) {
      if (op.kind == OpKind::kLoadBatch) batches_.load(op);
      if (op.kind == OpKind::kReceiveActivation) (void)steps_.message(op, [&] { return message_; });
      if (may_be_recorded(op)) steps_.run(op, [&] { run_unit(op); });
    }
  }

  void run_unit(const Op& op) {
    if (op.kind == OpKind::kRelease) return;
    graphs_.micro_batches.insert(op.micro_batch);
    rooms_.insert(batches_.documents(op)->room());
  }

  void expect_rows(int micro_batch) {
    const std::int64_t first = micro_batch * kRows;
    std::vector<std::vector<std::int32_t>> ends;
    for (std::int64_t r = first; r < first + kRows; ++r) ends.push_back(ends_of(run_.index, r));
    const at::Tensor expected = Documents::device_memory(kRows, kSeq, c10::DeviceType::CPU);
    Documents(ends, kSeq).put_on(expected);
    const Flight& flight = flights_.of(micro_batch);
    EXPECT_TRUE(flight.document_memory.equal(expected)) << run_.index << " " << micro_batch;
    if (!setup_.shape().begins_model()) return;
    EXPECT_EQ(*host_data<std::int64_t>(flight.tokens), run_.index * 100 + first);
  }

  const std::unique_ptr<Communicator> comm_ = std::move(make_local_communicators(1).front());
  const EngineSetup setup_ = make_setup(*comm_);
  const Program program_ = write_train_step(setup_.shape());
  const at::Tensor message_ = empty_tensor({1}, c10::ScalarType::Float);
  StepRun run_;
  Flights flights_{kMicroBatches, setup_.shape().units.size()};
  Rows rows_;
  BatchOps batches_{{setup_, run_, flights_, true}, std::ref(rows_), {}};
  int launches_ = 0;
  NotedGraphs graphs_{[this](const std::set<int>& micro_batches) {
    ++launches_;
    for (const int m : micro_batches) expect_rows(m);
  }};
  StepGraphs steps_{run_, &graphs_, [this] { return batches_.outgrows_graphs(); }};
  std::set<std::int64_t> rooms_;  // of the units' calls
};

TEST_P(BatchDocuments, AreThoseOfTheStepWhereGraphsAreLaunched) {
  const int graphs = static_cast<int>(graph_segments(program_).size());
  for (std::int64_t step = 1; step <= 6; ++step) {
    launches_ = 0;
    rooms_.clear();
    train(step);
    EXPECT_EQ(launches_, step == 1 ? 0 : graphs) << step;
    // Step 4 needs room for 14 documents; the graphs recorded there serve the next steps too.
    EXPECT_EQ(graphs_.recorded, step == 1 ? 0 : step < 4 ? graphs : 2 * graphs) << step;
    using Rooms = std::set<std::int64_t>;  // bodies of launched units do not run
    EXPECT_EQ(rooms_, step <= 2 ? Rooms{4} : step == 4 ? Rooms{16} : Rooms{}) << step;
  }
}

TEST_P(BatchDocuments, RowsAreReadOnceAStep) {
  for (std::int64_t step = 1; step <= 5; ++step) {
    train(step);
    (void)batches_.loss_factor();
    EXPECT_EQ(run_.learned_targets, 10 + step);
  }
  EXPECT_EQ(rows_.reads.size(), 5U * kMicroBatches);
  EXPECT_TRUE(std::all_of(rows_.reads.begin(), rows_.reads.end(),
                          [](const auto& read) { return read.second == 1; }));
}

// The number of learned targets is asked for before LoadBatch of the loss head's stage.
TEST(BatchRows, OfALastStageAreReadOnceForTheLossFactorAndTheLoad) {
  const auto comm = make_local_communicators(1);
  EngineOptions options = packed_options();
  options.model.packed_rows = false;
  options.parallel.pipeline = 2;
  options.part = part_of_rank(options.model, options.parallel, {.pp = 1});
  Model model = make_model(options.model, options.part);
  StepPlan plan = plan_step(options, model);
  const EngineSetup setup{options, std::move(model), std::move(plan), MeshRef(*comm.front()),
                          c10::DeviceType::CPU};
  StepRun run;
  Flights flights(kMicroBatches, setup.shape().units.size());
  int reads = 0;
  const RowSource rows = [&](std::int64_t step, std::int64_t first, std::int64_t count,
                             SampleRows& out) {
    ++reads;
    Rows()(step, first, count, out);
    out.cu_seqlens.clear();
  };
  BatchOps batches({setup, run, flights, true}, rows, {});
  const Program program = write_train_step(setup.shape());
  run.begin_program(program, RunMode::kTrain, 1, {kRows, kSeq});
  flights.begin_program();
  EXPECT_GT(batches.loss_factor(), 0);
  EXPECT_EQ(run.learned_targets, 11);
  batches.load({.micro_batch = 0});
  EXPECT_EQ(reads, 1);
  EXPECT_EQ(*host_data<std::int64_t>(flights.of(0).targets), 100);
}

INSTANTIATE_TEST_SUITE_P(Stages, BatchDocuments, ::testing::Values(1, 3));

}  // namespace
}  // namespace sluice
