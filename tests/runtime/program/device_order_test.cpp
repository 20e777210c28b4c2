// That the order a program promises (op_order) is kept by a device that runs behind its host, with
// the executor's threads and the rules of offload/device_copies.hpp; and that each rule is needed.
//
// An operation has four moments: its thread goes on with it (go), its first and last touch of
// memory (begin, end), and the host knowing it over (done). What follows what is written down
// below, from how streams, events and threads work and not from op_order. Then, wherever the
// program says that A is over when B begins:
//   both touch the device   A's end comes before B's begin
//   both touch the host     A is done before B goes on
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/check/op_order.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

struct Rules {
  bool marks = true;    // after(mark()) before an operation of another thread touches the device
  bool settles = true;  // settle() when it has waited
  bool ends = true;     // settle() at the end of one that copies
};

// What comes before what. Moments are given in an order in which none comes before an earlier one.
class Moments {
 public:
  using Moment = std::size_t;

  explicit Moments(std::size_t count) : words_((count + 63) / 64) {}

  Moment add(const std::vector<Moment>& after) {
    std::vector<std::uint64_t> before(words_, 0);
    for (const Moment m : after) {
      for (std::size_t w = 0; w < words_; ++w) before[w] |= before_[m][w];
      before[m / 64] |= std::uint64_t{1} << m % 64;
    }
    before_.push_back(std::move(before));
    return before_.size() - 1;
  }
  [[nodiscard]] bool ordered(Moment first, Moment second) const {
    return (before_[second][first / 64] >> first % 64 & 1) != 0;
  }

 private:
  std::size_t words_;
  std::vector<std::vector<std::uint64_t>> before_;
};

bool copies(Lane lane) { return lane == Lane::kToHost || lane == Lane::kToDevice; }
bool on_device(Lane lane) { return lane == Lane::kCompute || lane == Lane::kComm || copies(lane); }
bool on_host(Lane lane) { return lane != Lane::kComm; }

class Device {
 public:
  using Moment = Moments::Moment;
  struct Op4 {
    Moment go = 0, begin = 0, end = 0, done = 0;
  };

  Device(const Program& program, const Rules& rules)
      : program_(program),
        rules_(rules),
        moments_(4 * program.ops.size() + 1),
        before_(moments_.add({})),
        executing_(before_),
        compute_(before_),
        wire_(before_),
        lanes_(static_cast<std::size_t>(kLaneCount), before_),
        wire_has_thread_(std::any_of(
            program.ops.begin(), program.ops.end(),
            [](const sluice::Op& op) { return op.lane == Lane::kComm && !op.waits.empty(); })) {
    for (const sluice::Op& op : program.ops) {
      ops_.push_back(op.lane == Lane::kCompute                     ? compute(op)
                     : op.lane == Lane::kComm && !wire_has_thread_ ? issued_here(op)
                                                                   : beside(op));
    }
  }

  // The first promise that is not kept; empty: all are.
  [[nodiscard]] std::string fault() const {
    const OpOrder order(program_);
    for (std::size_t b = 0; b < ops_.size(); ++b) {
      const Lane lane = program_.ops[b].lane;
      if (on_device(lane) && !moments_.ordered(before_, ops_[b].begin)) {
        return describe(program_.ops[b]) + " begins before the program";
      }
      for (std::size_t a = 0; a < b; ++a) {
        if (!order.over(static_cast<OpId>(a), static_cast<OpId>(b))) continue;
        const Lane other = program_.ops[a].lane;
        const bool device = on_device(lane) && on_device(other);
        const bool host = on_host(lane) && on_host(other);
        if ((device && !moments_.ordered(ops_[a].end, ops_[b].begin)) ||
            (host && !moments_.ordered(ops_[a].done, ops_[b].go))) {
          return describe(program_.ops[b]) + " does not wait for " + describe(program_.ops[a]);
        }
      }
    }
    return "";
  }

 private:
  // The executing thread waits; what it waits for on the wire holds up the compute stream, and the
  // thread only until that is issued. It issues and goes on.
  Op4 compute(const sluice::Op& op) {
    std::vector<Moment> thread{executing_};
    std::vector<Moment> stream{compute_};
    for (const OpId w : op.waits) wait(w, thread, stream);
    Op4 now;
    now.go = moments_.add(thread);
    stream.push_back(now.go);
    now.begin = moments_.add(stream);
    now.end = moments_.add({now.begin});
    now.done = executing_ = moments_.add({now.go});
    compute_ = now.end;
    return now;
  }

  // On the wire's stream, after what the compute stream was given so far.
  Op4 issued_here(const sluice::Op& /*op*/) {
    Op4 now;
    now.go = executing_ = moments_.add({executing_});
    now.begin = moments_.add({now.go, compute_, wire_});
    now.end = wire_ = moments_.add({now.begin});
    now.done = moments_.add({now.go});  // that it is issued
    return now;
  }

