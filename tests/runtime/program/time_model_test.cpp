// The time model against schedules worked out by hand, and what has to hold for every schedule.
#include "runtime/program/model/time_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

std::size_t at(Lane lane) { return static_cast<std::size_t>(lane); }

// A program of operations that only wait for each other.
class Sketch {
 public:
  OpId add(Lane lane, double seconds, std::vector<OpId> waits = {},
           OpKind kind = OpKind::kForward) {
    Op op{.kind = kind, .lane = lane};
    op.waits = std::move(waits);
    program_.ops.push_back(std::move(op));
    seconds_.push_back(seconds);
    return static_cast<OpId>(seconds_.size()) - 1;
  }
  [[nodiscard]] TimeReport time(double duplex = 1, bool shared_cores = false) const {
    return schedule(program_, seconds_, duplex, shared_cores);
  }

 private:
  Program program_;
  std::vector<double> seconds_;
};

TEST(TimeModel, ComputeRunsInOrderAndWaitsForWhatItNeeds) {
  Sketch s;
  const OpId gather = s.add(Lane::kComm, 3);
  s.add(Lane::kCompute, 1);            // 0 .. 1, beside the gather
  s.add(Lane::kCompute, 2, {gather});  // waits 1 .. 3, runs 3 .. 5
  const TimeReport time = s.time();
  EXPECT_DOUBLE_EQ(time.step_s, 5);
  EXPECT_DOUBLE_EQ(time.timeline[2].begin, 3);
  EXPECT_DOUBLE_EQ(time.waiting[at(Lane::kComm)], 2);
  EXPECT_DOUBLE_EQ(time.busy[at(Lane::kCompute)], 3);
  EXPECT_EQ(time.limiting, Lane::kCompute);
}

TEST(TimeModel, ALaneStartsInOrderOfIssue) {
  Sketch s;
  const OpId slow = s.add(Lane::kDisk, 4, {}, OpKind::kReadShard);
  const OpId first = s.add(Lane::kToDevice, 1, {slow});  // 4 .. 5
  s.add(Lane::kToDevice, 1);                             // stands behind it: 5 .. 6
  s.add(Lane::kCompute, 2, {first});                     // 5 .. 7
  const TimeReport time = s.time();
  EXPECT_DOUBLE_EQ(time.timeline[2].begin, 5);
  EXPECT_DOUBLE_EQ(time.step_s, 7);
  EXPECT_DOUBLE_EQ(time.waiting[at(Lane::kDisk)], 4);
  EXPECT_DOUBLE_EQ(time.waiting[at(Lane::kToDevice)], 1);
}

TEST(TimeModel, NothingIsIssuedBeforeComputeComesToIt) {
  Sketch s;
  s.add(Lane::kCompute, 5);
  s.add(Lane::kComm, 2);  // 5 .. 7; the step waits for it
  const TimeReport time = s.time();
  EXPECT_DOUBLE_EQ(time.step_s, 7);
  EXPECT_DOUBLE_EQ(time.waiting[at(Lane::kComm)], 2);
}

TEST(TimeModel, AWaitingCollectiveHoldsUpTheWireBehindIt) {
  Sketch s;
  const OpId fetch = s.add(Lane::kToDevice, 3);
  const OpId gather = s.add(Lane::kComm, 1, {fetch});  // 3 .. 4
  const OpId reduce = s.add(Lane::kComm, 1);           // 4 .. 5
  s.add(Lane::kCompute, 1, {gather, reduce});          // 5 .. 6
  const TimeReport time = s.time();
  EXPECT_DOUBLE_EQ(time.step_s, 6);
  EXPECT_DOUBLE_EQ(time.waiting[at(Lane::kToDevice)], 3);
  EXPECT_DOUBLE_EQ(time.waiting[at(Lane::kComm)], 2);
}

TEST(TimeModel, DirectionsOfADiskShareIt) {
  Sketch s;
  s.add(Lane::kDisk, 4, {}, OpKind::kReadStates);
  s.add(Lane::kDisk, 4, {}, OpKind::kWriteStates);
  EXPECT_DOUBLE_EQ(s.time(1).step_s, 8);    // half duplex: one after the other
  EXPECT_DOUBLE_EQ(s.time(2).step_s, 4);    // full duplex
  EXPECT_DOUBLE_EQ(s.time(1.6).step_s, 5);  // 8 / 1.6
  EXPECT_DOUBLE_EQ(s.time(1.6).busy[at(Lane::kDisk)], 5);
  Sketch one;
  one.add(Lane::kDisk, 4, {}, OpKind::kReadStates);
  EXPECT_DOUBLE_EQ(one.time(0.5).step_s, 4);  // alone it has the whole disk
}

