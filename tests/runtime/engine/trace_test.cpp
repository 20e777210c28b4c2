// What a traced step shows of communication that is hidden: the sum of an input's gradient over
// tensor ranks under the product by the weights, reduce-scatters in a pipeline's bubble.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>
#include <utility>

#include "runtime/engine/rank_part.hpp"
#include "runtime/model/blocks/block_parts.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/program/model/pipeline_time.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "runtime/run/planned_engine.hpp"
#include "runtime/run/step_trace.hpp"
#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

EngineOptions traced_options() {
  EngineOptions options = tiny_options();
  options.train.micro_batch = 1;
  options.train.global_batch = 1;
  options.trace = true;
  return options;
}

EngineOptions pipeline_options(std::int64_t micro_batches) {
  EngineOptions options = traced_options();
  options.parallel.pipeline = 2;
  options.dp = 2;
  options.zero.stage = 2;
  options.zero.bucket_bytes = 1 << 24;  // never full: what ends a bucket is the end of its slot
  options.train.global_batch = 2 * micro_batches;
  return options;
}

// When a unit asked for the place of a parameter's gradient, which is right before it is made.
struct Asked {
  std::size_t unit = 0;
  int index = 0;
  Clock::time_point at;
};
using AskedList = std::vector<Asked>;

class WatchedUnit final : public Unit {
 public:
  WatchedUnit(std::unique_ptr<Unit> unit, std::size_t number, AskedList& asked)
      : unit_(std::move(unit)), number_(number), asked_(asked) {}

  at::Tensor forward(const UnitCall& call, std::span<const at::Tensor> params,
                     const at::Tensor& input, std::unique_ptr<Saved>* saved) override {
    return unit_->forward(call, params, input, saved);
  }
  at::Tensor backward(const UnitCall& call, std::span<const at::Tensor> params,
                      const at::Tensor& input, std::unique_ptr<Saved> saved,
                      const at::Tensor& grad_output, GradSink& sink) override {
    Watch watch(*this, sink);
    return unit_->backward(call, params, input, std::move(saved), grad_output, watch);
  }

 private:
  class Watch final : public GradSink {
   public:
    Watch(WatchedUnit& unit, GradSink& sink) : unit_(unit), sink_(sink) {}
    GradTarget target(int index) override {
      unit_.asked_.push_back({unit_.number_, index, Clock::now()});
      return sink_.target(index);
    }

   private:
    WatchedUnit& unit_;
    GradSink& sink_;
  };

  const std::unique_ptr<Unit> unit_;
  const std::size_t number_;
  AskedList& asked_;
};

struct RankOfTest {
  MeshCoordinates at;
  AskedList* asked = nullptr;
  Engine* engine = nullptr;
};

// Ranks are threads. Where data is read for the last stage, which is before each of its loss heads,
// it takes `last_stage_waits`.
void run_ranks(const EngineOptions& options, std::chrono::milliseconds last_stage_waits,
               const std::function<void(const RankOfTest&)>& each_rank) {
  ParallelOptions parallel = options.parallel;
  parallel.data = options.dp;
  const Mesh mesh(parallel, world_size(options));
  std::vector<MeshComms> comms =
      make_local_mesh_comms(mesh, {.tied = options.model.tie_embeddings}, std::chrono::seconds(60));
  const auto body = [&](std::size_t rank) {
    const MeshCoordinates at = comms[rank].at();
    EngineOptions own = options;
    own.part = part_of_rank(own.model, parallel, at);
    AskedList asked;
    Model model = make_model(own.model, own.part, &comms[rank].tensor());
    for (std::size_t u = 0; u < model.units.size(); ++u) {
      model.units[u] = std::make_unique<WatchedUnit>(std::move(model.units[u]), u, asked);
    }
    const RowSource formula = formula_rows(own.model.seq, own.model.vocab);
    const RowSource rows = [&](std::int64_t index, std::int64_t first, std::int64_t count,
                               SampleRows& out) {
      if (at.pp > 0) std::this_thread::sleep_for(last_stage_waits);
      formula(index, first, count, out);
    };
    Engine engine = planned_engine(own, std::move(model), comms[rank],
                                   at::Device(c10::DeviceType::CPU), rows, rows);
    asked.clear();  // of the dry run
    each_rank({at, &asked, &engine});
  };
  run_as_threads(comms.size(), body, [&](std::size_t rank) { comms[rank].abort(); });
}

