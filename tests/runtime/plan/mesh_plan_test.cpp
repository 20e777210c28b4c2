// Plans of meshes: every stage is planned as its ranks run it, wires are those that the layout of
// ranks gives, and the bounds of the search are bounds.
#include <gtest/gtest.h>

#include "runtime/engine/rank_part.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/plan/mesh_text.hpp"
#include "runtime/plan/plan_report.hpp"
#include "runtime/plan/search/bounds.hpp"
#include "runtime/program/check/pipeline_check.hpp"
#include "runtime/program/program_text.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using testing::small_options;

std::string key_of(const Program& program) {
  std::string text = list(program) + list_exchanges(program) + std::to_string(program.arena_bytes);
  for (const StateRow& p : program.states.rows) {
    text += " " + std::string(name_of(p.tag)) + std::to_string(p.tier_bytes());
  }
  return text;
}

EngineOptions mesh_options(const ParallelOptions& mesh, int dp = 2) {
  EngineOptions options = small_options(dp);
  options.parallel = mesh;
  return options;
}

// Messages lie among the tensors of several micro-batches, so a GPU needs room for gaps.
TEST(MeshPlan, CountsGapsOfAPipelineOfSeveralMicroBatchesOnAGpu) {
  const auto library_bytes = [](int stages, bool on_gpu, int micro_batches) {
    EngineOptions options = mesh_options({.pipeline = stages}, 1);
    options.model.on_gpu = on_gpu;
    options.train.cuda_graphs = GraphChoice::kNever;
    options.train.global_batch = options.train.micro_batch * micro_batches;
    const RunPlan plan = Planner(named_profile("h100-sxm")).plan({options, {}});
    return plan.stages.front().shape.library_bytes;
  };
  const EngineOptions one = mesh_options({.pipeline = 2}, 1);
  const std::int64_t message =
      one.train.micro_batch * one.model.seq * one.model.hidden * size_of(one.train.dtype);
  EXPECT_EQ(library_bytes(2, true, 4) - library_bytes(2, true, 1), 2 * cuda_block_bytes(message));
  EXPECT_EQ(library_bytes(1, true, 4), library_bytes(1, true, 1));
  EXPECT_EQ(library_bytes(2, false, 4), 0);
}

std::vector<ParallelOptions> some_meshes() {
  return {{.tensor = 2},
          {.tensor = 2, .sequence = true},
          {.tensor = 4, .sequence = true},
          {.pipeline = 2},
          {.pipeline = 3, .schedule = PipelineSchedule::kGpipe},
          {.tensor = 2, .pipeline = 2, .schedule = PipelineSchedule::kZeroBubble},
          {.tensor = 2,
           .sequence = true,
           .pipeline = 3,
           .virtual_stages = 2,
           .schedule = PipelineSchedule::kInterleaved}};
}

// What the planner puts together from three profiles is what each rank finds of its own part.
TEST(MeshPlan, EveryStageIsThatOfItsRanks) {
  for (const ParallelOptions& mesh : some_meshes()) {
    for (const bool tied : {false, true}) {
      EngineOptions options = mesh_options(mesh);
      options.model.tie_embeddings = tied;
      options.zero.stage = tied ? 2 : 3;
      Planner planner(named_profile("h100-sxm"));
      const RunPlan plan = planner.plan({options, {}});
      ASSERT_EQ(plan.stages.size(), static_cast<std::size_t>(mesh.pipeline));
      for (int s = 0; s < mesh.pipeline; ++s) {
        EngineOptions rank = options;
        rank.part = part_of_rank(options.model, mesh, {.pp = s});
        const Model model = make_model(rank.model, rank.part);
        const Program own = write_train_step(plan_step(rank, model).shape);
        EXPECT_EQ(key_of(write_train_step(planner.shape_of(rank).shape)), key_of(own))
            << mesh_words(plan) << ", stage " << s << (tied ? ", tied" : "");
        EXPECT_EQ(plan.stages[static_cast<std::size_t>(s)].peak(Tier::kDevice), add_up(own).peak());
      }
    }
  }
}

