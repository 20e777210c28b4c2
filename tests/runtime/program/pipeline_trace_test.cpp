// A pipeline that is really run, by one thread a stage over communicators of the process, with
// sleeps in place of computation: takes as long as the model says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "parallel/mesh_comms.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/program/model/pipeline_time.hpp"
#include "tests/runtime/program/stages.hpp"

namespace sluice {
namespace {

constexpr double kForwardSeconds = 0.012;  // of a unit, one micro-batch
constexpr int kAttempts = 8;               // a busy machine wakes sleepers late

double seconds_of(const Op& op) {
  if (op.unit < 0) return 0;
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kBackwardWeights:
      return kForwardSeconds;
    case OpKind::kBackward:
      return kForwardSeconds * (op.split ? 1 : 2);
    default:
      return 0;
  }
}

// Sleeps until the instant an operation would end, counted from when it began: lateness does not
// add up within a run of operations.
class SleepingStage final : public OpHandler {
 public:
  SleepingStage(const Program& program, const MeshComms& comms)
      : comms_(comms), tensors_(program.buffers.size()) {
    for (std::size_t b = 0; b < tensors_.size(); ++b) {
      tensors_[b].resize(static_cast<std::size_t>(program.buffers[b].bytes));
    }
  }

  Ticket run(const Op& op) override {
    const PipelineLinks& links = comms_.links();
    switch (op.kind) {
      case OpKind::kSendActivation:
        return links.activations_out->send(1, data(op), size(op));
      case OpKind::kReceiveActivation:
        return links.activations_in->receive(0, data(op), size(op));
      case OpKind::kSendGradient:
        return links.gradients_out->send(1, data(op), size(op));
      case OpKind::kReceiveGradient:
        return links.gradients_in->receive(0, data(op), size(op));
      case OpKind::kNormAndScale:
        comms_.world().barrier();
        return {};
      default:
        if (seconds_of(op) > 0) work(seconds_of(op));
        return {};
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void work(double seconds) {
    const auto now = Clock::now();
    const auto length =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    // What woke up late makes the next one shorter, if nothing else came between.
    until_ = (now - until_ < std::chrono::milliseconds(2) ? until_ : now) + length;
    std::this_thread::sleep_until(until_);
  }
  void* data(const Op& op) { return tensors_[static_cast<std::size_t>(op.device_slot)].data(); }
  std::int64_t size(const Op& op) const {
    return static_cast<std::int64_t>(tensors_[static_cast<std::size_t>(op.device_slot)].size());
  }

  const MeshComms& comms_;
  std::vector<std::vector<std::byte>> tensors_;
  Clock::time_point until_{};
};

// From the first operation of any stage to the last norm.
double run_once(const std::vector<Program>& programs) {
  const auto stages = static_cast<int>(programs.size());
  std::vector<MeshComms> comms =
      make_local_mesh_comms(Mesh({.pipeline = stages}, stages), {.tied = false, .wraps = true});
  std::vector<double> took(programs.size());
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < programs.size(); ++s) {
    threads.emplace_back([&, s] {
      SleepingStage handler(programs[s], comms[s]);
      LaneThreads lanes;
      std::vector<OpTiming> timings;
      comms[s].world().barrier();
      execute(programs[s], handler, lanes, timings);
      took[s] = 1e-6 * static_cast<double>(timings.back().end_us - timings.front().wait_us);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(took.begin(), took.end());
}

TEST(PipelineTrace, TakesAsLongAsTheModelSays) {
  const PipelineRun runs[] = {{PipelineSchedule::kGpipe, 4, 1, 6},
                              {PipelineSchedule::k1f1b, 4, 1, 6},
                              {PipelineSchedule::kInterleaved, 4, 2, 4},
                              {PipelineSchedule::kZeroBubble, 4, 1, 6}};
  for (const PipelineRun& run : runs) {
    // The embedding's stage has a unit more than the others: not all stages are equal.
    const std::vector<Program> programs =
        write_stages(make_stages({.stage = 2, .blocks = 4 * run.virtual_stages + 1}, run));
    std::vector<std::vector<double>> seconds;
    for (const Program& program : programs) {
      seconds.emplace_back();
      for (const Op& op : program.ops) seconds.back().push_back(seconds_of(op));
    }
    const double predicted = model_pipeline_time(programs, seconds).step_s;
    double best = 1e9;
    for (int i = 0; i < kAttempts && std::abs(best / predicted - 1) > 0.05; ++i) {
      best = std::min(best, run_once(programs));
    }
    EXPECT_NEAR(best / predicted, 1, 0.05) << name_of(run);
  }
}

}  // namespace
}  // namespace sluice
