#include "runtime/program/executor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

// Writes down what the executor does; operation `fails` throws at once or when waited for.
class FakeHandler : public OpHandler {
 public:
  explicit FakeHandler(const Program& program) : program_(program) {}

  Ticket run(const Op& op) override {
    const int id = index_of(op);
    events.push_back("run " + std::to_string(id));
    if (id == completes_all) complete_ = true;
    if (id == fails_at_once) throw IoError("no such luck", "file");
    if (op.lane == Lane::kCompute) return {};
    return Ticket(std::make_shared<State>(*this, id));
  }
  void waiting(const Op& op, bool begins) override {
    events.push_back((begins ? "wait " : "waited ") + std::to_string(index_of(op)));
  }

  std::vector<std::string> events;
  std::set<int> waited_for;
  int fails_at_once = -1;
  int fails_later = -1;
  int completes_all = -1;  // when it runs, all tickets are done

 private:
  class State : public TicketState {
   public:
    State(FakeHandler& handler, int id) : handler_(handler), id_(id) {}
    void wait() override {
      handler_.waited_for.insert(id_);
      handler_.events.push_back("ticket " + std::to_string(id_));
      if (id_ == handler_.fails_later) throw CommError("peer gone", true);
    }
    bool done() override { return handler_.complete_; }

   private:
    FakeHandler& handler_;
    int id_;
  };

  int index_of(const Op& op) const { return static_cast<int>(&op - program_.ops.data()); }

  const Program& program_;
  bool complete_ = false;
};

Program tiny() {
  Program program;
  program.ops.push_back({.kind = OpKind::kGather, .lane = Lane::kComm, .group = 2});
  program.ops.push_back({.kind = OpKind::kLoadBatch, .micro_batch = 0});
  program.ops.push_back({.kind = OpKind::kForward, .unit = 3, .micro_batch = 1, .waits = {0}});
  program.ops.push_back({.kind = OpKind::kReduceGrads, .lane = Lane::kComm, .bucket = 7});
  return program;
}

TEST(Executor, RunsInOrderAndWaitsWhereItIsSaid) {
  const Program program = tiny();
  FakeHandler handler(program);
  std::vector<OpTiming> timings;
  LaneThreads lanes;
  execute(program, handler, lanes, timings);
  EXPECT_THAT(handler.events,
              testing::ElementsAre("run 0", "run 1", "wait 2", "ticket 0", "waited 2", "run 2",
                                   "run 3", "ticket 0", "ticket 3"));
  ASSERT_EQ(timings.size(), 4U);
  for (std::size_t i = 0; i < timings.size(); ++i) {
    EXPECT_LE(timings[i].wait_us, timings[i].begin_us);
    EXPECT_LE(timings[i].begin_us, timings[i].end_us);
    if (i > 0) {
      EXPECT_LE(timings[i - 1].end_us, timings[i].wait_us);
    }
  }
}

// A wait there could be recorded in a GPU's graph.
TEST(Executor, LooksAtNoTicketBetweenComputeOperationsThatWaitForNothing) {
  Program program = tiny();
  program.ops[1] = {.kind = OpKind::kForward};
  program.ops[2].waits.clear();
  FakeHandler handler(program);
  handler.completes_all = 1;
  LaneThreads lanes;
  std::vector<OpTiming> timings;
  execute(program, handler, lanes, timings);
  EXPECT_EQ(handler.events,
            (std::vector<std::string>{"run 0", "run 1", "run 2", "ticket 0", "run 3", "ticket 3"}));
}

TEST(Executor, LeavesNothingUnwaitedInAWholeStep) {
  for (const int stage : {0, 1, 2, 3}) {
    const Program program =
        write_train_step(make_shape({.stage = stage, .micro_batches = 2, .tied = true}));
    FakeHandler handler(program);
    std::vector<OpTiming> timings;
    LaneThreads lanes;
    execute(program, handler, lanes, timings);
    std::set<int> started;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      if (program.ops[i].lane == Lane::kComm) started.insert(static_cast<int>(i));
    }
    EXPECT_EQ(handler.waited_for, started);
    const auto ran = std::count_if(handler.events.begin(), handler.events.end(),
                                   [](const std::string& e) { return e.starts_with("run "); });
    EXPECT_EQ(static_cast<std::size_t>(ran), program.ops.size());
  }
}

// What execute() ends with, as a user sees it.
std::string failure_of(FakeHandler& handler, const Program& program, bool* secondary = nullptr) {
  std::vector<OpTiming> timings;
  LaneThreads lanes;
  try {
    execute(program, handler, lanes, timings);
  } catch (const std::exception& error) {
    if (secondary != nullptr) *secondary = is_secondary(error);
    return error_chain(error);
  }
  return "";
}

TEST(Executor, NamesTheOperationThatThrows) {
  const Program program = tiny();
  FakeHandler handler(program);
  handler.fails_at_once = 2;
  EXPECT_EQ(failure_of(handler, program), "Forward unit 3, micro-batch 1: no such luck");
  EXPECT_EQ(handler.events.back(), "run 2") << "nothing runs after a failure";
}

TEST(Executor, NamesTheOperationThatFailsWhileWaitedFor) {
  const Program program = tiny();
  FakeHandler handler(program);
  handler.fails_later = 0;
  bool secondary = false;
  EXPECT_EQ(failure_of(handler, program, &secondary), "Gather group 2: peer gone");
  EXPECT_TRUE(secondary) << "the kind of the cause survives";
  FakeHandler at_end(program);
  at_end.fails_later = 3;
  EXPECT_EQ(failure_of(at_end, program), "ReduceGrads bucket 7: peer gone");
}

TEST(LaneThreads, HooksAreCalledOnceAThreadAndAfterEachWait) {
  std::mutex mutex;
  std::vector<std::string> events;
  const auto note = [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    events.push_back(what);
  };
  class Noting final : public TicketState {
   public:
    explicit Noting(std::function<void()> wait) : wait_(std::move(wait)) {}
    void wait() override { wait_(); }
    bool done() override { return true; }

   private:
    std::function<void()> wait_;
  };
  bool refuses = true;
  LaneThreads lanes({.begins =
                         [&] {
                           if (std::exchange(refuses, false)) throw Error("no stream");
                           note("begins");
                         },
                     .waited = [&] { note("waited"); }});
  const auto run = [&](const std::string& name) {
    const Ticket wait(std::make_shared<Noting>([&note, name] { note("wait of " + name); }));
    lanes
        .submit(Lane::kToHost, {wait},
                [&note, name]() -> Ticket {
                  note(name);
                  return {};
                })
        .wait();
  };
  EXPECT_THROW(run("a"), Error);
  EXPECT_TRUE(events.empty()) << "nothing is waited for on a thread that has not begun";
  run("b");
  run("c");
  EXPECT_EQ(events, (std::vector<std::string>{"begins", "wait of b", "waited", "b", "wait of c",
                                              "waited", "c"}));
  events.clear();
  lanes.when_done(0, Ticket(std::make_shared<Noting>([&] { note("wait"); })),
                  [&] { note("over"); });
  lanes.settle();
  EXPECT_EQ(events, (std::vector<std::string>{"begins", "wait", "waited", "over"}));
}

TEST(Executor, AnEmptyProgramDoesNothing) {
  const Program program;
  FakeHandler handler(program);
  std::vector<OpTiming> timings(3);
  LaneThreads lanes;
  execute(program, handler, lanes, timings);
  EXPECT_TRUE(timings.empty());
  EXPECT_TRUE(handler.events.empty());
}

}  // namespace
}  // namespace sluice