  Op4 beside(const sluice::Op& op) {
    Moment& lane = lanes_[static_cast<std::size_t>(op.lane)];
    std::vector<Moment> thread{executing_, lane};
    std::vector<Moment> stream;  // the thread's own
    for (const OpId w : op.waits) wait(w, thread, stream);
    if (rules_.settles) thread.insert(thread.end(), stream.begin(), stream.end());
    Op4 now;
    now.go = moments_.add(thread);
    stream.push_back(now.go);
    if (rules_.marks && on_device(op.lane)) stream.push_back(compute_);
    if (op.lane == Lane::kComm) stream.push_back(wire_);
    const bool streams = on_device(op.lane);
    now.begin = moments_.add(streams ? stream : std::vector<Moment>{now.go});
    now.end = moments_.add({now.begin});
    const bool host_waits =
        op.lane == Lane::kHost || op.lane == Lane::kDisk || (copies(op.lane) && rules_.ends);
    now.done = moments_.add({host_waits ? now.end : now.go});
    if (op.lane == Lane::kComm) wire_ = now.end;
    // The disk is given several things at a time.
    lane = op.lane == Lane::kDisk ? now.go : now.done;
    return now;
  }

  void wait(OpId of, std::vector<Moment>& thread, std::vector<Moment>& stream) const {
    const Op4& other = ops_[static_cast<std::size_t>(of)];
    thread.push_back(other.done);  // of the wire: that it is issued
    if (program_.ops[static_cast<std::size_t>(of)].lane == Lane::kComm) stream.push_back(other.end);
  }

  const Program& program_;
  const Rules rules_;
  Moments moments_;
  const Moment before_;  // what the program before left on the compute stream is over
  Moment executing_, compute_, wire_;
  std::vector<Moment> lanes_;
  const bool wire_has_thread_;
  std::vector<Op4> ops_;
};

// Every tier that has a meaning, in every stage, the rest by chance.
void for_each_program(const std::function<void(const Program&, const std::string&)>& visit) {
  std::mt19937_64 random(5);
  const auto any = [&](int n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
  };
  for (int i = 0; i < kPlacements * 4; i += kCaseStride) {
    ShapeChoice choice{.stage = i % 4,
                       .dp = 1 + any(3),
                       .micro_batches = 1 + 2 * any(2),
                       .layer_major = any(2) == 0,
                       .recompute = any(2) == 0,
                       .bucket_bytes = any(2) == 0 ? 3000 : 30'000,
                       .prefetch_units = any(3),
                       .tied = any(2) == 0,
                       .persist = any(2) == 0};
    Placement& p = choice.placement;
    place(p, i / 4);
    if (!is_legal(choice)) continue;
    const bool only_states = p.parameters == Tier::kDevice && p.gradients == Tier::kDevice;
    p.device_fraction = !only_states || any(2) == 0 ? 0 : 0.9;
    p.chunk_elems = 512;
    p.chunk_slots = 1 + any(4);
    p.speculate = any(2) == 0;
    const StepShape shape = make_shape(choice);
    visit(write_train_step(shape), name_of(choice));
    visit(write_update_step(shape), name_of(choice) + ", updates");
    visit(write_eval_step(shape), name_of(choice) + ", evaluation");
  }
}

TEST(DeviceOrder, WhatAProgramPromisesIsKept) {
  int programs = 0;
  for_each_program([&](const Program& program, const std::string& name) {
    ++programs;
    EXPECT_EQ(Device(program, {}).fault(), "") << name;
  });
  EXPECT_GT(programs, 200 / kCaseStride);
}

int broken(const Rules& rules) {
  int count = 0;
  for_each_program([&](const Program& program, const std::string& /*name*/) {
    count += Device(program, rules).fault().empty() ? 0 : 1;
  });
  return count;
}

TEST(DeviceOrder, NeitherMarksNorEndsMayBeLeftOut) {
  EXPECT_GT(broken({.marks = false}), 0);
  EXPECT_GT(broken({.ends = false}), 0);
}

// In no program of today does a host or disk operation wait for a collective. Where one did, those
// that wait for it would take the collective to be over.
TEST(DeviceOrder, WhoWaitsForACollectiveMustSettle) {
  EXPECT_EQ(broken({.settles = false}), 0);
  Program program;
  program.ops.push_back({.kind = OpKind::kBackward});
  program.ops.push_back({.kind = OpKind::kReduceGrads, .lane = Lane::kComm});
  program.ops.push_back({.kind = OpKind::kUpdate, .lane = Lane::kHost, .waits = {1}});
  program.ops.push_back({.kind = OpKind::kCopyParams, .lane = Lane::kToDevice, .waits = {2}});
  EXPECT_EQ(Device(program, {}).fault(), "");
  EXPECT_NE(Device(program, {.settles = false}).fault(), "");
}

}  // namespace
}  // namespace sluice
