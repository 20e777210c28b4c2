// Images of tensor-parallel ranks and pipeline stages: all of the mesh go on from one step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "offload/io_backend.hpp"
#include "runtime/plan/plan_text.hpp"
#include "tests/runtime/engine/image/image_life.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct MeshCase {
  const char* name;
  int tensor, dp, pipeline, stage;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  DType dtype = DType::kBFloat16;
  Tier parameters = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  bool speculate = false;
  bool sequence = false;
  bool tied = true;
  DType moments = DType::kFloat32;
};

EngineOptions options_of(const MeshCase& c) {
  EngineOptions options = image_model(c.dtype, c.dp);
  options.model.heads = 4;
  options.model.tie_embeddings = c.tied;
  options.parallel.tensor = c.tensor;
  options.parallel.sequence = c.sequence;
  options.parallel.pipeline = c.pipeline;
  options.parallel.schedule = c.schedule;
  if (c.schedule == PipelineSchedule::kInterleaved) options.parallel.virtual_stages = 2;
  options.zero.stage = c.stage;
  return options;
}

EngineOptions with_image(const MeshCase& c, const TemporaryFolder& folder) {
  EngineOptions options = options_of(c);
  keep_image(options, folder.path().string());
  options.offload.parameters = c.parameters;
  options.offload.gradients = c.gradients;
  options.offload.states_dtype = c.moments;
  if (c.speculate) options.offload.speculate = Speculation::kAuto;
  return options;
}

std::string swap_of(const TemporaryFolder& folder, int rank) {
  return (folder.path() / ("rank-0000" + std::to_string(rank) + ".swap")).string();
}

class MeshImage : public ::testing::TestWithParam<MeshCase> {};

TEST_P(MeshImage, GoesOnBitForBitFromTheStepThatWasCommitted) {
  const TemporaryFolder folder;
  const EngineOptions image = with_image(GetParam(), folder);
  EngineOptions plain = options_of(GetParam());
  if (GetParam().moments != DType::kFloat32) {  // rounded: bits of their own
    plain = image;
    plain.offload.image = false;
  }
  const WorldResult oracle = uninterrupted(plain);
  const ImageLife first = live(image, 7);
  expect_goes_on(first, -1, oracle, "first");
  EXPECT_EQ(first.counts.kept > 0, GetParam().speculate);
  expect_goes_on(live(image, 8), 6, oracle, "second");
  const ImageLife third = live(image, kImageSteps, true);
  expect_goes_on(third, 7, oracle, "third");
  expect_ends_alike(third, oracle, "third");
  EXPECT_TRUE(fs::is_empty(folder.path())) << "its end leaves nothing";
}

// Also where it is of one stage alone, or of one tensor-parallel rank.
TEST_P(MeshImage, OneRankMayBeAStepBehind) {
  const TemporaryFolder folder;
  const TemporaryFolder kept;
  const EngineOptions options = with_image(GetParam(), folder);
  const int behind = world_size(options) - 1;
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    for (int step = 1; step <= 4; ++step) {  // too few to update early
      (void)engine.train_step({.step = step, .lr = options.optimizer.lr});
      engine.set_image_state("after " + std::to_string(step));
      if (step == 3 && rank == behind) fs::copy_file(swap_of(folder, rank), kept.file("before"));
    }
  });
  fs::copy_file(kept.file("before"), swap_of(folder, behind), fs::copy_options::overwrite_existing);
  EXPECT_EQ(live(options, 2).from, 2);  // that rank has 1 and 2, the others 2 and 3
}

TEST_P(MeshImage, RoomIsThePlans) {
  const TemporaryFolder folder;
  EngineOptions options = with_image(GetParam(), folder);
  options.tiers.nvme.paths = options.offload.nvme_path;
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    const MemoryPlan plan = plan_memory(engine.train_program(), {});
    EXPECT_EQ(engine.tiers()->nvme_bytes(), plan.of(Tier::kNvme).peak) << rank;
    EXPECT_GT(engine.tiers()->second_place_bytes(), 0) << rank;
    const auto host = static_cast<double>(plan.of(Tier::kHost).peak);
    EXPECT_NEAR(static_cast<double>(engine.tiers()->host_peak_bytes()), host, 0.01 * host) << rank;
  });
}