std::vector<TraceEvent> events_of(const Engine& engine) {
  return measured_events(engine.train_program(), engine.timings(), engine.exchanges());
}

double end_of(const TraceEvent& event) { return event.start_us + event.duration_us; }

std::vector<TraceEvent> on_lane(const std::vector<TraceEvent>& events, const std::string& lane) {
  std::vector<TraceEvent> found;
  std::copy_if(events.begin(), events.end(), std::back_inserter(found),
               [&](const TraceEvent& event) { return event.lane == lane; });
  return found;
}

std::set<std::string> lanes_of(const std::vector<TraceEvent>& events) {
  std::set<std::string> lanes;
  for (const TraceEvent& event : events) lanes.insert(event.lane);
  return lanes;
}

// Of a block's gradients the bias's is made right after the weight's: between the two instants at
// which their places were asked for lies the product.
void expect_product_meanwhile(const ExchangeTiming& sum, const AskedList& asked,
                              const BlockParams::Stack& stack, std::size_t unit) {
  const auto when = [&](int index) {
    const auto it = std::find_if(asked.begin(), asked.end(), [&](const Asked& a) {
      return a.unit == unit && a.index == index;
    });
    return it == asked.end() ? Clock::time_point::max() : it->at;
  };
  EXPECT_LE(sum.started, when(stack.weight));
  EXPECT_LT(when(stack.weight), when(stack.bias));
  EXPECT_LE(when(stack.bias), sum.needed);
  EXPECT_LE(sum.needed, sum.finished);
}

TEST(StepTrace, InputGradientsAreSummedUnderTheProductByTheWeights) {
  for (const bool sequence : {false, true}) {
    EngineOptions options = traced_options();
    options.parallel.tensor = 2;
    options.parallel.sequence = sequence;
    const std::string name = sequence ? "reduce-scatter of tokens" : "sum over tensor ranks";
    const BlockParams at = block_params(with_defaults(options.model));
    run_ranks(options, {}, [&](const RankOfTest& rank) {
      (void)rank.engine->train_step({.step = 1, .lr = 1e-3});
      const Program& program = rank.engine->train_program();
      std::vector<int> sums(rank.engine->spec().units.size(), 0);  // by unit
      for (const ExchangeTiming& exchange : rank.engine->exchanges()) {
        const Op& op = program.ops[static_cast<std::size_t>(exchange.op)];
        if (op.kind != OpKind::kBackward || exchange.name != name) continue;
        const auto unit = static_cast<std::size_t>(op.unit);
        // The block's second half comes first.
        const BlockParams::Stack& stack = sums[unit] == 0 ? at.up : at.qkv;
        expect_product_meanwhile(exchange, *rank.asked, stack, unit);
        ++sums[unit];
      }
      for (int u = 1; u <= options.model.layers; ++u) {
        EXPECT_EQ(sums[static_cast<std::size_t>(u)], 2) << u;
      }
    });
  }
}

TEST(StepTrace, ExchangesHaveALaneAndLieInTheirOperations) {
  EngineOptions options = traced_options();
  options.parallel.tensor = 2;
  run_ranks(options, {}, [&](const RankOfTest& rank) {
    for (int step = 1; step <= 2; ++step) {
      (void)rank.engine->train_step({.step = step, .lr = 1e-3});
    }
    const std::vector<TraceEvent> events = events_of(*rank.engine);
    const std::vector<TraceEvent> exchanges = on_lane(events, "tensor");
    EXPECT_EQ(exchanges.size(), rank.engine->exchanges().size());  // of the last step alone
    std::vector<std::string> names;
    for (const TraceEvent& exchange : exchanges) {
      names.push_back(exchange.name);
      const std::string of_op = exchange.name.substr(exchange.name.find(", ") + 2);
      const std::vector<TraceEvent> compute = on_lane(events, "compute");
      const auto op = std::find_if(compute.begin(), compute.end(),
                                   [&](const TraceEvent& e) { return e.name == of_op; });
      ASSERT_NE(op, compute.end()) << of_op;
      EXPECT_GE(exchange.start_us, op->start_us) << exchange.name;
      EXPECT_LE(end_of(exchange), end_of(*op) + 1) << exchange.name;  // which has no fractions
    }
    for (const char* part : {"sum over tensor ranks, Forward unit 1, micro-batch 0",
                             "sum over tensor ranks, Backward unit 2, micro-batch 0", "LossHead"}) {
      EXPECT_THAT(names, Contains(HasSubstr(part)));
    }
  });
}

