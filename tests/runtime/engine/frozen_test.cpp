// Frozen parameters (train.freeze): they do not change, the others train as if they did, on every
// layout, and checkpoints hold each frozen element once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "base/error.hpp"
#include "runtime/model/frozen_groups.hpp"
#include "tests/runtime/engine/saved_world.hpp"
#include "tests/runtime/engine/tier_matrix.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

bool is_frozen(const std::vector<std::string>& patterns, const std::string& name) {
  for (const std::string& pattern : patterns) {
    if (names_parameter(pattern, name)) return true;
  }
  return false;
}

EngineOptions frozen(EngineOptions options, std::vector<std::string> patterns) {
  options.model.freeze = std::move(patterns);
  return options;
}

// The first units, so that backward ends before them; kinds of parameters of every block; units in
// the middle, through which gradients pass.
const std::vector<std::vector<std::string>> kPatterns = {
    {"wte", "wpe", "h.0-1"}, {"h.*.attn", "h.*.mlp.*.bias", "ln_f.weight"}, {"h.1-2"}};

TEST(Frozen, PatternsFollowTheComponentsOfNames) {
  const std::string name = "h.12.attn.c_attn.weight";
  for (const char* pattern : {"h", "h.12", "h.*", "h.0-12", "h.12-12.*", "h.1?.attn", "*.*.*.c_*",
                              "h.12.attn.c_attn.weight"}) {
    EXPECT_TRUE(names_parameter(pattern, name)) << pattern;
  }
  for (const char* pattern : {"", "h.1", "h.0-11", "h.13-20", "h.12-0", "attn",
                              "h.12.attn.c_attn.bias", "h.12.attn.c_attn.weight.x", "h.a-z"}) {
    EXPECT_FALSE(names_parameter(pattern, name)) << pattern;
  }
}

TEST(Frozen, NothingToTrainAndUnknownNamesAreRefused) {
  const auto message = [](std::vector<std::string> patterns) {
    ModelOptions options = tiny_options().model;
    options.freeze = std::move(patterns);
    try {
      (void)make_model_spec(options);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({"wte"}), "");
  EXPECT_THAT(message({"wte", "h.2"}), HasSubstr("train.freeze: h.2 names no parameter"));
  EXPECT_THAT(message({"*"}), HasSubstr("nothing is left to train"));
}

TEST(Frozen, ASplitGroupKeepsTheOrderOfItsUnit) {
  ModelOptions options = tiny_options().model;
  const ModelSpec whole = make_model_spec(options);
  options.freeze = {"h.*.attn"};
  const ModelSpec split = make_model_spec(options);
  const auto names = [](const ModelSpec& spec, std::size_t unit) {
    std::vector<std::string> names;
    for (const ParamRef& ref : spec.units[unit].params) {
      names.push_back(spec.groups[static_cast<std::size_t>(ref.group)]
                          .params[static_cast<std::size_t>(ref.index)]
                          .tensor.name);
    }
    return names;
  };
  for (std::size_t u = 0; u < whole.units.size(); ++u) EXPECT_EQ(names(split, u), names(whole, u));
  EXPECT_EQ(split.groups.size(), whole.groups.size() + 2);
  EXPECT_EQ(split.param_count(), whole.param_count());
  for (const ParamGroup& group : split.groups) {
    for (const ParamSpec& param : group.params) {
      EXPECT_EQ(group.frozen, is_frozen(options.freeze, param.tensor.name)) << param.tensor.name;
    }
  }
}

// Whole groups are frozen, so all products are the same: an unclipped first step's too.
TEST(Frozen, TheRestTrainsAsBefore) {
  for (const bool explicit_units : {true, false}) {
    EngineOptions options = tier_options(DType::kFloat32, 1);
    options.model.explicit_units = explicit_units;
    options.train.clip = 0;
    const WorldResult start = train_world(options, 0, Wire::kLocal);
    const WorldResult all = train_world(options, 1, Wire::kLocal);
    for (const std::vector<std::string>& patterns : {kPatterns[0], kPatterns[2]}) {
      const WorldResult part = train_world(frozen(options, patterns), 1, Wire::kLocal);
      EXPECT_EQ(part.losses, all.losses);
      EXPECT_LT(part.norms[0], all.norms[0]);
      for (const auto& [name, weights] : part.weights) {
        const WorldResult& as = is_frozen(patterns, name) ? start : all;
        EXPECT_TRUE(weights == as.weights.at(name)) << name;
      }
    }
  }
}

// Kinds of parameters: gradients of neighbours are separate products, whose sums round differently.
TEST(Frozen, KindsOfParametersTrainAsBefore) {
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    EngineOptions options = tier_options(DType::kFloat32, 1);
    options.model.type = type;
    options.train.clip = 0;
    options.optimizer.type = OptimizerType::kSgd;
    options.optimizer.lr = 0.1;
    const std::vector<std::string> patterns =
        type == ModelType::kGpt2
            ? kPatterns[1]
            : std::vector<std::string>{"model.layers.*.self_attn.k_proj", "model.layers.*.*norm",
                                       "model.layers.1.mlp.up_proj"};
    const WorldResult start = train_world(options, 0, Wire::kLocal);
    const WorldResult all = train_world(options, 1, Wire::kLocal);
    const WorldResult part = train_world(frozen(options, patterns), 1, Wire::kLocal);
    for (const auto& [name, weights] : part.weights) {
      if (is_frozen(patterns, name)) {
        EXPECT_TRUE(weights == start.weights.at(name)) << name;
        continue;
      }
      const std::vector<float>& want = all.weights.at(name);
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(weights[i], want[i], 1e-6) << name;
    }
  }
}