constexpr auto kF32 = DType::kFloat32;
constexpr auto kB16 = DType::kBFloat16;
constexpr auto kOnDevice = Tier::kDevice;
constexpr auto kOnHost = Tier::kHost;
constexpr auto kOnNvme = Tier::kNvme;
using Schedule = PipelineSchedule;
INSTANTIATE_TEST_SUITE_P(
    Meshes, MeshImage,
    ::testing::Values(MeshCase{.name = "Tensor", .tensor = 2, .dp = 1, .pipeline = 1, .stage = 0},
                      MeshCase{.name = "TensorEarly",
                               .tensor = 2,
                               .dp = 1,
                               .pipeline = 1,
                               .stage = 3,
                               .dtype = kF32,
                               .parameters = kOnNvme,
                               .gradients = kOnNvme,
                               .speculate = true,
                               .tied = false},
                      MeshCase{.name = "TensorDataEarly",
                               .tensor = 2,
                               .dp = 2,
                               .pipeline = 1,
                               .stage = 3,
                               .speculate = true,
                               .sequence = true},
                      MeshCase{
                          .name = "Pipeline1f1b", .tensor = 1, .dp = 1, .pipeline = 2, .stage = 1},
                      MeshCase{.name = "PipelineZeroBubble",
                               .tensor = 1,
                               .dp = 2,
                               .pipeline = 2,
                               .stage = 3,
                               .schedule = Schedule::kZeroBubble,
                               .parameters = kOnNvme,
                               .gradients = kOnHost},
                      MeshCase{.name = "PipelineInterleaved",
                               .tensor = 1,
                               .dp = 1,
                               .pipeline = 2,
                               .stage = 2,
                               .schedule = Schedule::kInterleaved,
                               .gradients = kOnNvme,
                               .tied = false},
                      MeshCase{.name = "TensorPipelineGpipe",
                               .tensor = 2,
                               .dp = 1,
                               .pipeline = 2,
                               .stage = 3,
                               .schedule = Schedule::kGpipe,
                               .dtype = kF32,
                               .parameters = kOnHost,
                               .gradients = kOnDevice,
                               .moments = kB16},
                      MeshCase{.name = "TensorDataPipeline",
                               .tensor = 2,
                               .dp = 2,
                               .pipeline = 2,
                               .stage = 1,
                               .sequence = true}),
    [](const auto& c) { return std::string(c.param.name); });

// Files as a kill leaves them while one rank is about to flush, and the others are as far as they
// get without it.
class HeldFlush {
 public:
  // Flush number `at` of the store whose file is named so.
  HeldFlush(std::string file, int at, std::function<void()> while_held)
      : file_(std::move(file)), at_(at), while_held_(std::move(while_held)) {}

  std::unique_ptr<IoBackend> wrap(std::unique_ptr<IoBackend> inner) const {
    return std::make_unique<Backend>(std::move(inner), *this);
  }

 private:
  class Backend final : public IoBackend {
   public:
    Backend(std::unique_ptr<IoBackend> inner, const HeldFlush& held)
        : inner_(std::move(inner)), held_(held) {}
    [[nodiscard]] std::string name() const override { return inner_->name(); }
    void use_files(std::span<const int> files) override {
      const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(files.front()));
      is_held_ = path.filename() == held_.file_;
      inner_->use_files(files);
    }
    void use_memory(std::span<const IoMemory> ranges) override { inner_->use_memory(ranges); }
    void submit(const IoTransfer& transfer) override {
      if (is_held_ && transfer.sync && ++flushes_ == held_.at_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        held_.while_held_();
      }
      inner_->submit(transfer);
    }
    void flush() override { inner_->flush(); }
    void wait(std::vector<IoCompletion>& completions, std::int64_t timeout_ms) override {
      inner_->wait(completions, timeout_ms);
    }
    void wake() noexcept override { inner_->wake(); }

   private:
    std::unique_ptr<IoBackend> inner_;
    const HeldFlush& held_;
    bool is_held_ = false;
    int flushes_ = 0;
  };

  const std::string file_;
  const int at_;
  const std::function<void()> while_held_;
};

