// Parts of models as tables: what tensor-parallel ranks have covers each parameter once, stages
// have all units once.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "base/error.hpp"
#include "runtime/model/model_slices.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice::testing {
namespace {

ModelOptions small_gpt2(std::int64_t vocab = 101) {
  return {.layers = 2, .hidden = 24, .heads = 6, .vocab = vocab, .seq = 12};
}

ModelOptions qwen2(std::int64_t kv_heads) {
  ModelOptions o{.layers = 2, .hidden = 48, .heads = 12, .vocab = 93, .seq = 12};
  o.type = ModelType::kQwen2;
  o.attention_bias = AttentionBias::kQkvo;
  o.kv_heads = kv_heads;
  o.head_dim = 6;
  o.ffn = 36;
  o.tie_embeddings = false;
  return o;
}

std::int64_t elems(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// f(element of the whole parameter), for each the rank has.
template <class Fn>
void for_elements(const ParamSpec& param, Fn f) {
  const auto& whole = param.boxes.empty() ? param.tensor.shape : param.whole_shape;
  std::vector<ParamBox> boxes = param.boxes;
  if (boxes.empty()) boxes.push_back({std::vector<std::int64_t>(whole.size(), 0), whole});
  const std::int64_t columns = whole.size() == 2 ? whole[1] : 1;
  for (const ParamBox& box : boxes) {
    for (std::int64_t i = 0; i < box.length[0]; ++i) {
      const bool matrix = whole.size() == 2;
      for (std::int64_t j = 0; j < (matrix ? box.length[1] : 1); ++j) {
        f((box.offset[0] + i) * columns + (matrix ? box.offset[1] + j : 0));
      }
    }
  }
}

TEST(ModelPart, RanksCoverEachParameterOnceAndReplicasAsOftenAsTheySay) {
  const std::vector<std::pair<ModelOptions, int>> cases{{small_gpt2(), 2},   {small_gpt2(), 3},
                                                        {small_gpt2(93), 6}, {qwen2(4), 2},
                                                        {qwen2(2), 4},       {qwen2(3), 6}};
  for (const auto& [options, tensor] : cases) {
    SCOPED_TRACE(tensor);
    std::map<std::string, std::vector<int>> counted, held, replicas;
    for (int rank = 0; rank < tensor; ++rank) {
      const ModelSpec spec = make_model_spec(options, {.tensor = tensor, .tensor_rank = rank});
      for (const ParamGroup& group : spec.groups) {
        for (const ParamSpec& param : group.params) {
          const auto& shape = param.boxes.empty() ? param.tensor.shape : param.whole_shape;
          const auto n = static_cast<std::size_t>(elems(shape));
          const std::string& name = param.tensor.name;
          counted[name].resize(n);
          held[name].resize(n);
          replicas[name].resize(n);
          std::int64_t has = 0;
          for_elements(param, [&](std::int64_t at) {
            const auto i = static_cast<std::size_t>(at);
            ++has;
            ++held[name][i];
            counted[name][i] += group.counted ? 1 : 0;
            replicas[name][i] = group.replica_ranks;
          });
          EXPECT_EQ(has, elems(param.tensor.shape)) << name;
        }
      }
    }
    const ModelSpec whole = make_model_spec(options);
    EXPECT_EQ(counted.size(), held.size());
    for (const ParamGroup& group : whole.groups) {
      for (const ParamSpec& param : group.params) {
        const std::string& name = param.tensor.name;
        const auto n = static_cast<std::size_t>(elems(param.tensor.shape));
        EXPECT_EQ(counted.at(name), std::vector<int>(n, 1)) << name;
        EXPECT_EQ(held.at(name), replicas.at(name)) << name;
        EXPECT_TRUE(param.boxes.empty());
      }
    }
  }
}

TEST(ModelPart, GroupsSayWhoElseHasThem) {
  const ModelSpec spec =
      make_model_spec(qwen2(2), {.tensor = 4, .tensor_rank = 3, .sequence = true});
  std::vector<std::string> names;
  for (const ParamGroup& group : spec.groups) {
    names.push_back(group.name);
    const bool kv = group.name.ends_with(".kv"), all = group.name.ends_with(".replicated");
    EXPECT_EQ(group.replicas, kv || all ? Replicas::kTensor : Replicas::kNone) << group.name;
    EXPECT_EQ(group.replica_ranks, kv ? 2 : all ? 4 : 1) << group.name;
    EXPECT_EQ(group.sums_replicas, kv || all) << group.name;
    EXPECT_EQ(group.counted, !kv && !all) << group.name;  // rank 3 is the last of both
  }
  EXPECT_EQ(names, (std::vector<std::string>{"embed_tokens", "layers.0", "layers.0.kv",
                                             "layers.0.replicated", "layers.1", "layers.1.kv",
                                             "layers.1.replicated", "head", "head.replicated"}));
  // Without sequence parallelism replicas see the same tokens: equal gradients by themselves.
  for (const ParamGroup& group :
       make_model_spec(small_gpt2(), {.tensor = 2, .tensor_rank = 0}).groups) {
    EXPECT_FALSE(group.sums_replicas) << group.name;
    EXPECT_TRUE(group.counted) << group.name;
  }
}

TEST(ModelPart, WordsAreCutUnevenlyWithoutPadding) {
  for (const int tensor : {2, 3, 6}) {
    std::int64_t next = 0;
    for (int rank = 0; rank < tensor; ++rank) {
      const ModelOptions options = make_model_spec(small_gpt2(50257)).options;
      const ModelSlices slices = model_slices(options, {.tensor = tensor, .tensor_rank = rank});
      EXPECT_EQ(slices.vocab.first, next);
      EXPECT_EQ(slices.vocab.first % 8, 0);
      EXPECT_LE(slices.vocab.count, slices.vocab_width);
      next += slices.vocab.count;
    }
    EXPECT_EQ(next, 50257);
  }
}

TEST(ModelPart, FlopsAreTheRanksShare) {
  const ModelSpec whole = make_model_spec(qwen2(4));
  const ModelSpec half = make_model_spec(qwen2(4), {.tensor = 2, .tensor_rank = 1});
  const auto flops = [](const ModelSpec& spec) {
    return spec.forward_flops_per_sample(spec.units[1]);
  };
  EXPECT_EQ(flops(half), flops(whole) / 2);
  EXPECT_EQ(half.constant_bytes(), whole.constant_bytes());
}

TEST(ModelPart, StagesHaveTheirUnitsUnderTheNamesOfTheWhole) {
  ModelPart first{.stages = 2, .stage = 0, .chunks = {{0, 2}}};
  ModelPart last{.stages = 2, .stage = 1, .chunks = {{2, 4}}};
  const ModelSpec whole = make_model_spec(small_gpt2());
  const ModelSpec a = make_model_spec(small_gpt2(), first), b = make_model_spec(small_gpt2(), last);
  ASSERT_EQ(a.units.size() + b.units.size(), whole.units.size());
  for (std::size_t u = 0; u < whole.units.size(); ++u) {
    const UnitSpec& unit = u < 2 ? a.units[u] : b.units[u - 2];
    EXPECT_EQ(unit.name, whole.units[u].name);
    EXPECT_EQ(unit.kind, whole.units[u].kind);
    EXPECT_EQ(unit.params.size(), whole.units[u].params.size());
  }
  std::int64_t counted = 0;
  for (const ModelSpec& spec : {a, b}) {
    for (const ParamGroup& group : spec.groups) {
      EXPECT_EQ(group.replicas, group.name == "wte" ? Replicas::kTied : Replicas::kNone);
      EXPECT_EQ(group.sums_replicas, group.name == "wte");
      for (const ParamSpec& param : group.params) {
        if (group.counted) counted += elems(param.tensor.shape);
      }
    }
  }
  EXPECT_EQ(counted, whole.param_count());
  EXPECT_EQ(b.units.back().params.size(), 3U);
  // Cut both ways: the tie is what replicas are about.
  last.tensor = first.tensor = 2;
  for (const ParamGroup& group : make_model_spec(small_gpt2(), last).groups) {
    if (group.name != "wte") continue;
    EXPECT_EQ(group.replicas, Replicas::kTied);
    EXPECT_EQ(group.replica_ranks, 2);
    EXPECT_FALSE(group.counted);
    EXPECT_FALSE(group.params[0].boxes.empty());
  }
  // Interleaved: two chunks on each.
  first.chunks = {{0, 1}, {2, 3}};
  EXPECT_EQ(units_of(whole.options, first), (std::vector<int>{0, 2}));
}

TEST(ModelPart, RefusesWhatCannotBeCut) {
  const auto refused = [](ModelOptions options, const ModelPart& part) {
    try {
      (void)make_model_spec(options, part);
      return std::string();
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(refused(small_gpt2(), {.tensor = 4}),
            "parallel.tensor: model.heads has to divide by tensor: 6 = 1 x 4 + 2; choose a tensor "
            "that divides it");
  EXPECT_NE(refused(qwen2(6), {.tensor = 4}).find("model.kv_heads"), std::string::npos);
  EXPECT_NE(refused(qwen2(4), {.tensor = 6}).find("multiple of them"), std::string::npos);
  EXPECT_NE(refused(small_gpt2(16), {.tensor = 3}).find("would have no words"), std::string::npos);
  ModelOptions odd = small_gpt2();
  odd.seq = 11;
  EXPECT_EQ(refused(odd, {.tensor = 2}), "");
  EXPECT_NE(refused(odd, {.tensor = 2, .sequence = true}).find("model.seq"), std::string::npos);
  EXPECT_THROW((void)make_model_spec(small_gpt2(), {.stages = 2}), Error);
  EXPECT_THROW((void)make_model_spec(small_gpt2(), {.stages = 2, .chunks = {{1, 2}}}), Error);
  EXPECT_THROW((void)make_model_spec(small_gpt2(), {.stages = 2, .chunks = {{0, 2}, {1, 3}}}),
               Error);
}

}  // namespace
}  // namespace sluice::testing
