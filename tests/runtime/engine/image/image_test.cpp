// A run whose states on NVMe are an image (offload.image) ends at some step, as a killed one does:
// another one goes on from the swap folders, with the bits of one that was never interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "runtime/engine/image_choice.hpp"
#include "runtime/plan/plan_text.hpp"
#include "tests/offload/power_log.hpp"
#include "tests/runtime/engine/image/image_life.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Case {
  const char* name;
  DType dtype;
  Tier parameters, gradients;
  int dp, stage;
  bool speculate, layer;
};

class EngineImage : public ::testing::TestWithParam<Case> {
 protected:
  EngineOptions options() const {
    const Case& c = GetParam();
    EngineOptions options = image_model(c.dtype, c.dp);
    options.zero.stage = c.stage;
    options.train.accumulation_order =
        c.layer ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
    return options;
  }
  EngineOptions with_image(const TemporaryFolder& folder) const {
    const Case& c = GetParam();
    EngineOptions image = options();
    keep_image(image, folder.path().string());
    image.offload.parameters = c.parameters;
    image.offload.gradients = c.gradients;
    if (c.speculate) image.offload.speculate = Speculation::kAuto;
    return image;
  }
};

// It ends between steps, the last of which was not committed: three lives, the first long enough to
// speculate.
TEST_P(EngineImage, GoesOnBitForBitFromTheStepThatWasCommitted) {
  const TemporaryFolder folder;
  const WorldResult oracle = uninterrupted(options());
  const EngineOptions image = with_image(folder);
  const ImageLife first = live(image, 7);
  expect_goes_on(first, -1, oracle, "first");
  EXPECT_EQ(first.counts.kept > 0, GetParam().speculate);
  const ImageLife second = live(image, 8);
  expect_goes_on(second, 6, oracle, "second");
  const ImageLife third = live(image, kImageSteps, true);
  expect_goes_on(third, 7, oracle, "third");
  expect_ends_alike(third, oracle, "third");
  EXPECT_TRUE(fs::is_empty(folder.path())) << "its end leaves nothing";
}

constexpr auto kF = DType::kFloat32;
constexpr auto kB = DType::kBFloat16;
constexpr auto kDev = Tier::kDevice;
constexpr auto kHost = Tier::kHost;
constexpr auto kNvme = Tier::kNvme;
INSTANTIATE_TEST_SUITE_P(
    Placements, EngineImage,
    ::testing::Values(Case{"Bf16Stage3", kB, kDev, kDev, 2, 3, false, false},
                      Case{"Bf16Stage3Early", kB, kDev, kDev, 2, 3, true, false},
                      Case{"Bf16Stage2EarlyLayer", kB, kDev, kHost, 2, 2, true, true},
                      Case{"Bf16Stage1Early", kB, kDev, kDev, 2, 1, true, false},
                      Case{"Bf16Stage0", kB, kDev, kDev, 1, 0, false, true},
                      Case{"Fp32OnNvme", kF, kNvme, kNvme, 2, 3, false, true},
                      Case{"Fp32OnNvmeEarly", kF, kNvme, kHost, 2, 3, true, false},
                      Case{"Fp32OnNvmeEarlyAlone", kF, kNvme, kNvme, 1, 3, true, false},
                      Case{"Bf16OnNvmeEarly", kB, kNvme, kNvme, 2, 3, true, false},
                      Case{"Fp32OnHostEarly", kF, kHost, kDev, 2, 3, true, true},
                      Case{"Fp32OnDevice", kF, kDev, kDev, 1, 1, false, false}),
    [](const auto& c) { return std::string(c.param.name); });

