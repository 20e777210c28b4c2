// Every optimizer: the arithmetic of plain libtorch, the same bits on every layout, and checkpoints
// that resume on another one.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/units.hpp"
#include "tests/runtime/engine/saved_world.hpp"
#include "tests/runtime/engine/tier_matrix.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice::testing {
namespace {

std::string name_of(const OptimizerRule& rule) { return std::string(keys_of(rule.type).name); }

EngineOptions with(EngineOptions options, const OptimizerRule& rule) {
  options.optimizer.type = rule.type;
  options.optimizer.betas = keys_of(rule.type).betas;
  options.optimizer.lr = rule.type == OptimizerType::kSgd ? 0.05 : 3e-3;
  return options;
}

struct PlainParam {
  std::string name;
  bool decay = false;
  at::Tensor value, grad, moment, second_moment;
  bool written = false;
};

// A model's parameters with gradients that units add to.
class PlainSink final : public GradSink {
 public:
  explicit PlainSink(std::vector<PlainParam*> params) : params_(std::move(params)) {}
  GradTarget target(int index) override {
    PlainParam& param = *params_[static_cast<std::size_t>(index)];
    return {param.grad, std::exchange(param.written, true)};
  }

 private:
  const std::vector<PlainParam*> params_;
};

// One rank's training, of the engine's units and libtorch's arithmetic.
class PlainTraining {
 public:
  PlainTraining(const EngineOptions& options, const WorldResult& initial)
      : options_(options), model_(make_model(options.model)) {
    for (const ParamGroup& group : model_.spec.groups) {
      groups_.emplace_back();
      for (const ParamSpec& spec : group.params) {
        const std::vector<float>& from = initial.weights.at(spec.tensor.name);
        PlainParam param;
        param.name = spec.tensor.name;
        param.decay = spec.tensor.decay;
        for (at::Tensor* tensor :
             {&param.value, &param.grad, &param.moment, &param.second_moment}) {
          *tensor = empty_tensor(spec.tensor.shape, c10::ScalarType::Float).zero_();
        }
        std::copy(from.begin(), from.end(), host_data<float>(param.value));
        groups_.back().push_back(std::move(param));
      }
    }
  }

  void step(std::int64_t index) {
    for (auto& group : groups_) {
      for (PlainParam& param : group) param.written = false;
    }
    backward(index);
    for (auto& group : groups_) {
      for (PlainParam& param : group) update(param, index);
    }
  }

  [[nodiscard]] const std::vector<std::vector<PlainParam>>& groups() const { return groups_; }

 private:
  std::vector<PlainParam*> params_of(std::size_t unit) {
    std::vector<PlainParam*> params;
    for (const ParamRef& ref : model_.spec.units[unit].params) {
      params.push_back(
          &groups_[static_cast<std::size_t>(ref.group)][static_cast<std::size_t>(ref.index)]);
    }
    return params;
  }
  std::vector<at::Tensor> values_of(std::size_t unit) {
    std::vector<at::Tensor> values;
    for (const PlainParam* param : params_of(unit)) values.push_back(param->value);
    return values;
  }
  at::Tensor tokens_of(const std::vector<std::int64_t>& tokens) const {
    const at::Tensor tensor =
        empty_tensor({options_.train.micro_batch, options_.model.seq}, c10::ScalarType::Long);
    std::copy(tokens.begin(), tokens.end(), host_data<std::int64_t>(tensor));
    return tensor;
  }

  void backward(std::int64_t index) {
    SampleRows rows;
    formula_rows(options_.model.seq, options_.model.vocab)(index, 0, options_.train.micro_batch,
                                                           rows);
    const UnitCall call{.training = true, .seed = 0, .step = index};
    const std::size_t units = model_.units.size();
    std::vector<at::Tensor> inputs{tokens_of(rows.tokens)};
    std::vector<std::unique_ptr<Saved>> saved(units);
    for (std::size_t u = 0; u < units; ++u) {
      inputs.push_back(model_.units[u]->forward(call, values_of(u), inputs[u], &saved[u]));
    }
    const std::int64_t count = options_.train.micro_batch * options_.model.seq;
    const at::Tensor scratch =
        empty_tensor({model_.head->scratch_bytes(count, DType::kFloat32)}, c10::ScalarType::Byte);
    at::Tensor gradient;
    PlainSink head(params_of(units));
    (void)model_.head->loss(values_of(units), inputs.back(), tokens_of(rows.targets),
                            1.0 / static_cast<double>(count), scratch, &head, &gradient);
    for (std::size_t u = units; u-- > 0;) {
      PlainSink sink(params_of(u));
      gradient = model_.units[u]->backward(call, values_of(u), inputs[u], std::move(saved[u]),
                                           gradient, sink);
    }
  }