// The lists of the dry run, with their order, are what every operation exchanges.
void expect_declared(const Engine& engine) {
  const Program& program = engine.train_program();
  std::vector<ExchangeList> measured(program.ops.size());
  for (const ExchangeTiming& exchange : engine.exchanges()) {
    append(measured[static_cast<std::size_t>(exchange.op)], exchange.what);
  }
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const std::span<const Exchange> declared = exchanges_of(program, op);
    if (op.unit < 0) continue;
    EXPECT_EQ(measured[i], ExchangeList(declared.begin(), declared.end())) << describe(op);
  }
  EXPECT_GT(engine.exchanges().size(), 10U);
}

TEST(StepTrace, ExchangesAreThoseThatTheProgramDeclares) {
  for (const bool sequence : {false, true}) {
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
      SCOPED_TRACE(std::string(name_of(mode)) + (sequence ? ", sequence" : ""));
      EngineOptions options = traced_options();
      options.train.global_batch = 2;
      options.parallel.tensor = 2;
      options.parallel.sequence = sequence;
      options.recompute.mode = mode;
      run_ranks(options, {}, [&](const RankOfTest& rank) {
        (void)rank.engine->train_step({.step = 1, .lr = 1e-3});
        expect_declared(*rank.engine);
      });
    }
  }
}

TEST(StepTrace, ExchangesOfASplitBackwardAreDeclared) {
  EngineOptions options = pipeline_options(3);
  options.dp = 1;
  options.train.global_batch = 3;
  options.parallel.tensor = 2;
  options.parallel.schedule = PipelineSchedule::kZeroBubble;
  run_ranks(options, {}, [&](const RankOfTest& rank) {
    (void)rank.engine->train_step({.step = 1, .lr = 1e-3});
    expect_declared(*rank.engine);
  });
}

TEST(StepTrace, ExchangesHaveAPredictedLane) {
  EngineOptions options = traced_options();
  options.parallel.tensor = 2;
  const Model model = make_dry_model(options.model, {.tensor = 2});
  options.part = model.spec.part;
  const StepShape shape = plan_step(options, model).shape;
  const Program program = write_train_step(shape);
  const TimeReport time = predict_time(program, shape, {.flops = 1e9, .comm_bps = 1e9});
  const std::vector<TraceEvent> events = predicted_events(program, time);
  const std::vector<TraceEvent> exchanges = on_lane(events, "tensor");
  std::size_t declared = 0;
  for (const Op& op : program.ops) {
    if (op.unit >= 0) declared += exchanges_of(program, op).size();
  }
  EXPECT_GT(declared, 3U);
  ASSERT_EQ(exchanges.size(), declared);
  double end = 0;
  for (const TraceEvent& exchange : exchanges) {
    EXPECT_EQ(exchange.rank, kPredictedProcess);
    EXPECT_GE(exchange.start_us, end - 1e-6);
    end = end_of(exchange);
    const std::string of_op = exchange.name.substr(exchange.name.find(", ") + 2);
    const std::vector<TraceEvent> compute = on_lane(events, "compute");
    const auto op = std::find_if(compute.begin(), compute.end(),
                                 [&](const TraceEvent& e) { return e.name == of_op; });
    ASSERT_NE(op, compute.end()) << of_op;
    EXPECT_GE(exchange.start_us, op->start_us - 1e-6);
    EXPECT_LE(end, end_of(*op) + 1e-6);
  }
}

TEST(StepTrace, NothingIsRecordedWithoutIt) {
  EngineOptions options = traced_options();
  options.trace = false;
  options.parallel.tensor = 2;
  options.parallel.pipeline = 2;
  run_ranks(options, {}, [&](const RankOfTest& rank) {
    (void)rank.engine->train_step({.step = 1, .lr = 1e-3});
    EXPECT_THAT(rank.engine->exchanges(), IsEmpty());
    for (const std::string& lane : lanes_of(events_of(*rank.engine))) {
      EXPECT_THAT(lane, Not(HasSubstr("pipe")));
      EXPECT_NE(lane, "tensor");
    }
  });
}