TEST(MeshPlan, GivenLayersArePlannedAndShown) {
  Planner planner(named_profile("h100-sxm"));
  EngineOptions options = mesh_options({.pipeline = 2});
  const RunPlan balanced = planner.plan({options, {}});
  options.parallel.stage_layers = {3, 1};
  const RunPlan given = planner.plan({options, {}});
  EXPECT_EQ(given.stages[0].unit_names.size(), 4U);
  EXPECT_EQ(given.stages[1].unit_names.size(), 2U);
  EXPECT_NE(balanced.stages[0].unit_names.size(), 4U);  // one planner knows both
  EXPECT_EQ(mesh_words(given), "tensor 1, pipeline 2 (1f1b) of 3 + 1 layers, data 2");
  EXPECT_NE(report_json(given, {}, nullptr, nullptr).find("\"stage_layers\": [\n"),
            std::string::npos);
}

// A backward that runs the forward again leaves out the sum that only the next unit needs.
TEST(MeshPlan, TensorBytesOfFullRecomputationAreThoseOfTheUnits) {
  for (const bool sequence : {false, true}) {
    EngineOptions options = mesh_options({.tensor = 2, .sequence = sequence});
    Planner planner(named_profile("h100-sxm"));
    const RunPlan none = planner.plan({options, {}});
    options.recompute.mode = RecomputeMode::kFull;
    const RunPlan full = planner.plan({options, {}});
    EngineOptions rank = planner.at_stage(options, 0);
    const Model model = make_model(rank.model, rank.part);
    const ProfileShape shape{options.train.micro_batch, options.model.seq, options.train.dtype};
    std::int64_t more = 0;
    for (std::size_t u = 0; u < model.spec.units.size(); ++u) {
      const UnitExchanges exchanges = unit_exchanges(model, u, shape);
      const std::int64_t again = sent_bytes(exchanges.again);
      const std::int64_t backward = sent_bytes(exchanges.backward);
      more += again - backward;
      if (model.spec.units[u].kind == UnitKind::kBlock) {
        EXPECT_LT(again, sent_bytes(exchanges.forward) + backward);
      }
    }
    EXPECT_GT(more, 0);
    EXPECT_EQ(full.traffic.tensor - none.traffic.tensor, micro_batches_of(options) * more);
  }
}

TEST(MeshPlan, TheFirstTensorRankHasMost) {
  for (const bool sequence : {false, true}) {
    EngineOptions options = mesh_options({.tensor = 4, .sequence = sequence});
    std::int64_t first = 0;
    for (int tp = 0; tp < 4; ++tp) {
      EngineOptions rank = options;
      rank.part = part_of_rank(options.model, options.parallel, {.tp = tp});
      const Model model = make_model(rank.model, rank.part);
      const std::int64_t peak = add_up(write_train_step(plan_step(rank, model).shape)).peak();
      if (tp == 0) first = peak;
      EXPECT_LE(peak, first) << tp;
    }
  }
}

TEST(MeshPlan, TheWorstStageDecides) {
  Planner planner(named_profile("h100-sxm"));
  const EngineOptions options = mesh_options({.pipeline = 3});
  const RunPlan free = planner.plan({options, {}});
  std::int64_t highest = 0;
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  for (const StagePlan& stage : free.stages) {
    highest = std::max(highest, stage.peak(Tier::kDevice));
    lowest = std::min(lowest, stage.peak(Tier::kDevice));
  }
  ASSERT_LT(lowest, highest);
  EXPECT_EQ(free.peak(Tier::kDevice), highest);
  std::int64_t most = 0;  // with NCCL's buffers
  for (const StagePlan& stage : free.stages) {
    most = std::max(most, stage.memory.of(Tier::kDevice).need());
  }
  PlanQuestion question{options, {}};
  question.budgets.device = most - 1;
  const RunPlan tight = planner.plan(question);
  EXPECT_FALSE(tight.fits());
  EXPECT_EQ(tight.missing(), 1);
  question.budgets.device = most;
  EXPECT_TRUE(planner.plan(question).fits());
}

