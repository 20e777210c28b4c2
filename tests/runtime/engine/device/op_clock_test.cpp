#include "runtime/engine/ops/op_clock.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace sluice {
namespace {

// A device whose time a test sets. An event has completed once the device has come to its time.
struct FakeDevice {
  double ms = 0;             // the time at which an event that is recorded now completes
  double reached_ms = 1e9;   // up to here events have completed
  int waits = 0;             // of the host
  bool communicates = true;  // whether a followed operation calls its communicator
};

class FakeEvent final : public DeviceEvent {
 public:
  explicit FakeEvent(FakeDevice& device) : device_(device) {}
  void record() override { at_ = device_.ms; }
  [[nodiscard]] std::optional<double> ms_after(const DeviceEvent& base) const override {
    const auto& from = static_cast<const FakeEvent&>(base);
    if (!at_ || !from.at_ || *at_ > device_.reached_ms) return std::nullopt;
    return *at_ - *from.at_;
  }
  void wait() override {
    ++device_.waits;
    device_.reached_ms = std::max(device_.reached_ms, at_.value_or(0));
  }

 private:
  FakeDevice& device_;
  std::optional<double> at_;
};

class FakeEvents final : public DeviceEvents {
 public:
  explicit FakeEvents(FakeDevice& device) : device_(device) {}
  [[nodiscard]] std::unique_ptr<DeviceEvent> make() override {
    return std::make_unique<FakeEvent>(device_);
  }
  void follow_calls(DeviceEvent& begin, DeviceEvent& end) override {
    begin_ = &begin;
    end_ = &end;
  }
  bool leave_calls() noexcept override {
    if (!device_.communicates) return false;
    device_.ms += 1;  // the communicator's stream begins later
    begin_->record();
    device_.ms += 4;
    end_->record();
    return true;
  }

 private:
  FakeDevice& device_;
  DeviceEvent* begin_ = nullptr;
  DeviceEvent* end_ = nullptr;
};

constexpr std::size_t kForward = 0, kReduce = 1, kBackward = 2, kHost = 3, kNorm = 4, kUpdate = 5;

class OpClockTest : public ::testing::Test {
 protected:
  OpClockTest() {
    program_.ops = {{.kind = OpKind::kForward},
                    {.kind = OpKind::kReduceGrads, .lane = Lane::kComm},
                    {.kind = OpKind::kBackward, .waits = {1}},
                    {.kind = OpKind::kUpdate, .lane = Lane::kHost, .chunk = 0},
                    {.kind = OpKind::kNormAndScale},
                    {.kind = OpKind::kUpdate}};
  }

  // Operations last 10 ms on the device, the update of step s 10 x s; Backward waits 2 ms before.
  void step(int number) {
    clock_.begin_program(program_, true);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (!op.waits.empty()) {
        clock_.waits(op);
        device_.ms += 2;
      }
      timed(&clock_, op, [&] {
        device_.ms += i == kUpdate ? 10 * number : 10;
        if (i == kNorm) clock_.read();
        return 0;
      });
    }
  }
  [[nodiscard]] std::vector<OpTiming> applied() const {
    std::vector<OpTiming> timings(program_.ops.size());
    clock_.apply(timings);
    return timings;
  }
  static std::int64_t us(const OpTiming& timing) { return timing.end_us - timing.begin_us; }
  static std::int64_t lane_us(const OpTiming& timing) {
    return timing.lane_end_us - timing.lane_begin_us;
  }

  Program program_;
  FakeDevice device_;
  OpClock clock_{std::make_unique<FakeEvents>(device_)};
};