  // torch.optim.Adam and AdamW.
  void update_adam(PlainParam& param, std::int64_t step, double decay) const {
    const OptimizerOptions& o = options_.optimizer;
    const at::Tensor grad = o.decoupled ? param.grad : param.grad.add(param.value, decay);
    if (o.decoupled) param.value.mul_(1 - o.lr * decay);
    param.moment.mul_(o.betas[0]).add_(grad, 1 - o.betas[0]);
    param.second_moment.mul_(o.betas[1]).add_(grad.mul(grad), 1 - o.betas[1]);
    const auto bias = [&](double beta) {
      return o.bias_correction ? 1 - std::pow(beta, static_cast<double>(step)) : 1;
    };
    const at::Tensor root = param.second_moment.div(bias(o.betas[1])).sqrt_().add_(o.eps);
    param.value.add_(param.moment.div(root), -o.lr / bias(o.betas[0]));
  }

  // torch.optim.SGD; Chen et al. 2023, algorithm 2.
  void update(PlainParam& param, std::int64_t step) const {
    const OptimizerOptions& o = options_.optimizer;
    const double decay = param.decay || o.decay == DecayScope::kAll ? o.weight_decay : 0;
    if (o.type == OptimizerType::kAdamW) return update_adam(param, step, decay);
    at::Tensor& m = param.moment;
    if (o.type == OptimizerType::kSgd) {
      const at::Tensor grad = param.grad.add(param.value, decay);
      m.mul_(o.momentum).add_(grad);
      param.value.add_(m, -o.lr);
      return;
    }
    const at::Tensor direction = m.mul(o.betas[0]).add_(param.grad, 1 - o.betas[0]).sign_();
    param.value.mul_(1 - o.lr * decay).add_(direction, -o.lr);
    m.mul_(o.betas[1]).add_(param.grad, 1 - o.betas[1]);
  }

  const EngineOptions options_;
  Model model_;
  std::vector<std::vector<PlainParam>> groups_;
};

class Optimizers : public ::testing::TestWithParam<OptimizerType> {
 protected:
  const OptimizerRule& rule_ = rule_of(GetParam());
};

// 20 steps of `options` without clipping.
void expect_plain_training(EngineOptions options) {
  constexpr int kSteps = 20;
  options.train.clip = 0;
  PlainTraining plain(options, train_world(options, 0, Wire::kLocal));
  const WorldResult ours = train_world(options, kSteps, Wire::kLocal);
  EXPECT_LT(ours.losses.back(), ours.losses.front());
  for (int step = 1; step <= kSteps; ++step) plain.step(step);
  for (const auto& group : plain.groups()) {
    for (const PlainParam& param : group) {
      const std::vector<float>& have = ours.weights.at(param.name);
      const float* want = host_data<float>(param.value);
      double apart = 0;
      for (std::size_t i = 0; i < have.size(); ++i) {
        apart = std::max(apart, std::abs(static_cast<double>(have[i]) - want[i]));
      }
      EXPECT_LE(apart, 1e-6) << param.name;
    }
  }
}

TEST_P(Optimizers, FollowsPlainLibtorch) {
  if (GetParam() == OptimizerType::kAdamW) GTEST_SKIP() << "tests/runtime/model has golden steps";
  EngineOptions options = with(tiny_options(), rule_);
  expect_plain_training(options);
  options.optimizer.decay = DecayScope::kAll;
  expect_plain_training(options);
}

// An eps at which gradients that are 0 but for rounding move nothing.
constexpr double kLargeEps = 1e-3;

TEST(AdamForms, FollowPlainLibtorch) {
  EngineOptions options = with(tiny_options(), rule_of(OptimizerType::kAdamW));
  options.optimizer.eps = kLargeEps;
  for (const DecayScope decay : {DecayScope::kMatrices, DecayScope::kAll}) {
    for (const bool decoupled : {true, false}) {
      for (const bool bias_correction : {true, false}) {
        SCOPED_TRACE("decay " + std::to_string(static_cast<int>(decay)) + ", decoupled " +
                     std::to_string(static_cast<int>(decoupled)) + ", bias correction " +
                     std::to_string(static_cast<int>(bias_correction)));
        options.optimizer.decay = decay;
        options.optimizer.decoupled = decoupled;
        options.optimizer.bias_correction = bias_correction;
        expect_plain_training(options);
      }
    }
  }
}

TEST(AdamForms, StagesAndTiersAreBitIdentical) {
  const TemporaryFolder folder;
  EngineOptions options = with(tier_options(DType::kBFloat16, 1), rule_of(OptimizerType::kAdamW));
  const WorldResult usual = train_world(options, 3, Wire::kLocal);
  options.optimizer.decay = DecayScope::kAll;
  options.optimizer.decoupled = options.optimizer.bias_correction = false;
  const WorldResult oracle = train_world(options, 3, Wire::kLocal);
  EXPECT_NE(oracle.weights, usual.weights);
  options.offload.nvme_path = {folder.path().string()};
  for (const int stage : {0, 3}) {
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      const Placed placed{.optimizer = tier};
      options.zero.stage = stage;
      place(options, placed);
      expect_same_bits(train_world(options, 3, Wire::kLocal), oracle, describe(placed, options));
    }
  }
}