// Clipped steps are redone, thrown-away ones change nothing, whatever looks at the model between
// them; and what sets parameters withdraws the image.
TEST(EngineImages, AreOfTheLastStepWhateverCameBetween) {
  const TemporaryFolder folder;
  EngineOptions plain = image_model(DType::kFloat16, 2);
  const auto train = [](const EngineOptions& options, std::int64_t last) {
    WorldResult result;
    std::int64_t from = -1;
    run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
      WorldResult mine;
      std::int64_t step = 0;
      std::int64_t updates = 0;
      if (engine.image()) {
        step = engine.image()->step;
        updates = std::stoll(engine.image()->state);
      }
      if (rank == 0 && engine.image()) from = step;
      while (++step <= last) {
        const bool lost = step == 7 || step == 9 || step == 10;
        const double scale = lost ? ScaledSteps::kTooMuch : ScaledSteps::kScale;
        const StepResult done = engine.train_step(
            {.step = step, .lr = 1e-2, .update = updates + 1, .loss_scale = scale});
        updates += done.finite() ? 1 : 0;
        engine.set_image_state(std::to_string(updates));
        if (step == 6 || step == 8) mine.losses.push_back(engine.evaluate(1));
        if (step == 9) (void)engine.find_non_finite(step);
        if (step == 5) engine.settle();
        if (done.finite()) mine.losses.push_back(done.loss);
      }
      if (last == kImageSteps) note_weights(engine, mine);
      if (rank == 0) result = mine;
    });
    return std::pair(result, from);
  };
  const auto [oracle, none] = train(plain, kImageSteps);
  EngineOptions image = plain;
  keep_image(image, folder.path().string());
  image.offload.speculate = Speculation::kAuto;
  image.tiers.image.look = true;
  for (const std::int64_t last : {7, 8, 10, 11, kImageSteps}) {
    fs::remove_all(folder.path());
    (void)train(image, last);
    const auto [rest, from] = train(image, kImageSteps);
    EXPECT_EQ(from, last - 1);
    EXPECT_EQ(rest.weights, oracle.weights) << "after " << last;
    const auto tail = static_cast<std::ptrdiff_t>(rest.losses.size());
    EXPECT_EQ(rest.losses, std::vector<double>(oracle.losses.end() - tail, oracle.losses.end()));
  }
}

TEST(EngineImages, ASetParameterIsNotGoneBackBehind) {
  const TemporaryFolder folder;
  EngineOptions options = image_model(DType::kBFloat16, 2);
  keep_image(options, folder.path().string());
  const auto train = [&](bool sets, bool steps_after) {
    run_world(options, Wire::kLocal, [&](int, Engine& engine) {
      for (int step = 1; step <= 3; ++step) {
        (void)engine.train_step({.step = step, .lr = 1e-2});
        engine.set_image_state("after " + std::to_string(step));
      }
      const std::string name = engine.plan().groups[2].tensors[0].spec.name;
      if (sets) engine.set_parameter(name, engine.full_parameter(name).mul(0.5));
      if (steps_after) (void)engine.train_step({.step = 4, .lr = 1e-2});
    });
    return live(options, 0).from;
  };
  EXPECT_EQ(train(false, false), 2);
  EXPECT_EQ(train(true, false), -1);
  EXPECT_EQ(train(true, true), 3);
}

// An orderly stop commits its last step.
TEST(EngineImages, AStopCommitsTheLastStep) {
  const TemporaryFolder folder;
  EngineOptions options = image_model(DType::kBFloat16, 2);
  const WorldResult oracle = uninterrupted(options);
  keep_image(options, folder.path().string());
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    for (int step = 1; step <= 3; ++step) {
      (void)engine.train_step({.step = step, .lr = options.optimizer.lr});
      engine.set_image_state("after " + std::to_string(step));
    }
    engine.commit_image();
  });
  expect_goes_on(live(options, 5), 3, oracle, "after a stop");
}

TEST(EngineImages, OneRankMayBeAStepBehind) {
  const TemporaryFolder folder;
  const TemporaryFolder kept;
  EngineOptions options = image_model(DType::kBFloat16, 2);
  const WorldResult oracle = uninterrupted(options);
  keep_image(options, folder.path().string());
  const std::string own = folder.file("rank-00001.swap");
  run_world_with_comm(options, Wire::kLocal, [&](Communicator& comm, Engine& engine) {
    for (int step = 1; step <= 6; ++step) {
      (void)engine.train_step({.step = step, .lr = options.optimizer.lr});
      engine.set_image_state("after " + std::to_string(step));
      if (step == 5 && comm.rank() == 1) fs::copy_file(own, kept.file("before"));
    }
  });
  fs::copy_file(kept.file("before"), own, fs::copy_options::overwrite_existing);
  const ImageLife life = live(options, 6);  // rank 0 has 4 and 5, rank 1 has 3 and 4
  expect_goes_on(life, 4, oracle, "one behind");
  const ImageLife rest = live(options, kImageSteps, true);
  expect_goes_on(rest, 5, oracle, "then");
  expect_ends_alike(rest, oracle, "then");
}