TEST(Frozen, StagesTiersAndOrdersAreBitIdentical) {
  const TemporaryFolder folder;
  constexpr int kSteps = 3;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const std::vector<std::string>& patterns : kPatterns) {
      EngineOptions options = frozen(tier_options(dtype, 2), patterns);
      const WorldResult start = train_world(options, 0, Wire::kLocal);
      const WorldResult oracle = train_world(options, kSteps, Wire::kLocal);
      for (const auto& [name, weights] : oracle.weights) {
        EXPECT_EQ(weights == start.weights.at(name), is_frozen(patterns, name)) << name;
      }
      options.offload.nvme_path = {folder.path().string()};
      for (int stage = 0; stage <= 3; ++stage) {
        for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
          const bool shards = stage >= 2 && tier != Tier::kDevice;
          const Placed placed{.optimizer = tier,
                              .parameters = stage == 3 ? tier : Tier::kDevice,
                              .gradients = shards ? tier : Tier::kDevice,
                              .activations = stage == 2 ? tier : Tier::kDevice};
          options.zero.stage = stage;
          options.recompute.mode = stage == 1 ? RecomputeMode::kFull : RecomputeMode::kNone;
          options.train.accumulation_order =
              stage == 3 ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
          place(options, placed);
          expect_same_bits(train_world(options, kSteps, Wire::kLocal), oracle,
                           patterns[0] + ", " + describe(placed, options));
        }
      }
    }
  }
}

TEST(Frozen, MeshesTrainTheSame) {
  for (const std::vector<std::string>& patterns : kPatterns) {
    EngineOptions options = frozen(options_of({1, 0}, ""), {patterns});
    if (patterns[0] == "h.1-2") options.model.freeze = {"h.1"};
    const WorldResult one = train_world(options, 2, Wire::kLocal);
    for (const auto& [tensor, pipeline, schedule] :
         {std::tuple{2, 1, PipelineSchedule::k1f1b}, std::tuple{1, 2, PipelineSchedule::k1f1b},
          std::tuple{1, 2, PipelineSchedule::kZeroBubble}}) {
      EngineOptions mesh = options;
      mesh.parallel.tensor = tensor;
      mesh.parallel.pipeline = pipeline;
      mesh.parallel.schedule = schedule;
      const WorldResult result = train_world(mesh, 2, Wire::kLocal);
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(result.losses[i], one.losses[i], 1e-5) << describe_mesh(mesh);
      }
      for (const auto& [name, weights] : result.weights) {
        if (!is_frozen(options.model.freeze, name)) continue;
        EXPECT_TRUE(weights == one.weights.at(name)) << name;
      }
    }
  }
}

TEST(Frozen, SavedBytesAreThoseOfTrainedStatesAndOfFrozenParameters) {
  EngineOptions options = frozen(options_of({3, 2}, "", DType::kBFloat16), kPatterns[1]);
  const ModelSpec spec = make_model_spec(options.model);
  const std::int64_t frozen_bytes = 2 * spec.frozen_param_count();
  std::atomic<std::int64_t> bytes{0};
  run_world(options, Wire::kLocal,
            [&](int, Engine& engine) { bytes += bytes_of(engine.saved_pieces()); });
  EXPECT_GT(frozen_bytes, 0);
  EXPECT_EQ(bytes, 12 * (spec.param_count() - spec.frozen_param_count()) + frozen_bytes);
}

TEST(Frozen, ACheckpointHoldsEachFrozenElementOnceAndResumesElsewhere) {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  const std::vector<std::string> patterns{"wte", "h.0", "h.*.mlp.*.bias"};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const std::string saved = path(dtype == DType::kFloat32 ? "fp32" : "bf16");
    const auto on = [&](const Layout& layout) {
      return frozen(options_of(layout, path("swap"), dtype), patterns);
    };
    const Layout nvme{2, 3, Tier::kNvme, Tier::kNvme, Tier::kNvme};
    const WorldResult whole = train_part(on(nvme), {.steps = 2, .save = saved, .steps_behind = 2});
    const WorldResult resumed = train_part(on({2, 0}), {.steps = 2, .resume = saved});
    EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_TRUE(resumed.weights == whole.weights);
    std::set<std::string> kept;
    for (const auto& [state, values] : states_in(saved)) {
      const std::string name = state.substr(state.find('/') + 1);
      if (is_frozen(patterns, name)) {
        EXPECT_EQ(state, "master/" + name);
      }
      kept.insert(name);
    }
    EXPECT_EQ(kept.size(), whole.weights.size());
  }
}

}  // namespace
}  // namespace sluice::testing