TEST(TimeModel, LanesOfOneProcessorDoNotComputeSideBySide) {
  Sketch s;
  s.add(Lane::kHost, 3, {}, OpKind::kSumSquares);
  s.add(Lane::kCompute, 4);
  EXPECT_DOUBLE_EQ(s.time().step_s, 4);
  EXPECT_DOUBLE_EQ(s.time(1, true).step_s, 7);
}

Rates some_rates() {
  return {.flops = 3e3,
          .device_memory_bps = 7e5,
          .device_adam = 2e4,
          .host_memory_bps = 1e5,
          .host_adam = 1e4,
          .comm_latency_s = 1e-3,
          .comm_bps = 9e4,
          .h2d_bps = 8e4,
          .d2h_bps = 6e4,
          .disk_read_bps = 5e4,
          .disk_write_bps = 4e4,
          .disk_duplex = 1.3};
}

// The longest chain of operations that wait for each other, with compute as one chain.
double critical_path(const Program& program, const std::vector<double>& seconds) {
  std::vector<double> end(seconds.size());
  double compute = 0;
  double longest = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Op& op = program.ops[i];
    double begin = compute;
    for (const OpId w : op.waits) begin = std::max(begin, end[static_cast<std::size_t>(w)]);
    end[i] = begin + seconds[i];
    if (op.lane == Lane::kCompute) compute = end[i];
    longest = std::max(longest, end[i]);
  }
  return longest;
}

// Programs of all writers, a sample of them: every one takes as long as its busiest lane and its
// critical path, and no longer than all its work in a row.
TEST(TimeModel, BoundsHoldForEveryWriter) {
  const Rates rates = some_rates();
  int count = 0;
  for_each_choice([&](const ShapeChoice& choice) {
    if (++count % 7 != 0) return;
    const StepShape shape = make_shape(choice);
    const Program program = write_train_step(shape);
    const std::vector<double> seconds = op_seconds(program, shape, rates);
    const TimeReport time = schedule(program, seconds, rates.disk_duplex);
    const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    const double slack = 1e-9 * all;
    const double busiest = *std::max_element(time.busy.begin(), time.busy.end());
    ASSERT_GE(time.step_s + slack, busiest) << name_of(choice);
    ASSERT_GE(time.step_s + slack, critical_path(program, seconds)) << name_of(choice);
    ASSERT_LE(time.step_s, all + slack) << name_of(choice);
    ASSERT_DOUBLE_EQ(time.busy[at(time.limiting)], busiest) << name_of(choice);
    const double waited = std::accumulate(time.waiting.begin(), time.waiting.end(), 0.0);
    ASSERT_NEAR(time.busy[at(Lane::kCompute)] + waited, time.step_s, slack) << name_of(choice);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      for (const OpId w : program.ops[i].waits) {
        ASSERT_GE(time.timeline[i].begin, time.timeline[static_cast<std::size_t>(w)].end);
      }
    }
  });
  EXPECT_GT(count, 100);
}

TEST(TimeModel, AFasterRateNeverSlows) {
  const std::vector<double Rates::*> fields{
      &Rates::flops,           &Rates::device_memory_bps, &Rates::device_adam,
      &Rates::host_memory_bps, &Rates::host_adam,         &Rates::comm_bps,
      &Rates::h2d_bps,         &Rates::d2h_bps,           &Rates::disk_read_bps,
      &Rates::disk_write_bps,  &Rates::disk_duplex};
  int count = 0;
  for_each_choice([&](const ShapeChoice& choice) {
    if (++count % 23 != 0) return;
    const StepShape shape = make_shape(choice);
    const Program program = write_train_step(shape);
    const double before = predict_time(program, shape, some_rates()).step_s;
    for (double Rates::*field : fields) {
      for (const double factor : {1.1, 3.0}) {
        Rates rates = some_rates();
        rates.*field *= factor;
        ASSERT_LE(predict_time(program, shape, rates).step_s, before * (1 + 1e-12))
            << name_of(choice);
      }
    }
    Rates twice = some_rates();
    for (double Rates::*field : fields) {
      if (field != &Rates::disk_duplex) twice.*field *= 2;
    }
    twice.comm_latency_s /= 2;
    ASSERT_NEAR(predict_time(program, shape, twice).step_s, before / 2, 1e-9 * before);
  });
}