TEST_F(OpClockTest, AStepHasItsOwnTimesBeforeTheNormAndThoseOfTheStepBeforeFromThere) {
  step(1);
  const std::vector<OpTiming> first = applied();
  EXPECT_EQ(us(first[kForward]), 10'000);
  EXPECT_EQ(lane_us(first[kReduce]), 4'000);
  EXPECT_EQ(us(first[kBackward]), 10'000);
  EXPECT_EQ(first[kBackward].begin_us - first[kBackward].wait_us, 2'000);
  EXPECT_EQ(us(first[kNorm]), 0);  // of no step yet
  step(2);
  EXPECT_EQ(us(applied()[kForward]), 10'000);
  EXPECT_EQ(us(applied()[kNorm]), 10'000);
  EXPECT_EQ(us(applied()[kUpdate]), 10'000);
  step(3);
  EXPECT_EQ(us(applied()[kUpdate]), 20'000);
  EXPECT_EQ(device_.waits, 0);
}

TEST_F(OpClockTest, TheHostsLanesKeepTheHostsTimes) {
  step(1);
  std::vector<OpTiming> timings(program_.ops.size());
  timings[kHost] = {.lane_begin_us = 7, .lane_end_us = 9};
  clock_.apply(timings);
  EXPECT_EQ(timings[kHost].lane_begin_us, 7);
  EXPECT_EQ(timings[kHost].lane_end_us, 9);
}

TEST_F(OpClockTest, AnExchangeThatSendsNothingHasNoLength) {
  device_.communicates = false;
  step(1);
  EXPECT_EQ(lane_us(applied()[kReduce]), 0);
  EXPECT_GT(applied()[kReduce].lane_end_us, 0);
}

TEST_F(OpClockTest, AnOperationThatStillRunsKeepsTheHostsTimes) {
  step(1);
  device_.reached_ms = device_.ms + 5;  // in the forward
  step(2);
  EXPECT_EQ(us(applied()[kForward]), 0);
  EXPECT_EQ(us(applied()[kUpdate]), 10'000);  // of step 1
}

TEST_F(OpClockTest, TheLastStepIsReadAsAWholeInTheDevicesOrder) {
  step(1);
  step(2);
  device_.reached_ms = device_.ms - 15;  // in the update
  std::vector<OpTiming> timings(program_.ops.size());
  std::vector<ExchangeTiming> none;
  clock_.finish(timings, none);
  EXPECT_EQ(device_.waits, 1);
  EXPECT_EQ(us(timings[kUpdate]), 20'000);
  EXPECT_EQ(timings[kForward].end_us + 1'000 + 10'000, timings[kReduce].lane_begin_us);
  EXPECT_EQ(timings[kReduce].lane_end_us, timings[kBackward].wait_us);
  EXPECT_LE(timings[kBackward].end_us, timings[kNorm].begin_us);
  EXPECT_EQ(timings[kNorm].end_us, timings[kUpdate].begin_us);
}

TEST_F(OpClockTest, ExchangesInsideAnOperationHaveTheDevicesTimes) {
  clock_.begin_program(program_, true);
  ExchangeTiming exchange;
  exchange.started = clock_.stamp();
  device_.ms += 3;
  exchange.needed = clock_.stamp();
  device_.ms += 5;
  exchange.finished = clock_.stamp();
  clock_.read();
  std::vector<OpTiming> timings;
  std::vector<ExchangeTiming> exchanges{exchange};
  clock_.finish(timings, exchanges);
  EXPECT_EQ(exchanges[0].needed - exchanges[0].started, std::chrono::milliseconds(3));
  EXPECT_EQ(exchanges[0].finished - exchanges[0].needed, std::chrono::milliseconds(5));
}

TEST_F(OpClockTest, OtherProgramsAreNotTimed) {
  step(1);
  const std::vector<OpTiming> before = applied();
  clock_.begin_program(program_, false);
  timed(&clock_, program_.ops[kForward], [&] {
    device_.ms += 100;
    return 0;
  });
  clock_.read();
  EXPECT_EQ(us(applied()[kForward]), us(before[kForward]));
}

TEST_F(OpClockTest, AnOperationThatFailsIsLeft) {
  device_.communicates = false;
  clock_.begin_program(program_, true);
  EXPECT_THROW(timed(&clock_, program_.ops[kReduce], []() -> int { throw Error("peer gone"); }),
               Error);
}

}  // namespace
}  // namespace sluice
