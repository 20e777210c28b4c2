// Which part of a model a rank has, and where its elements are in the whole: every element of every
// parameter is on the ranks that its replicas say, and nowhere else.
#include "runtime/engine/rank_part.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"
#include "runtime/engine/param_parts.hpp"

namespace sluice::testing {
namespace {

ModelOptions tiny(ModelType type, bool tied) {
  ModelOptions model{.type = type, .layers = 5, .hidden = 16, .heads = 4, .vocab = 53, .seq = 8};
  model.kv_heads = type == ModelType::kGpt2 ? 4 : 2;
  model.ffn = 24;
  model.tie_embeddings = tied;
  return model;
}

TEST(RankPart, StagesShareTheUnitsEvenly) {
  const ModelSpec whole = make_model_spec(tiny(ModelType::kGpt2, true));
  for (int chunks = 1; chunks <= 7; ++chunks) {
    int end = 0;
    double dearest = 0;
    double all = 0;
    double largest = 0;
    for (const UnitRange& range : cut_units(whole, chunks)) {
      EXPECT_EQ(range.begin, end);
      EXPECT_GT(range.end, range.begin);
      double cost = 0;
      for (int u = range.begin; u < range.end; ++u) {
        const double unit =
            whole.forward_flops_per_sample(whole.units[static_cast<std::size_t>(u)]);
        cost += unit;
        largest = std::max(largest, unit);
      }
      all += cost;
      dearest = std::max(dearest, cost);
      end = range.end;
    }
    EXPECT_EQ(end, 7);
    EXPECT_LE(dearest, all / chunks + largest);
  }
  EXPECT_THROW((void)cut_units(whole, 8), ConfigError);
}

TEST(RankPart, ChunksTakeTurnsOverStages) {
  const ParallelOptions parallel{
      .pipeline = 2, .virtual_stages = 2, .schedule = PipelineSchedule::kInterleaved};
  const ModelOptions model = tiny(ModelType::kGpt2, true);
  const ModelPart first = part_of_rank(model, parallel, {.pp = 0});
  const ModelPart last = part_of_rank(model, parallel, {.pp = 1});
  ASSERT_EQ(first.chunks.size(), 2U);
  EXPECT_EQ(first.chunks[0].begin, 0);
  EXPECT_EQ(first.chunks[0].end, last.chunks[0].begin);
  EXPECT_EQ(last.chunks[0].end, first.chunks[1].begin);
  EXPECT_EQ(first.chunks[1].end, last.chunks[1].begin);
  EXPECT_EQ(last.chunks[1].end, 7);
}

TEST(RankPart, GivenLayersWithWhatStandsBesideThem) {
  const ParallelOptions parallel{.pipeline = 2,
                                 .virtual_stages = 2,
                                 .schedule = PipelineSchedule::kInterleaved,
                                 .stage_layers = {2, 1, 1, 1}};
  const ModelOptions model = tiny(ModelType::kGpt2, true);
  const ModelPart first = part_of_rank(model, parallel, {.pp = 0});
  const ModelPart last = part_of_rank(model, parallel, {.pp = 1});
  EXPECT_EQ(first.chunks, (std::vector<UnitRange>{{0, 3}, {4, 5}}));
  EXPECT_EQ(last.chunks, (std::vector<UnitRange>{{3, 4}, {5, 7}}));
  ParallelOptions other = parallel;
  other.stage_layers = {2, 1, 1, 2};
  EXPECT_THROW((void)part_of_rank(model, other, {.pp = 0}), ConfigError);
}

struct Held {
  int times = 0;
  int counted = 0;
};

// By parameter, how often each element is held over all (tp, pp), and by groups that are counted.
std::map<std::string, std::vector<Held>> holders(const ModelOptions& model,
                                                 const ParallelOptions& parallel) {
  std::map<std::string, std::vector<Held>> held;
  for (int pp = 0; pp < parallel.pipeline; ++pp) {
    for (int tp = 0; tp < parallel.tensor; ++tp) {
      const ModelSpec spec =
          make_model_spec(model, part_of_rank(model, parallel, {.tp = tp, .pp = pp}));
      for (const ParamGroup& group : spec.groups) {
        for (const ParamSpec& param : group.params) {
          std::vector<Held>& elements = held[param.tensor.name];
          elements.resize(static_cast<std::size_t>(element_count(whole_shape(param))));
          std::int64_t local = 0;
          for (const ParamRun& run : runs_of(param, 0, element_count(param.tensor.shape))) {
            EXPECT_EQ(run.local, local);
            local += run.elems;
            for (std::int64_t i = run.whole; i < run.whole + run.elems; ++i) {
              ++elements[static_cast<std::size_t>(i)].times;
              elements[static_cast<std::size_t>(i)].counted += group.counted ? 1 : 0;
            }
          }
          EXPECT_EQ(local, element_count(param.tensor.shape));
        }
      }
    }
  }
  return held;
}

TEST(ParamParts, EveryElementIsCountedOnce) {
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    for (const bool tied : {false, true}) {
      for (const int tensor : {1, 2, 4}) {
        for (const int pipeline : {1, 3}) {
          const ModelOptions model = tiny(type, tied);
          const auto held = holders(model, {.tensor = tensor, .pipeline = pipeline});
          std::int64_t elems = 0;
          for (const auto& [name, elements] : held) {
            elems += static_cast<std::int64_t>(elements.size());
            for (const Held& element : elements) {
              ASSERT_EQ(element.counted, 1) << name;
              ASSERT_GE(element.times, 1) << name;
            }
          }
          EXPECT_EQ(elems, make_model_spec(model).param_count());
        }
      }
    }
  }
}

TEST(ParamParts, RunsOfAShareAreThoseOfTheWholeCutThere) {
  ParamSpec param;
  param.tensor = {"columns", {5, 4}};
  param.whole_shape = {5, 12};
  param.boxes = {{{0, 4}, {5, 4}}};
  const std::vector<ParamRun> runs = runs_of(param, 3, 10);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].whole, 7);
  EXPECT_EQ(runs[0].elems, 1);
  EXPECT_EQ(runs[1].local, 4);
  EXPECT_EQ(runs[1].whole, 16);
  EXPECT_EQ(runs[1].elems, 4);
  EXPECT_EQ(runs[2].whole, 28);
  EXPECT_EQ(runs[2].elems, 2);
}

TEST(ParamParts, TravelAsText) {
  ParamSpec param;
  param.tensor = {"rows", {4, 3}};
  param.whole_shape = {12, 3};
  param.boxes = {{{0, 0}, {2, 3}}, {{6, 0}, {2, 3}}};
  const ParamSpec came = decode_part("rows", encode_part(param));
  EXPECT_EQ(came.whole_shape, param.whole_shape);
  ASSERT_EQ(came.boxes.size(), 2U);
  EXPECT_EQ(came.boxes[1].offset, param.boxes[1].offset);
  EXPECT_EQ(part_elems(came), 12);
  EXPECT_EQ(part_elems(decode_part("none", "")), 0);
  const ParamSpec whole = decode_part("whole", encode_part({.tensor = {"whole", {7}}}));
  EXPECT_EQ(part_elems(whole), 7);
  EXPECT_THROW((void)decode_part("bad", "2\n1 3\n1"), Error);
}

}  // namespace
}  // namespace sluice::testing