// Reduce-scatters that lie wholly in a gap between slices of the compute lane, and before the
// gradient from the next stage with whose arrival, to `within_us`, the gap ends.
int reductions_in_bubbles(const std::vector<TraceEvent>& events, double within_us) {
  const std::vector<TraceEvent> compute = on_lane(events, "compute");
  const std::vector<TraceEvent> comm = on_lane(events, "comm");
  std::set<const TraceEvent*> found;
  for (const TraceEvent& gradient : on_lane(events, "pipe gradients in")) {
    const double arrival = end_of(gradient);
    for (std::size_t i = 1; i < compute.size(); ++i) {
      const double begin = end_of(compute[i - 1]);
      if (arrival <= begin || std::abs(compute[i].start_us - arrival) > within_us) continue;
      for (const TraceEvent& event : comm) {
        const bool reduces = event.name.starts_with(name_of(OpKind::kReduceGrads));
        if (reduces && event.start_us >= begin && end_of(event) <= arrival) found.insert(&event);
      }
    }
  }
  return static_cast<int>(found.size());
}

// The timeline of the whole pipeline, drawn for its first stage.
std::vector<TraceEvent> predicted_first_stage(const EngineOptions& options) {
  ParallelOptions parallel = options.parallel;
  parallel.data = options.dp;
  std::vector<Program> programs;
  std::vector<StepShape> shapes;
  for (int stage = 0; stage < options.parallel.pipeline; ++stage) {
    EngineOptions own = options;
    own.part = part_of_rank(own.model, parallel, {.pp = stage});
    shapes.push_back(plan_step(own, make_model(own.model, own.part)).shape);
    programs.push_back(write_train_step(shapes.back()));
  }
  const std::vector<Rates> rates(
      programs.size(),
      Rates{.flops = 1e9, .device_memory_bps = 1e10, .comm_bps = 1e9, .pipe_bps = 1e9});
  const PipelineTime time = predict_pipeline_time(programs, shapes, rates);
  EXPECT_GT(time.bubble[0], 0);
  return predicted_events(programs[0], time.stages[0]);
}

TEST(StepTrace, ReduceScattersArePredictedInTheBubble) {
  for (const std::int64_t micro_batches : {2, 5}) {
    const std::vector<TraceEvent> events = predicted_first_stage(pipeline_options(micro_batches));
    EXPECT_GE(reductions_in_bubbles(events, 1e-6), 1) << micro_batches;
    EXPECT_TRUE(lanes_of(events).contains("pipe activations out"));
  }
  // Where nothing was reduced before it there is nothing in it.
  EXPECT_EQ(reductions_in_bubbles(predicted_first_stage(pipeline_options(1)), 1e-6), 0);
}

// The last stage is made to be late, so that there is a bubble whatever else the machine does.
TEST(StepTrace, ReduceScattersRunInTheBubble) {
  constexpr int kAttempts = 5;  // on a busy machine the first stage may be later still
  std::array<int, 2> found{};   // by data-parallel rank of the first stage
  for (int i = 0; i < kAttempts && *std::min_element(found.begin(), found.end()) == 0; ++i) {
    run_ranks(pipeline_options(3), std::chrono::milliseconds(20), [&](const RankOfTest& rank) {
      (void)rank.engine->train_step({.step = 1, .lr = 1e-3});
      const std::vector<TraceEvent> events = events_of(*rank.engine);
      const std::set<std::string> lanes = lanes_of(events);
      const bool first = rank.at.pp == 0;
      EXPECT_EQ(lanes.contains("pipe activations out"), first);
      EXPECT_EQ(lanes.contains("pipe gradients in"), first);
      EXPECT_EQ(lanes.contains("pipe activations in"), !first);
      EXPECT_EQ(lanes.contains("pipe gradients out"), !first);
      if (first) {
        found[static_cast<std::size_t>(rank.at.dp)] = reductions_in_bubbles(events, 5'000);
      }
    });
  }
  EXPECT_GE(found[0], 1);
  EXPECT_GE(found[1], 1);
}

}  // namespace
}  // namespace sluice::testing
