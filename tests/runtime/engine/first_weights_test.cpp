// An engine that resumes makes no first weights, and is not used before it has weights.
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.hpp"
#include "runtime/run/resume.hpp"
#include "tests/runtime/engine/saved_world.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

class FirstWeights : public ::testing::Test {
 protected:
  [[nodiscard]] std::string folder(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  TemporaryFolder folder_;
};

void train(Engine& engine) { (void)engine.train_step({.step = 1, .lr = 1e-3}); }

TEST_F(FirstWeights, AreNeitherReadNorWrittenToNvmeWhereACheckpointIsRestored) {
  const std::string saved = folder("saved");
  EngineOptions options = options_of({2, 3, Tier::kNvme, Tier::kNvme, Tier::kNvme}, folder("swap"));
  (void)train_part(options, {.steps = 1, .save = saved});
  std::atomic<int> asked = 0;
  options.initial_weights = [&](const std::string&, std::int64_t, std::span<float>) {
    ++asked;
    return std::int64_t{0};
  };
  options.later_weights = true;
  run_world_with_comm(options, Wire::kLocal, [&](Communicator& comm, Engine& engine) {
    EXPECT_EQ(engine.tiers()->nvme_stats().written_bytes, 0);
    const ResumeRequest request{.from = "auto", .dir = saved};
    const Resumed finished = resume_run(request, 1, engine, comm, local_file_system(), [] {});
    ASSERT_TRUE(finished.run);
    EXPECT_EQ(engine.tiers()->nvme_stats().written_bytes, 0);
    EXPECT_THROW(train(engine), Error) << "a finished run's states are not restored";
    const Resumed resumed = resume_run(request, 2, engine, comm, local_file_system(), [] {});
    ASSERT_TRUE(resumed.run);
    EXPECT_GT(engine.tiers()->nvme_stats().written_bytes, 0);
    engine.make_first_weights();  // the engine keeps the restored weights
    train(engine);
  });
  EXPECT_EQ(asked, 0);
}

TEST_F(FirstWeights, AreMadeLaterWithTheSameBits) {
  EngineOptions options = options_of({1, 3, Tier::kHost}, folder("swap"));
  const WorldResult at_once = train_world(options, 2, Wire::kLocal);
  options.later_weights = true;
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    engine.make_first_weights();
    WorldResult later;
    train_steps(engine, options, 2, later);
    expect_same_bits(later, at_once, "made later");
  });
}

TEST_F(FirstWeights, AnEngineWithoutWeightsRefusesWork) {
  EngineOptions options = options_of({1, 1}, folder("swap"));
  options.later_weights = true;
  run_world(options, Wire::kLocal, [](int, Engine& engine) {
    const std::string name = parameter_names(engine).front();
    EXPECT_THROW(train(engine), Error);
    EXPECT_THROW((void)engine.evaluate(1), Error);
    EXPECT_THROW((void)engine.full_parameter(name), Error);
    std::vector<float> one(1);
    EXPECT_THROW(engine.read_state(engine.owned_pieces().front(), StateKind::kMaster, 0, one),
                 Error);
  });
}

}  // namespace
}  // namespace sluice::testing
