// Tiers of a real GPU against the run that has everything on it. Skipped where there is none.
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/run/planned_engine.hpp"
#include "tests/free_port.hpp"
#include "tests/runtime/engine/packed/packed_batches.hpp"
#include "tests/runtime/engine/tier_matrix.hpp"
#include "tests/runtime/engine/update/update_states.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

// What the GPU's kernels may differ by from one run to the next (sums by atomics). Its update has
// the host's bits: below.
constexpr double kTolerance = 1e-4;

class GpuTiers : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!cuda_module_is_built()) GTEST_SKIP() << "built without CUDA";
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU is visible";
    use_gpu(0);
    comm_ = make_nccl_communicator(
        {.rank = 0, .size = 1, .master_port = free_port(), .timeout = std::chrono::seconds(60)});
  }

  [[nodiscard]] EngineOptions options() const {
    EngineOptions options = tier_options(GetParam(), 3);
    options.dp = 1;
    options.model.on_gpu = true;
    options.train.global_batch = options.train.micro_batch * 3;
    options.recompute.mode = RecomputeMode::kFull;
    options.zero.stage = 3;
    options.tiers.nvme.run_id = "gpu";
    options.tiers.nvme.cache = IoCache::kDirectOrBuffered;
    options.tiers.nvme.paths = {folder_.path().string()};
    options.offload.nvme_path = {folder_.path().string()};
    return options;
  }

  [[nodiscard]] WorldResult train(const EngineOptions& options, const RowSource& given = {}) {
    const RowSource rows = given ? given : formula_rows(options.model.seq, options.model.vocab);
    WorldResult result;
    try {
      Engine engine = planned_engine(options, make_model(options.model), *comm_,
                                     at::Device(c10::DeviceType::CUDA, 0), rows, rows);
      train_steps(engine, options, kTierSteps, result);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error_chain(error);  // gtest prints the outermost alone
      throw;
    }
    return result;
  }

  const TemporaryFolder folder_;
  std::unique_ptr<Communicator> comm_;
};

void expect_near(const WorldResult& a, const WorldResult& b, const std::string& what) {
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i] / b.losses[i], 1.0, kTolerance) << what << ", step " << i + 1;
    EXPECT_NEAR(a.norms[i] / b.norms[i], 1.0, 20 * kTolerance) << what << ", step " << i + 1;
  }
  EXPECT_NEAR(a.eval_loss / b.eval_loss, 1.0, kTolerance) << what;
}

TEST_P(GpuTiers, EveryTierTrainsAsTheDevice) {
  EngineOptions own = options();
  const WorldResult oracle = train(own);
  const Tier kDevice = Tier::kDevice;
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    for (const Placed& placed :
         {Placed{kDevice, kDevice, kDevice, tier}, Placed{tier, kDevice, kDevice, kDevice},
          Placed{tier, tier, kDevice, kDevice}, Placed{tier, kDevice, tier, kDevice},
          Placed{tier, tier, tier, tier}}) {
      place(own, placed);
      expect_near(train(own), oracle, describe(placed, own));
    }
  }
  place(own, {Tier::kHost, kDevice, kDevice, kDevice});
  own.offload.device_fraction = 0.4;
  expect_near(train(own), oracle, "a share on the device");
}

TEST_P(GpuTiers, PackedRowsTrainAsTheirDocuments) {
  for (const bool mistral : {false, true}) {
    EngineOptions packed = packed_world(mistral);
    packed.model.on_gpu = true;
    packed.train.dtype = GetParam();
    EngineOptions apart = packed;
    apart.model.packed_rows = false;
    apart.train.global_batch = packed_documents();
    const double rounding = GetParam() == DType::kFloat32 ? 1 : 100;
    const WorldResult a = train(packed, packed_rows), b = train(apart, unpacked_rows);
    for (std::size_t i = 0; i < a.losses.size(); ++i) {
      EXPECT_NEAR(a.losses[i] / b.losses[i], 1.0, rounding * kTolerance) << "step " << i + 1;
    }
  }
}

// Three updates of both leave the same weights and moments.
void expect_equal_updates(GroupState& host, GroupState& device) {
  for (std::int64_t step = 1; step <= 3; ++step) {
    UpdateArgs args = kUpdateArgs;
    args.step = step;
    update_on_its_device(host, kUpdateOptions, args);
    update_on_its_device(device, kUpdateOptions, args);
  }
  EXPECT_TRUE(device.shard.cpu().equal(host.shard));
  EXPECT_TRUE(device.moments[0].cpu().equal(host.moments[0]));
  EXPECT_TRUE(device.moments[1].cpu().equal(host.moments[1]));
}

// No value here is subnormal, which is where the two differ (kernels/cuda/launch.hpp).
TEST(GpuUpdate, HasTheHostsBits) {
  if (!cuda_module_is_built()) GTEST_SKIP() << "built without CUDA";
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU is visible";
  use_gpu(0);
  const at::Device gpu(c10::DeviceType::CUDA, 0);
  for (const DType weights : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const DType gradients : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      GroupState host = update_state(weights, gradients);
      GroupState device = host;
      device.shard = host.shard.to(gpu);
      device.master = host.master_is_shard ? device.shard.narrow(0, 0, 17) : host.master.to(gpu);
      device.moments[0] = host.moments[0].to(gpu);
      device.moments[1] = host.moments[1].to(gpu);
      device.grad_owned = host.grad_owned.to(gpu);
      expect_equal_updates(host, device);
      EXPECT_TRUE(device.master.cpu().equal(host.master));
    }
  }
}

TEST(GpuUpdate, OfRemaindersHasTheHostsBits) {
  if (!cuda_module_is_built()) GTEST_SKIP() << "built without CUDA";
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU is visible";
  use_gpu(0);
  const at::Device gpu(c10::DeviceType::CUDA, 0);
  for (const DType gradients : {DType::kFloat32, DType::kBFloat16}) {
    GroupState host = bf16_state(gradients, false);
    GroupState device = bf16_state(gradients, true);
    for (at::Tensor* const array : {&device.shard, &device.remainders, &device.moments[0],
                                    &device.moments[1], &device.grad_owned}) {
      *array = array->to(gpu);
    }
    expect_equal_updates(host, device);
    EXPECT_TRUE(device.remainders.cpu().equal(remainders_of(host.master)));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GpuTiers, ::testing::Values(DType::kFloat32, DType::kBFloat16));

}  // namespace
}  // namespace sluice::testing