TEST(MeshPlan, ClassesHaveAllRanks) {
  Planner planner(named_profile("h100-sxm"));
  for (const int stages : {1, 2, 3, 6}) {
    const RunPlan plan = planner.plan({mesh_options({.tensor = 2, .pipeline = stages}, 3), {}});
    int ranks = 0;
    int of_classes = 0;
    for (const RankClass& one : rank_classes(plan)) {
      ranks += one.ranks;
      of_classes += one.stages;
    }
    EXPECT_EQ(ranks, 2 * 3 * stages);
    EXPECT_EQ(of_classes, stages);
    EXPECT_EQ(rank_classes(plan).size(), static_cast<std::size_t>(std::min(stages, 3)));
    const std::string text = report_text(plan, {});
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = text.find('\n', begin);
      EXPECT_LE(std::min(end, text.size()) - begin, 80U) << text.substr(begin, end - begin);
    }
  }
}

TEST(MeshPlan, WiresFollowTheLayoutOfRanks) {
  const MachineProfile machine = named_profile("h100-sxm");  // 8 ranks a node
  const MeshWires inside = wires_of(machine, {.tensor = 8, .pipeline = 2}, 64);
  EXPECT_EQ(wire_of(inside, MeshAxis::kTensor).crossing, 0);
  EXPECT_EQ(wire_of(inside, MeshAxis::kTensor).bps, machine.comm_bps);
  // Each of a node's ranks is in a ring of its own to the other nodes: they share its network.
  EXPECT_EQ(wire_of(inside, MeshAxis::kData).crossing, 1);
  EXPECT_EQ(wire_of(inside, MeshAxis::kData).leaving, 8);
  EXPECT_EQ(wire_of(inside, MeshAxis::kData).bps, machine.network_bps / 8);
  EXPECT_EQ(wire_of(inside, MeshAxis::kPipeline).leaving, 8);

  // Rings of four nodes' ranks leave a node once each.
  const MeshWires mixed = wires_of(machine, {.tensor = 2}, 32);
  EXPECT_EQ(wire_of(mixed, MeshAxis::kData).leaving, 2);
  EXPECT_DOUBLE_EQ(wire_of(mixed, MeshAxis::kData).crossing, 0.25);
  EXPECT_EQ(wire_of(mixed, MeshAxis::kPipeline).ranks, 1);

  // Two stages on one node; without virtual stages the last sends nothing to the first.
  const MeshWires one = wires_of(machine, {.tensor = 2, .pipeline = 2}, 8);
  EXPECT_EQ(wire_of(one, MeshAxis::kPipeline).crossing, 0);
  // A tensor group that nodes divide: slow, and said to be.
  const MeshWires wide = wires_of(machine, {.tensor = 16}, 16);
  EXPECT_DOUBLE_EQ(wire_of(wide, MeshAxis::kTensor).crossing, 2.0 / 16);
  EXPECT_LT(machine.network_bps / 8, machine.comm_bps);
}

TEST(MeshPlan, BytesOfEachAxis) {
  Planner planner(named_profile("h100-sxm"));
  const EngineOptions options = mesh_options({.tensor = 2, .sequence = true, .pipeline = 3});
  const RunPlan plan = planner.plan({options, {}});
  const std::int64_t boundary = 2 * 32 * 64 * 2 / 2;  // samples, tokens, hidden, bf16; a half
  const std::int64_t micro_batches = 5;
  ASSERT_EQ(plan.shape.micro_batches, 5);
  EXPECT_EQ(plan.stages[0].traffic.pipe, micro_batches * boundary);
  EXPECT_EQ(plan.stages[1].traffic.pipe, 2 * micro_batches * boundary);
  EXPECT_EQ(plan.stages[2].traffic.pipe, micro_batches * boundary);
  // Each of two all-gathers and two reduce-scatters a block sends half of the boundary's whole.
  for (const StagePlan& stage : plan.stages) {
    EXPECT_GT(stage.traffic.tensor, 0);
    EXPECT_GT(stage.traffic.wire, 0);
    const std::vector<AxisBytes> axes = bytes_by_axis(stage, plan.wires);
    std::int64_t all = 0;
    for (const AxisBytes& axis : axes) {
      all += axis.bytes;
      EXPECT_LE(axis.between_nodes, axis.bytes);
    }
    EXPECT_EQ(all, stage.traffic.sent());
  }
  EXPECT_EQ(plan.tokens_per_step, options.train.global_batch * options.model.seq);
  EXPECT_EQ(plan.ranks, 12);
}