TEST(EngineImages, OfAnotherLayoutOlderOrPartlyGoneIsNotUsedAndNotLost) {
  const TemporaryFolder folder;
  EngineOptions options = image_model(DType::kBFloat16, 2);
  const WorldResult oracle = uninterrupted(options);
  keep_image(options, folder.path().string());
  (void)live(options, 4);
  EngineOptions older = options;
  older.tiers.image.checkpoint = 3;
  expect_goes_on(live(older, 4), 3, oracle, "a checkpoint is as new");
  older.tiers.image.checkpoint = 4;
  expect_goes_on(live(older, 2), -1, oracle, "a checkpoint is newer");
  (void)live(options, 4);
  const auto refusal = [](const EngineOptions& with) {
    try {
      (void)live(with, 4);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EngineOptions other = options;
  other.zero.stage = 2;
  EXPECT_THAT(refusal(other), HasSubstr("another layout"));
  EXPECT_THAT(refusal(other), HasSubstr("no whole checkpoint exists"));
  EngineOptions anew = options;  // as a run does that is not to resume
  anew.tiers.image.spare = true;
  EXPECT_THROW(run_world(anew, Wire::kLocal, [](int, Engine&) {}), IoError);
  const auto flip_in_header = [&] {
    std::fstream bytes(folder.file("rank-00001.swap"), std::ios::in | std::ios::out);
    bytes.seekg(40);
    const auto byte = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(40);
    bytes.put(byte);
  };
  flip_in_header();
  EXPECT_THAT(refusal(options), HasSubstr("rank-00001.swap does not begin with a whole header"));
  EXPECT_THROW(run_world(anew, Wire::kLocal, [](int, Engine&) {}), IoError);
  flip_in_header();
  expect_goes_on(live(options, 5), 3, oracle, "none of these has lost it");
  // There is a checkpoint: that is gone on from instead.
  options.tiers.image.checkpoint = other.tiers.image.checkpoint = 0;
  expect_goes_on(live(other, 4), -1, oracle, "another stage");
  expect_goes_on(live(options, 4), -1, oracle, "and back");
  fs::remove(folder.file("rank-00001.swap"));
  options.tiers.image.checkpoint = -1;
  EXPECT_THAT(refusal(options), HasSubstr("rank 1: its swap files are gone"));
  options.tiers.image.checkpoint = 0;
  expect_goes_on(live(options, 4), -1, oracle, "a rank's file is gone");
  std::fstream(folder.file("rank-00000.swap"), std::ios::in | std::ios::out).put('?');
  EXPECT_THROW((void)live(options, 4), IoError) << "nobody's file is removed";
}

TEST(EngineImages, StaysIfItIsOfAnotherRunOrNoCheckpointIsWhole) {
  const TemporaryFolder folder;
  EngineOptions options = image_model(DType::kFloat32, 2);
  const WorldResult oracle = uninterrupted(options);
  keep_image(options, folder.path().string());
  options.tiers.nvme.run_id = "/runs/a of Monday";
  (void)live(options, 4);
  const auto refusal = [](const EngineOptions& with) {
    try {
      (void)live(with, 4);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EngineOptions other = options;
  other.tiers.nvme.run_id = "/runs/b of Monday";
  EXPECT_THAT(refusal(other), HasSubstr("is of another run: '/runs/a of Monday'"));
  other.tiers.image.checkpoint = 9;
  EXPECT_THAT(refusal(other), HasSubstr("is of another run"));
  other.offload.image = false;
  EXPECT_THROW(run_world(other, Wire::kLocal, [](int, Engine&) {}), IoError);
  other = options;
  other.zero.stage = 2;
  other.tiers.image.checkpoint = 9;
  std::atomic<int> reads = 0;
  other.tiers.image.read_checkpoint = [&] {
    ++reads;
    return std::int64_t{-1};
  };
  EXPECT_THAT(refusal(other), HasSubstr("no whole checkpoint exists"));
  EXPECT_EQ(reads, 2);  // by both ranks
  options.tiers.image.read_checkpoint = other.tiers.image.read_checkpoint;
  options.tiers.image.checkpoint = 9;
  options.tiers.nvme.run_id = "/runs/a of Tuesday";
  expect_goes_on(live(options, 5), 3, oracle, "the newer checkpoint is damaged");
  options.tiers.image.read_checkpoint = [] { return std::int64_t{9}; };
  expect_goes_on(live(options, 2), -1, oracle, "the newer checkpoint is whole");
}

TEST(EngineImages, AFlippedBitIsFoundWhenItIsReadAndNamesTheWayOut) {
  const TemporaryFolder folder;
  EngineOptions options = image_model(DType::kBFloat16, 1);
  keep_image(options, folder.path().string());
  (void)live(options, 4);
  const std::string file = folder.file("rank-00000.swap");
  std::int64_t first = 0;  // bytes of the first group's master weights, and of each moment
  run_world(image_model(DType::kBFloat16, 1), Wire::kLocal,
            [&](int, Engine& engine) { first = 4 * owned_elems(engine.plan().shape, 0); });
  const std::int64_t extent = NvmeStore::padded_bytes(first);
  for (const std::int64_t at : {4096 + 8, static_cast<int>(4096 + 2 * extent + 8)}) {
    const auto flip = [&] {
      for (const std::int64_t place : {at, at + extent}) {  // whichever is current
        std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
        bytes.seekg(place);
        const auto byte = static_cast<char>(bytes.get() ^ 1);
        bytes.seekp(place);
        bytes.put(byte);
      }
    };
    flip();
    std::string text;
    try {
      (void)live(options, 6);
    } catch (const std::exception& error) {
      text = error_chain(error);
    }
    EXPECT_THAT(text, HasSubstr(file + " at offset ")) << at;
    EXPECT_THAT(text, HasSubstr("--resume")) << at;
    flip();
  }
}

TEST(EngineImages, RoomIsThePlans) {
  const TemporaryFolder folder;
  for (const bool speculates : {false, true}) {
    for (const Tier params : {Tier::kDevice, Tier::kNvme}) {
      EngineOptions options = image_model(DType::kBFloat16, 2);
      keep_image(options, folder.path().string());
      options.offload.parameters = params;
      if (speculates) options.offload.speculate = Speculation::kAuto;
      const auto bytes = [](const EngineOptions& with) {
        std::array<std::int64_t, 3> found{};
        run_world(with, Wire::kLocal, [&](int rank, Engine& engine) {
          if (rank != 0) return;
          const MemoryPlan plan = plan_memory(engine.train_program(), {});
          found = {engine.tiers()->nvme_bytes(), plan.of(Tier::kNvme).peak,
                   engine.tiers()->second_place_bytes()};
          EXPECT_NEAR(static_cast<double>(engine.tiers()->host_peak_bytes()),
                      static_cast<double>(plan.of(Tier::kHost).peak),
                      0.01 * static_cast<double>(plan.of(Tier::kHost).peak));
        });
        return found;
      };
      options.tiers.nvme.paths = options.offload.nvme_path;
      const auto [taken, planned, second] = bytes(options);
      EXPECT_EQ(taken, planned);
      options.offload.image = false;
      options.offload.speculate = Speculation::kNever;
      const auto [plain, plain_planned, none] = bytes(options);
      EXPECT_EQ(none, 0);
      EXPECT_EQ(second, plain) << "each state a second time";
      EXPECT_GT(taken, 2 * plain);
    }
  }
}

// As the power may leave the folder at some instants of a run, torn writes and all.
TEST(EngineImages, SurviveALossOfPower) {
  const TemporaryFolder folder;
  const TemporaryFolder before;
  EngineOptions options = image_model(DType::kBFloat16, 1);
  options.model.layers = 2;
  const WorldResult oracle = uninterrupted(options);
  keep_image(options, folder.path().string());
  options.offload.speculate = Speculation::kAuto;
  PowerLog log;
  EngineOptions logged = options;
  logged.tiers.nvme.wrap_backend = [&](std::unique_ptr<IoBackend> inner) {
    fs::copy_file(folder.file("rank-00000.swap"), before.file("swap"));
    return log.wrap(std::move(inner));
  };
  run_world(logged, Wire::kLocal, [&](int, Engine& engine) {
    for (std::int64_t step = 1; step <= 8; ++step) {
      (void)engine.train_step({.step = step, .lr = options.optimizer.lr});
      engine.set_image_state("after " + std::to_string(step));
      log.note_committed(step - 1);
    }
  });
  int went_on = 0;
  const std::size_t instants = log.instants();
  constexpr std::size_t kSampled = 24;
  for (std::size_t i = 1; i <= kSampled; ++i) {
    const std::size_t instant = instants * i / kSampled;
    fs::copy_file(before.file("swap"), folder.file("rank-00000.swap"),
                  fs::copy_options::overwrite_existing);
    log.apply(folder.file("rank-00000.swap"), 0, instant, i);
    const std::int64_t committed = log.committed_by(instant);
    const ImageLife life = live(options, 9);
    EXPECT_GE(life.from, committed) << instant;
    expect_goes_on(life, life.from, oracle, "instant " + std::to_string(instant));
    went_on += life.from >= 0 ? 1 : 0;
  }
  EXPECT_GT(went_on, 12);
}

}  // namespace
}  // namespace sluice::testing
