// The search over meshes: it finds the best of them, suggests what may stand together, and says
// how.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "runtime/plan/search/search.hpp"
#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using testing::small_options;

// As the rules between keys have it: a sequence that tensor divides, heads and key heads too.
bool allowed(const EngineOptions& options) {
  return options.model.heads % options.parallel.tensor == 0 &&
         options.model.seq % options.parallel.tensor == 0;
}

PlanQuestion question_of(int dp) {
  EngineOptions options = small_options(dp);
  options.model.hidden = 512;
  options.model.ffn = 1536;
  options.model.seq = 256;
  options.train.global_batch = 8 * dp;
  return {options, {}};
}

SearchLimits wide() {
  SearchLimits limits{.most = 5, .evaluations = 100'000, .offload = false};
  limits.meshes = true;
  limits.allowed = allowed;
  return limits;
}

std::string value_of(const Suggestion& suggestion, const std::string& key) {
  for (const Setting& s : suggestion.set) {
    if (s.key == key) return s.value;
  }
  return "";
}

TEST(MeshSearch, MeshesAreWhatTheModelCanBeCutFor) {
  const PlanQuestion question = question_of(8);
  const std::vector<ParallelOptions> meshes = list_meshes({question.options, 4, 64, allowed});
  std::set<std::pair<int, int>> sizes;
  for (const ParallelOptions& mesh : meshes) {
    sizes.insert({mesh.tensor, mesh.pipeline});
    EXPECT_LE(mesh.tensor, 4);  // of a node
    EXPECT_EQ(8 % (mesh.tensor * mesh.pipeline), 0);
    EXPECT_LE(mesh.pipeline * mesh.virtual_stages, 4 + 2);  // embedding, blocks, loss head
    EXPECT_EQ(mesh.virtual_stages > 1, mesh.schedule == PipelineSchedule::kInterleaved);
    EXPECT_EQ(mesh.sequence, mesh.tensor > 1);
  }
  EXPECT_EQ(sizes, (std::set<std::pair<int, int>>{
                       {1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {2, 4}, {4, 1}, {4, 2}}));
  // Batches that data-parallel ranks cannot share out evenly are left out.
  for (const ParallelOptions& mesh : list_meshes({question.options, 4, 2, allowed})) {
    if (&mesh != &meshes.front() && mesh.tensor * mesh.pipeline > 1) {
      EXPECT_GE(mesh.tensor * mesh.pipeline, 4);
    }
  }
}

// Without NCCL's buffers, which are far larger than the tests' models.
MachineProfile without_nccl() {
  MachineProfile machine = named_profile("h100-sxm");
  machine.gpu = false;
  return machine;
}

TEST(MeshSearch, NoMeshIsFaster) {
  MachineProfile machine = without_nccl();
  machine.devices_per_node = 4;
  machine.network_bps = 2e9;
  Planner planner(machine);
  PlanQuestion question = question_of(8);
  const std::int64_t peak = planner.plan(question).peak(Tier::kDevice);
  for (const double share : {2.0, 0.5}) {
    question.budgets.device = static_cast<std::int64_t>(share * static_cast<double>(peak));
    const SearchResult result = suggest(planner, question, wide());
    ASSERT_TRUE(result.any_fits) << share;
    const double best = result.suggestions.front().plan.time.step_s;
    int compared = 0;
    for (const ParallelOptions& mesh : list_meshes({question.options, 4, 64, allowed})) {
      for (const int stage : {0, 1, 2, 3}) {
        for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
          PlanQuestion other = question;
          set_mesh(other.options, mesh);
          other.options.zero.stage = stage;
          other.options.recompute.mode = mode;
          const RunPlan plan = planner.plan(other);
          ++compared;
          if (plan.fits()) {
            EXPECT_GE(plan.time.step_s, best * (1 - 1e-9));
          }
        }
      }
    }
    EXPECT_GT(compared, 100);
  }
}

TEST(MeshSearch, SuggestionsAreDeterministicAndSayTheMesh) {
  Planner planner(named_profile("h100-sxm"));
  PlanQuestion question = question_of(8);
  const SearchResult first = suggest(planner, question, wide());
  ASSERT_TRUE(first.any_fits);
  Planner other(named_profile("h100-sxm"));
  const SearchResult again = suggest(other, question, wide());
  ASSERT_EQ(again.suggestions.size(), first.suggestions.size());
  for (std::size_t i = 0; i < first.suggestions.size(); ++i) {
    const Suggestion& s = first.suggestions[i];
    EXPECT_EQ(again.suggestions[i].set, s.set);
    EXPECT_EQ(s.plan.ranks, 8);
    EXPECT_EQ(s.plan.tokens_per_step, question.options.train.global_batch * 256);
    const int tensor = s.plan.mesh.tensor;
    EXPECT_EQ(value_of(s, "parallel.tensor"), tensor == 1 ? "" : std::to_string(tensor));
  }
}

TEST(MeshSearch, GivenLayersOfStagesStay) {
  Planner planner(named_profile("h100-sxm"));
  PlanQuestion question = question_of(2);
  question.options.parallel = {.pipeline = 4, .stage_layers = {1, 1, 1, 1}};
  const auto meshes = list_meshes({question.options, 8, 16, allowed});
  EXPECT_GT(meshes.size(), 2U);
  for (const ParallelOptions& mesh : meshes) {
    EXPECT_EQ(mesh.stage_layers, question.options.parallel.stage_layers);
    EXPECT_EQ(mesh.pipeline * mesh.virtual_stages, 4);
  }
  const SearchResult result = suggest(planner, question, wide());
  ASSERT_TRUE(result.any_fits);
  for (const Suggestion& s : result.suggestions) {
    EXPECT_EQ(s.plan.mesh.stage_layers, question.options.parallel.stage_layers);
  }
}

TEST(MeshSearch, AGivenDataSizeIsSetFree) {
  const PlanQuestion question = question_of(4);
  EngineOptions from = question.options;
  from.parallel.data = 4;
  EngineOptions to = from;
  set_mesh(to, {.tensor = 2, .sequence = true, .pipeline = 2, .data = 4});
  EXPECT_EQ(to.dp, 1);
  const std::vector<Setting> expected{{"parallel.tensor", "2"},
                                      {"parallel.sequence", "true"},
                                      {"parallel.pipeline", "2"},
                                      {"parallel.data", "auto"}};
  EXPECT_EQ(differences(from, to), expected);
}

TEST(MeshSearch, WhereOnlyAMeshFits) {
  Planner planner(without_nccl());
  PlanQuestion question = question_of(4);
  // One sample is all there is for four ranks: nothing but tensor and pipeline ranks shares it out.
  question.options.dp = 1;
  question.options.parallel.pipeline = 4;
  question.options.train.micro_batch = 1;
  question.options.train.global_batch = 1;
  question.budgets.device = planner.plan(question).peak(Tier::kDevice) - 1;
  const SearchResult result = suggest(planner, question, wide());
  ASSERT_TRUE(result.any_fits);
  for (const Suggestion& s : result.suggestions) {
    EXPECT_EQ(s.plan.mesh.tensor * s.plan.mesh.pipeline, 4);
    EXPECT_TRUE(s.plan.fits());
  }
}

// Pipelines with states off the device have low bounds. They would leave no evaluation to others.
TEST(MeshSearch, ConfiguredMeshAndDataRanksHaveEvaluationsOfTheirOwn) {
  Planner planner(without_nccl());
  PlanQuestion question = question_of(2);
  question.budgets.device = planner.plan(question).peak(Tier::kDevice) * 6 / 10;
  SearchLimits limits = wide();
  limits.offload = true;
  limits.evaluations = 24;
  // A share of the optimizer on the device is tried beside the evaluations.
  limits.allowed = [](const EngineOptions& o) { return o.offload.device_fraction == 0; };
  SearchLimits own = limits;
  own.meshes = false;
  const SearchResult best = suggest(planner, question, own);
  ASSERT_TRUE(best.any_fits);
  const double step_s = best.suggestions.front().plan.time.step_s;
  const SearchResult all = search(planner, question, limits);
  EXPECT_TRUE(!all.any_fits || all.suggestions.front().plan.time.step_s > step_s);
  for (const bool staged : {false, true}) {
    EngineOptions& options = question.options;
    if (staged) set_mesh(options, {.pipeline = 2});
    if (staged) options.train.micro_batch = 4;
    const SearchResult found = suggest(planner, question, limits);
    ASSERT_TRUE(found.any_fits) << staged;
    EXPECT_LE(found.suggestions.front().plan.time.step_s, step_s * (1 + 1e-9)) << staged;
    for (const Suggestion& s : found.suggestions) {
      EXPECT_EQ(s.set, differences(options, s.options)) << staged;
    }
  }
}

// A mesh that just fits on the device does not hide a faster one with states off the device.
TEST(MeshSearch, MoreMemoryMakesNoSuggestionSlower) {
  Planner planner(named_profile("a100-80g"));
  PlanQuestion question{};
  EngineOptions& options = question.options;
  options.model.type = ModelType::kLlama;
  options.model.layers = 8;
  options.model.hidden = 4096;
  options.model.heads = 32;
  options.model.kv_heads = 8;
  options.model.ffn = 14336;
  options.model.vocab = 128256;
  options.model.seq = 8192;
  options.model.tie_embeddings = false;
  options.model.on_gpu = true;
  options.train.dtype = DType::kBFloat16;
  options.train.micro_batch = 1;
  options.train.global_batch = 64;
  options.zero.stage = 3;
  options.recompute.mode = RecomputeMode::kFull;
  options.offload.optimizer = Tier::kNvme;
  options.tiers.nvme.paths = {"drive"};
  options.dp = 8;
  SearchLimits limits{.most = 5};
  limits.meshes = true;
  limits.allowed = allowed;
  double before = std::numeric_limits<double>::infinity();
  for (const std::int64_t gib : {5, 6}) {
    question.budgets.device = gib << 30;
    const SearchResult result = suggest_for_gpus(planner, question, limits);
    ASSERT_TRUE(result.any_fits);
    const double step_s = result.suggestions.front().plan.time.step_s;
    EXPECT_LE(step_s, before) << gib;
    before = step_s;
  }
}

}  // namespace
}  // namespace sluice
