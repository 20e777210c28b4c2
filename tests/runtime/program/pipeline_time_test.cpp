// The time model of whole pipelines against what is known of their schedules.
#include "runtime/program/model/pipeline_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "runtime/program/check/pipeline_check.hpp"
#include "runtime/program/write/use_order.hpp"
#include "tests/runtime/program/stages.hpp"

namespace sluice {
namespace {

// Every slot costs what its kind does, shared by its units; all else, and sending, nothing.
std::vector<double> slot_seconds(const StepShape& shape, const Program& program,
                                 const SlotCosts& costs, double transfer = 0) {
  std::vector<double> seconds(program.ops.size(), 0);
  const UseOrder order = order_uses(shape, true);
  std::size_t next = 0;  // use
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.lane == Lane::kPipe) seconds[i] = transfer;
    if (op.lane != Lane::kCompute || op.unit < 0) continue;
    const auto slot = std::find_if(order.slots.begin(), order.slots.end(), [&](const SlotUses& s) {
      return s.begin <= next && next < s.end;
    });
    seconds[i] = costs.of(slot->slot.kind) / static_cast<double>(slot->end - slot->begin);
    ++next;
  }
  return seconds;
}

PipelineTime time_of(const PipelineRun& run, const SlotCosts& costs = {}, double transfer = 0) {
  const std::vector<StepShape> shapes =
      make_stages({.blocks = 2 * run.stages * run.virtual_stages - 2}, run);
  const std::vector<Program> programs = write_stages(shapes);
  std::vector<std::vector<double>> seconds;
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    seconds.push_back(slot_seconds(shapes[s], programs[s], costs, transfer));
  }
  return model_pipeline_time(programs, seconds);
}

TEST(PipelineTime, BubblesAreThoseOfTheory) {
  int i = 0;
  for (const PipelineRun& run : all_runs(8, 32, 4)) {
    if (i++ % (2 * kCaseStride) != 0) continue;
    const PipelineTime time = time_of(run);
    const double p = run.stages;
    const double m = run.micro_batches;
    const double v = run.virtual_stages;
    double bubble = (p - 1) / (v * m + p - 1);
    switch (run.schedule) {
      case PipelineSchedule::kInterleaved:
        if (run.micro_batches % run.stages > 0) continue;
        break;
      case PipelineSchedule::kZeroBubble:
        for (const double share : time.bubble) ASSERT_LT(share, bubble) << name_of(run);
        if (m < p) continue;
        bubble = (p - 1) / (3 * m + p - 1);  // (p - 1)(F + B - W) beside m(F + B + W)
        break;
      default:
        break;
    }
    for (const double share : time.bubble) ASSERT_NEAR(share, bubble, 1e-9) << name_of(run);
    ASSERT_NEAR(time.step_s, 3 * v * m / (1 - bubble), 1e-9) << name_of(run);
  }
}

// Where p does not divide m: no worse than the next multiple, and better than without chunks from
// one round on.
TEST(PipelineTime, UnevenMicroBatchesAreInterleavedToo) {
  for (const int p : {2, 3, 4, 7}) {
    for (const int v : {2, 3}) {
      for (int m = 1; m <= 3 * p; ++m) {
        const double uneven = time_of({PipelineSchedule::kInterleaved, p, v, m}).step_s;
        const int padded = (m + p - 1) / p * p;
        EXPECT_LE(uneven, 3.0 * (v * padded + p - 1) + 1e-9) << p << " " << v << " " << m;
        EXPECT_GE(uneven, 3.0 * v * m);
      }
    }
  }
}

TEST(PipelineTime, TransfersAreHiddenWhereThereIsWorkBesideThem) {
  const double none = time_of({PipelineSchedule::kGpipe, 4, 1, 16}).step_s;
  const double some = time_of({PipelineSchedule::kGpipe, 4, 1, 16}, {}, 0.01).step_s;
  // Filling and draining alone: p - 1 hops each way.
  EXPECT_NEAR(some - none, 2 * 3 * 0.01, 1e-9);
}

TEST(PipelineTime, AStageThatIsSlowerMakesTheOthersWait) {
  const PipelineRun run{PipelineSchedule::k1f1b, 3, 1, 5};
  const std::vector<StepShape> shapes = make_stages({.blocks = 5}, run);  // 3 + 2 + 2 units
  const std::vector<Program> programs = write_stages(shapes);
  std::vector<std::vector<double>> seconds;
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    seconds.push_back(slot_seconds(shapes[s], programs[s], {}));
    for (double& each : seconds.back()) each *= s == 0 ? 1.5 : 1;
  }
  const PipelineTime time = model_pipeline_time(programs, seconds);
  EXPECT_NEAR(time.bubble[0], 1 - 5 * 4.5 / time.step_s, 1e-9);
  EXPECT_GT(time.bubble[1], time.bubble[0]);
  seconds[1].pop_back();
  EXPECT_THROW((void)model_pipeline_time(programs, seconds), Error);
}