TEST_P(Optimizers, StagesAndTiersAreBitIdentical) {
  const TemporaryFolder folder;
  constexpr int kSteps = 3;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EngineOptions options = with(tier_options(dtype, 1), rule_);
    const WorldResult oracle = train_world(options, kSteps, Wire::kLocal);
    options.offload.nvme_path = {folder.path().string()};
    for (int stage = 0; stage <= 3; ++stage) {
      for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
        const bool shards = stage >= 2 && tier != Tier::kDevice;
        const Placed placed{.optimizer = tier,
                            .parameters = stage == 3 ? tier : Tier::kDevice,
                            .gradients = shards ? tier : Tier::kDevice};
        options.zero.stage = stage;
        place(options, placed);
        const std::string what = name_of(rule_) + ", " + describe(placed, options);
        expect_same_bits(train_world(options, kSteps, Wire::kLocal), oracle, what);
      }
    }
  }
}

TEST_P(Optimizers, NarrowMomentsDoNotDependOnTheirTier) {
  const TemporaryFolder folder;
  EngineOptions options = with(tier_options(DType::kBFloat16, 1), rule_);
  options.zero.stage = 2;
  const WorldResult wide = train_world(options, 4, Wire::kLocal);
  options.offload.nvme_path = {folder.path().string()};
  options.offload.states_dtype = DType::kBFloat16;
  const WorldResult device = train_world(options, 4, Wire::kLocal);
  EXPECT_NE(device.weights, wide.weights);
  options.offload.optimizer = Tier::kHost;
  expect_same_bits(train_world(options, 4, Wire::kLocal), device, name_of(rule_) + ", host");
  options.offload.optimizer = Tier::kNvme;
  options.zero.stage = 3;
  expect_same_bits(train_world(options, 4, Wire::kLocal), device, name_of(rule_) + ", nvme");
}

// With the second places of an image, which updates write in turns.
TEST_P(Optimizers, BytesOnNvmeAreThePlans) {
  const TemporaryFolder folder;
  EngineOptions options = with(tier_options(DType::kBFloat16, 1), rule_);
  options.zero.stage = 3;
  options.offload.nvme_path = {folder.path().string()};
  options.offload.image = true;
  place(options, {Tier::kNvme, Tier::kNvme, Tier::kNvme, Tier::kNvme});
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    (void)engine.train_step({.step = 1, .lr = 1e-3});
    EXPECT_EQ(engine.tiers()->nvme_bytes(), add_up(engine.train_program(), Tier::kNvme).peak());
  });
}

TEST_P(Optimizers, ACheckpointResumesOnAnotherLayout) {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  const Layout nvme{2, 3, Tier::kNvme, Tier::kNvme, Tier::kNvme};
  const Layout device{2, 0};
  const WorldResult whole = train_part(with(options_of(nvme, path("swap")), rule_),
                                       {.steps = 2, .save = path("saved"), .steps_behind = 2});
  const WorldResult resumed = train_part(with(options_of(device, path("swap")), rule_),
                                         {.steps = 2, .resume = path("saved")});
  EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  EXPECT_TRUE(resumed.weights == whole.weights);
  (void)train_part(with(options_of({3, 2, Tier::kHost}, path("swap")), rule_),
                   {.resume = path("saved"), .save = path("again")});
  const auto states = states_in(path("saved"));
  EXPECT_TRUE(states_in(path("again")) == states);
  EXPECT_EQ(states.size(), whole.weights.size() * rule_.states().size());
}

INSTANTIATE_TEST_SUITE_P(Rules, Optimizers,
                         ::testing::Values(OptimizerType::kAdamW, OptimizerType::kLion,
                                           OptimizerType::kSgd),
                         [](const auto& info) { return name_of(rule_of(info.param)); });

}  // namespace
}  // namespace sluice::testing