// One rank, one block: every figure can be worked out.
TEST(TimeModel, PricesOperationsByTheirRates) {
  const StepShape shape = make_shape({.stage = 2, .dp = 2, .blocks = 1});
  const Program program = write_train_step(shape);
  Rates rates;
  rates.flops = 10;
  const TimeReport compute = predict_time(program, shape, rates);
  double flops = 0;
  for (const Op& op : program.ops) flops += op.flops;
  EXPECT_DOUBLE_EQ(compute.step_s, flops / 10);
  Rates wire;
  wire.comm_bps = 4;
  const Traffic traffic = traffic_of(program);
  const TimeReport sent = predict_time(program, shape, wire);
  EXPECT_DOUBLE_EQ(sent.busy[at(Lane::kComm)], static_cast<double>(traffic.wire) / 4);
  EXPECT_EQ(sent.limiting, Lane::kComm);
  Rates adam;
  adam.device_adam = 8;
  std::int64_t owned = 0;
  for (const GroupShape& group : shape.groups) owned += group.shard_elems;
  EXPECT_DOUBLE_EQ(predict_time(program, shape, adam).step_s, static_cast<double>(owned) / 8);
  rates.compute_factor = 3;
  EXPECT_DOUBLE_EQ(predict_time(program, shape, rates).step_s, 3 * flops / 10);
}

// A forward's scores are written and read once in each forward, also one that backward repeats.
TEST(TimeModel, ScoresOfAttentionTakeTheMemorysTime) {
  Rates rates;
  rates.device_memory_bps = 8;
  for (const bool recompute : {false, true}) {
    StepShape shape = make_shape({.stage = 2, .dp = 2, .recompute = recompute, .blocks = 1});
    const double before = predict_time(write_train_step(shape), shape, rates).step_s;
    shape.units[1].forward_score_bytes = 16;
    shape.units[1].backward_score_bytes = 40;
    const double after = predict_time(write_train_step(shape), shape, rates).step_s;
    EXPECT_NEAR(after - before, (recompute ? 72 : 56) / 8.0, 1e-9 * after) << recompute;
  }
}

// Bytes that cross are the model's, whatever the chunks: 12 of states each way, 4 of gradients, and
// the parameters.
// 4 bytes read and 2 written for each element that the rank rounds.
TEST(TimeModel, AGatherThatRoundsTakesAPassOverMasterWeights) {
  Rates rates;
  rates.device_memory_bps = 1e9;
  for (const int dp : {1, 3}) {
    const StepShape shape =
        make_shape({.stage = 3, .dp = dp, .dtype = DType::kFloat16, .rounds = true});
    const Program program = write_train_step(shape);
    const std::vector<double> seconds = op_seconds(program, shape, rates);
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      if (program.ops[i].kind != OpKind::kGather) continue;
      const auto elems = static_cast<double>(nth(shape.groups, program.ops[i].group).shard_elems);
      EXPECT_NEAR(seconds[i] * 1e9, 6 * elems, 1e-6 * elems) << "dp " << dp;
    }
  }
}

TEST(TimeModel, TrafficOfStatesOnDisk) {
  ShapeChoice choice{.stage = 3, .dp = 2, .blocks = 2};
  choice.placement.optimizer = Tier::kNvme;
  choice.placement.chunk_elems = kChunkAlignElems;
  choice.dtype = DType::kBFloat16;
  const StepShape shape = make_shape(choice);
  std::int64_t owned = 0;
  for (const GroupShape& group : shape.groups) owned += group.shard_elems;
  const Traffic traffic = traffic_of(write_train_step(shape));
  EXPECT_EQ(traffic.disk_read, 12 * owned);
  EXPECT_EQ(traffic.disk_written, 12 * owned);
  EXPECT_EQ(traffic.to_host, 4 * owned);
  EXPECT_EQ(traffic.to_device, 2 * owned);
}

}  // namespace
}  // namespace sluice