TEST(PipelineTime, ProgramsThatDoNotFitAreRefused) {
  const PipelineRun run{PipelineSchedule::k1f1b, 2, 1, 3};
  std::vector<Program> programs = write_stages(make_stages({.blocks = 2}, run));
  std::vector<std::vector<double>> seconds;
  for (const Program& program : programs) {
    seconds.emplace_back(program.ops.size(), 1.0);
  }
  EXPECT_NO_THROW((void)model_pipeline_time(programs, seconds));
  const PipelineRun other{PipelineSchedule::k1f1b, 2, 1, 4};
  programs[1] = write_stages(make_stages({.blocks = 2}, other))[1];
  seconds[1].assign(programs[1].ops.size(), 1.0);
  EXPECT_THROW((void)model_pipeline_time(programs, seconds), Error);
}

TEST(PipelineTime, RatesPriceTheWires) {
  const PipelineRun run{PipelineSchedule::kZeroBubble, 2, 1, 4};
  std::vector<StepShape> shapes = make_stages({.tied = true, .blocks = 4}, run);
  for (StepShape& shape : shapes) {
    shape.tensor = 2;
    for (UnitShape& unit : shape.units) unit.exchanges.forward = {{.bytes = 500, .times = 2}};
  }
  const std::vector<Program> programs = write_stages(shapes);
  const auto step = [&](const Rates& rates) {
    return predict_pipeline_time(programs, shapes, std::vector<Rates>(2, rates)).step_s;
  };
  Rates rates{.flops = 1e3, .comm_bps = 1e6};
  const double plain = step(rates);
  rates.pipe_bps = 1e3;
  const double slow_pipe = step(rates);
  EXPECT_GT(slow_pipe, plain);
  rates.tensor_bps = 1e3;
  EXPECT_GT(step(rates), slow_pipe);
  const Traffic traffic = traffic_of(programs[0]);
  EXPECT_EQ(traffic.pipe, 4 * shapes[0].pipeline.message_bytes);
  EXPECT_EQ(traffic.tensor, 4 * 1000 * static_cast<std::int64_t>(shapes[0].units.size()));
  EXPECT_GT(traffic.ends, 0);
}

// All stages come to a meeting, and a stage that holds back what another one needs before it is a
// deadlock.
TEST(PipelineTime, MeetingsAreOfAllStages) {
  const PipelineRun run{PipelineSchedule::k1f1b, 2, 1, 4};
  const std::vector<Program> sound = write_stages(make_stages({.blocks = 2}, run));
  const auto with_meetings = [&](OpKind first, OpKind second) {
    std::vector<Program> programs = sound;
    for (std::size_t s = 0; s < programs.size(); ++s) {
      std::vector<Op>& ops = programs[s].ops;
      const auto at = std::find_if(ops.begin(), ops.end(), [&](const Op& op) {
        return op.kind == (s == 0 ? first : second);
      });
      const auto place = static_cast<OpId>(at - ops.begin());
      ops.insert(at + 1, {.kind = OpKind::kMeet});
      for (Op& op : ops) {
        for (OpId& wait : op.waits) wait += wait > place ? 1 : 0;
      }
    }
    std::vector<std::vector<double>> seconds;
    for (const Program& program : programs) seconds.emplace_back(program.ops.size(), 1.0);
    const std::string fault = find_pipeline_fault(programs);
    if (fault.empty()) {
      EXPECT_GT(model_pipeline_time(programs, seconds).step_s, 0);
    } else {
      EXPECT_THROW((void)model_pipeline_time(programs, seconds), Error);
    }
    return fault;
  };
  EXPECT_EQ(with_meetings(OpKind::kSendActivation, OpKind::kForward), "");
  EXPECT_NE(with_meetings(OpKind::kForward, OpKind::kForward), "");
  EXPECT_NE(with_meetings(OpKind::kBackward, OpKind::kBackward), "");
  std::vector<Program> one_alone = sound;
  one_alone[1].ops.insert(one_alone[1].ops.end() - 1, {.kind = OpKind::kMeet});
  EXPECT_NE(find_pipeline_fault(one_alone).find("waits for ever"), std::string::npos);
  std::vector<Program> other_norm = sound;
  for (Op& op : other_norm[0].ops) {
    if (op.kind == OpKind::kNormAndScale) op.kind = OpKind::kMeet;
  }
  EXPECT_NE(find_pipeline_fault(other_norm).find("waits for ever"), std::string::npos);
}

}  // namespace
}  // namespace sluice