TEST(MeshPlan, ModelFlopsAreOfTheWholeModel) {
  Planner planner(named_profile("a100-80g"));
  EngineOptions plain = small_options(8);
  const RunPlan alone = planner.plan({plain, {}});
  EngineOptions cut = mesh_options({.tensor = 2, .sequence = true, .pipeline = 2}, 2);
  cut.train.global_batch = plain.train.global_batch;
  const RunPlan mesh = planner.plan({cut, {}});
  EXPECT_DOUBLE_EQ(mesh.model_flops_per_step, alone.model_flops_per_step);
  EXPECT_EQ(mesh.params, alone.params);
  EXPECT_EQ(mesh.tokens_per_step, alone.tokens_per_step);
  EXPECT_DOUBLE_EQ(mesh.peak_flops, alone.peak_flops);
}

// Blocks alone, in effect: the bubble of schedules, which idle machines would show.
TEST(MeshPlan, TheBubbleIsThatOfTheSchedule) {
  MachineProfile machine = named_profile("h100-sxm");
  machine.comm_latency_s = 0;
  EngineOptions options = mesh_options({.pipeline = 4}, 1);
  options.model.layers = 32;
  options.model.hidden = 1024;
  options.model.heads = 8;
  options.model.seq = 512;
  options.model.ffn = 4096;
  options.train.micro_batch = 4;
  options.train.global_batch = 4 * 12;
  options.zero.stage = 0;
  Planner planner(machine);
  const double plain = planner.plan({options, {}}).bubble_share();
  EXPECT_NEAR(plain, 3.0 / (12 + 3), 0.04);
  options.parallel.virtual_stages = 2;
  options.parallel.schedule = PipelineSchedule::kInterleaved;
  EXPECT_LT(planner.plan({options, {}}).bubble_share(), plain);
  options.parallel.virtual_stages = 1;
  options.parallel.schedule = PipelineSchedule::kZeroBubble;
  EXPECT_LT(planner.plan({options, {}}).bubble_share(), plain);
}

TEST(MeshPlan, BoundsAreBounds) {
  Planner planner(named_profile("h100-sxm"));
  int compared = 0;
  for (const ParallelOptions& mesh : some_meshes()) {
    for (const int stage : {0, 1, 3}) {
      for (const RecomputeMode mode :
           {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
        EngineOptions options = mesh_options(mesh);
        options.zero.stage = stage;
        options.recompute.mode = mode;
        options.model.recompute_attention = mode == RecomputeMode::kSelective;
        const RunPlan plan = planner.plan({options, {}});
        std::vector<StepPlan> stages;
        std::vector<Rates> rates;
        for (const StagePlan& one : plan.stages) {
          const EngineOptions rank = planner.at_stage(options, one.stage);
          stages.push_back(planner.shape_of(rank));
          rates.push_back(planner.rates(rank));
          const TierBytes floor = memory_floor(stages.back().shape);
          for (std::size_t t = 0; t < floor.size(); ++t) {
            EXPECT_LE(floor[t], one.memory.tiers[t].peak) << mesh_words(plan) << one.stage;
          }
        }
        EXPECT_LE(time_floor(stages, rates), plan.time.step_s * (1 + 1e-9)) << mesh_words(plan);
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 7 * 9);
}

}  // namespace
}  // namespace sluice
