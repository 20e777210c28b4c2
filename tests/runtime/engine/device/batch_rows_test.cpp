// The rows of a micro-batch are read once a program, whatever asks for them first.
#include <gtest/gtest.h>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/ops/batch_ops.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/rank_part.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/program/write/step_writer.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kSeq = 16, kRows = 2;
constexpr int kMicroBatches = 3;

// The number of learned targets is asked for before LoadBatch of the loss head's stage.
TEST(BatchRows, OfALastStageAreReadOnceForTheLossFactorAndTheLoad) {
  const auto comm = make_local_communicators(1);
  EngineOptions options;
  options.model = {.layers = 4, .hidden = 32, .heads = 2, .vocab = 61, .seq = kSeq};
  options.train.micro_batch = kRows;
  options.train.global_batch = kRows * kMicroBatches;
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
    out.tokens.assign(static_cast<std::size_t>(count * kSeq), step * 100 + first);
    out.targets = out.tokens;
    out.learned_targets = 11;
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

}  // namespace
}  // namespace sluice