// Step 7 is committed by all but one rank; who has it may not touch step 6 before that rank has it
// as well, however early the next updates are made.
TEST(MeshImages, NobodyOverwritesAStepThatAnotherRankHasNothingNewerThan) {
  for (const auto& [tensor, dp, pipeline] :
       {std::array{1, 2, 1}, std::array{2, 1, 1}, std::array{2, 2, 1}, std::array{1, 1, 2}}) {
    const MeshCase mesh{.name = "",
                        .tensor = tensor,
                        .dp = dp,
                        .pipeline = pipeline,
                        .stage = 3,
                        .speculate = pipeline == 1,
                        .tied = false};
    const TemporaryFolder folder;
    const TemporaryFolder left;
    // The loss head's gradients are reduced, and its states updated, as early as can be.
    const auto hasty = [](EngineOptions options) {
      options.train.global_batch /= options.parallel.pipeline > 1 ? 1 : 2;
      options.zero.bucket_bytes = 4096;
      return options;
    };
    const EngineOptions options = hasty(with_image(mesh, folder));
    const std::string what = describe_mesh(options);
    const WorldResult oracle = uninterrupted(hasty(options_of(mesh)));
    const int ranks = world_size(options);
    EngineOptions held = options;
    const HeldFlush last("rank-0000" + std::to_string(ranks - 1) + ".swap", 2 * 7 + 1, [&] {
      for (int rank = 0; rank < ranks; ++rank) {
        fs::copy_file(swap_of(folder, rank), swap_of(left, rank));
      }
    });
    held.tiers.nvme.wrap_backend = [&](auto inner) { return last.wrap(std::move(inner)); };
    const ImageLife first = live(held, 9);
    EXPECT_EQ(first.counts.kept > 0, pipeline == 1) << what;
    for (int rank = 0; rank < ranks; ++rank) {
      fs::copy_file(swap_of(left, rank), swap_of(folder, rank),
                    fs::copy_options::overwrite_existing);
    }
    const ImageLife rest = live(options, kImageSteps, true);
    expect_goes_on(rest, 6, oracle, what);
    expect_ends_alike(rest, oracle, what);
  }
}

std::string refusal_of(const EngineOptions& options) {
  try {
    (void)live(options, 4);
  } catch (const IoError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Of as many ranks, or fewer, and some of the same sizes.
TEST(MeshImages, OfAnotherMeshAreNotUsedAndNotLost) {
  const TemporaryFolder folder;
  const MeshCase four{.name = "", .tensor = 2, .dp = 1, .pipeline = 2, .stage = 3};
  const EngineOptions options = with_image(four, folder);
  const WorldResult oracle = uninterrupted(options_of(four));
  (void)live(options, 4);
  MeshCase other = four;
  const auto refused = [&](const EngineOptions& with) {
    EXPECT_THAT(refusal_of(with), HasSubstr("another layout")) << describe_mesh(with);
  };
  for (const auto& [tensor, dp, pipeline] :
       {std::array{2, 2, 1}, std::array{1, 4, 1}, std::array{1, 2, 2}, std::array{1, 1, 4},
        std::array{2, 1, 1}}) {
    other.tensor = tensor;
    other.dp = dp;
    other.pipeline = pipeline;
    refused(with_image(other, folder));
  }
  EngineOptions cut = options;
  cut.parallel.stage_layers = {4, 1};
  refused(cut);
  cut.parallel.stage_layers.clear();
  cut.parallel.virtual_stages = 2;
  cut.parallel.schedule = PipelineSchedule::kInterleaved;
  refused(cut);
  expect_goes_on(live(options, 5), 3, oracle, "none of these has lost it");
  MeshCase schedule = four;  // states lie as before
  schedule.schedule = PipelineSchedule::kZeroBubble;
  expect_goes_on(live(with_image(schedule, folder), 6), 4, oracle, "another schedule");
  fs::remove(swap_of(folder, 3));
  EXPECT_THAT(refusal_of(options), HasSubstr("rank 3: its swap files are gone"));
  EngineOptions saved = options;
  saved.tiers.image.checkpoint = 0;
  expect_goes_on(live(saved, 4), -1, oracle, "there is a checkpoint");
}

}  // namespace
}  // namespace sluice::testing
