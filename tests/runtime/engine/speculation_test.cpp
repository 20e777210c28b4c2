// Updates before the norm is known (offload.speculate) do not change a bit of losses, norms and
// weights, whatever comes of the step: kept, clipped, thrown away, looked at in between.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/failpoint.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/run/checkpointing.hpp"
#include "runtime/run/resume.hpp"
#include "tests/runtime/engine/world.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

constexpr int kSteps = 11;

// More chunks than the ring holds, and buckets that are full while backwards are left.
EngineOptions early_options(DType dtype) {
  EngineOptions options = tiny_options();
  options.model = {.layers = 6, .hidden = 48, .heads = 3, .vocab = 67, .seq = 16};
  options.dp = 2;
  options.zero.stage = 3;
  options.train.dtype = dtype;
  options.train.clip = 0;
  options.train.global_batch = options.dp * options.train.micro_batch;
  options.offload.chunk_bytes = 16 * 1024;
  options.offload.chunks = 2;
  return options;
}

constexpr Tier kOffDevice[] = {Tier::kHost, Tier::kNvme};

void speculate(EngineOptions& options, const TemporaryFolder& folder, Tier optimizer) {
  options.offload.optimizer = optimizer;
  options.offload.nvme_path = {folder.path().string()};
  options.offload.speculate = Speculation::kAuto;
}

// fp32 parameters on the host, which are never updated early (early_updates.hpp).
bool master_is_read(const EngineOptions& options) {
  return options.train.dtype == DType::kFloat32 && options.offload.optimizer == Tier::kHost &&
         options.offload.parameters == Tier::kHost;
}

class Armed {
 public:
  explicit Armed(const std::string& failpoints) { arm_failpoints(failpoints); }
  Armed(const Armed&) = delete;
  ~Armed() { arm_failpoints(""); }
};

struct EarlyRun {
  WorldResult result;
  SpeculationCounts counts;
};

EarlyRun train(const EngineOptions& options, int steps = kSteps) {
  EarlyRun run;
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    EarlyRun mine;
    for (int step = 1; step <= steps; ++step) {
      const StepResult result = engine.train_step({.step = step, .lr = options.optimizer.lr});
      mine.result.losses.push_back(result.loss);
      mine.result.norms.push_back(result.grad_norm);
    }
    mine.result.eval_loss = engine.evaluate(1);
    note_weights(engine, mine.result);
    mine.counts = engine.speculation_counts();
    if (rank == 0) run = mine;
  });
  return run;
}

// A limit that four steps in a row keep and a later one does not; so some are kept, some redone.
double sometimes(const std::vector<double>& norms) {
  for (std::size_t i = 5; i < norms.size(); ++i) {
    const double before = *std::max_element(norms.begin() + static_cast<std::ptrdiff_t>(i) - 5,
                                            norms.begin() + static_cast<std::ptrdiff_t>(i));
    if (before < norms[i]) return (before + norms[i]) / 2;
  }
  return 0;
}

TEST(Speculation, IsKeptWhereNothingIsClippedOnEveryTier) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EngineOptions options = early_options(dtype);
    const EarlyRun oracle = train(options);
    for (int tiers = 0; tiers < 18; ++tiers) {
      speculate(options, folder, kOffDevice[tiers % 2]);
      options.offload.parameters = static_cast<Tier>(tiers / 2 % 3);
      options.offload.gradients = static_cast<Tier>(tiers / 6);
      const OffloadOptions& offload = options.offload;
      const bool same = offload.parameters == offload.gradients;
      if (dtype == DType::kBFloat16 && !same && !slow_tests()) continue;
      if (master_is_read(options)) continue;
      const EarlyRun early = train(options);
      const std::string what = "optimizer on " + std::string(name_of(offload.optimizer)) +
                               ", parameters on " + std::string(name_of(offload.parameters)) +
                               ", gradients on " + std::string(name_of(offload.gradients));
      expect_same_bits(early.result, oracle.result, what);
      EXPECT_EQ(early.counts.kept, kSteps - 4) << what;
      EXPECT_EQ(early.counts.redone, 0) << what;
    }
  }
}

std::int64_t early_chunks(const Program& program) {
  return std::count_if(program.chunks.begin(), program.chunks.end(),
                       [](const Chunk& chunk) { return chunk.speculated; });
}

// The group of the first early update.
int first_early_group(const Program& program) {
  const auto first = std::find_if(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return op.speculative && op.kind == OpKind::kUpdate;
  });
  return first == program.ops.end() ? -1 : first->group;
}

// Of updates on the host, those that have not begun at the end of the last backward are left to the
// next step, however many they are.
TEST(Speculation, OnTheHostDelaysNoStep) {
  const TemporaryFolder folder;
  for (const Tier gradients : {Tier::kDevice, Tier::kHost}) {
    EngineOptions options = early_options(DType::kBFloat16);
    const EarlyRun oracle = train(options);
    speculate(options, folder, Tier::kHost);
    options.offload.gradients = gradients;
    std::int64_t all = 0;
    int first = -1;
    run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
      if (rank != 0) return;
      all = (kSteps - 4) * early_chunks(engine.train_program());
      first = first_early_group(engine.train_program());
    });
    ASSERT_GT(all, kSteps - 4);
    const auto chunks_with = [&](const std::string& failpoints) {
      const Armed armed(failpoints);
      const EarlyRun early = train(options);
      expect_same_bits(early.result, oracle.result, failpoints);
      EXPECT_EQ(early.counts.kept, kSteps - 4);
      return early.counts.chunks;
    };
    EXPECT_EQ(chunks_with("engine.norm:delay=200"), all);
    EXPECT_LT(chunks_with("engine.update." + std::to_string(first) + ":delay=60"), all);
  }
}

TEST(Speculation, IsKeptOnEveryStageAndInEveryOrder) {
  const TemporaryFolder folder;
  for (const int accumulation : {1, 2}) {
    EngineOptions options = early_options(DType::kBFloat16);
    options.train.global_batch *= accumulation;
    const EarlyRun oracle = train(options);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool layer : {false, true}) {
        speculate(options, folder, kOffDevice[(stage + (layer ? 1 : 0) + accumulation) % 2]);
        options.zero.stage = stage;
        options.train.accumulation_order =
            layer ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
        options.recompute.mode = layer ? RecomputeMode::kFull : RecomputeMode::kNone;
        options.offload.device_fraction = stage == 1 ? 0.3 : 0;
        const EarlyRun early = train(options);
        expect_same_bits(early.result, oracle.result, "stage " + std::to_string(stage));
        EXPECT_GT(early.counts.kept, 0);
      }
    }
  }
}

TEST(Speculation, IsRedoneWhereAStepIsClippedAndNotTriedWhereEachIs) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EngineOptions options = early_options(dtype);
    constexpr int kMany = 24;
    const double limit = sometimes(train(options, kMany).result.norms);
    ASSERT_GT(limit, 0);
    for (const double clip : {1e-3, limit}) {
      EngineOptions clipped = options;
      clipped.train.clip = clip;
      const EarlyRun oracle = train(clipped, kMany);
      for (int tiers = 0; tiers < 6; ++tiers) {
        const auto tier = static_cast<Tier>(tiers / 2);
        speculate(clipped, folder, kOffDevice[tiers % 2]);
        if (dtype == DType::kBFloat16 && tier == Tier::kDevice && !slow_tests()) continue;
        clipped.offload.parameters = clipped.offload.gradients = tier;
        clipped.offload.host_fraction = tier == Tier::kHost ? 0.4 : 0;  // where states are on NVMe
        if (master_is_read(clipped)) continue;
        const EarlyRun early = train(clipped, kMany);
        expect_same_bits(early.result, oracle.result, "clip " + std::to_string(clip));
        EXPECT_EQ(early.counts.kept > 0, clip == limit);
        EXPECT_EQ(early.counts.redone > 0, clip == limit);
      }
    }
  }
}

// Everything between steps that looks at parameters, sets them, or throws a step away.
EarlyRun train_with_interruptions(const EngineOptions& options) {
  EarlyRun run;
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    EarlyRun mine;
    ScaledSteps step(engine, mine.result);
    const std::string name = engine.plan().groups[2].tensors[0].spec.name;
    std::int64_t at = 1;
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) step(at++, ScaledSteps::kScale);
    };
    steps(6);
    mine.result.losses.push_back(engine.evaluate(1));  // of a kept step
    steps(2);
    (void)engine.find_non_finite(at - 1);  // before its update, which is kept
    steps(1);
    step(at++, ScaledSteps::kTooMuch);  // speculated on, and forgotten
    (void)engine.find_non_finite(at - 1);
    steps(6);
    engine.set_parameter(name, engine.full_parameter(name).mul(0.5));
    steps(1);
    engine.settle();
    step(at++, ScaledSteps::kTooMuch);
    mine.result.losses.push_back(engine.evaluate(1));
    steps(6);
    mine.result.eval_loss = engine.evaluate(1);
    note_weights(engine, mine.result);
    mine.counts = engine.speculation_counts();
    if (rank == 0) run = mine;
  });
  return run;
}

TEST(Speculation, WhatComesBetweenStepsIsBitIdentical) {
  const TemporaryFolder folder;
  EngineOptions options = early_options(DType::kFloat16);
  const EarlyRun oracle = train_with_interruptions(options);
  for (const int chunks : {1, 3}) {
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
      speculate(options, folder, kOffDevice[(chunks / 2 + static_cast<int>(tier)) % 2]);
      options.offload.chunks = chunks;
      options.offload.parameters = tier;
      options.offload.gradients = tier;
      const EarlyRun early = train_with_interruptions(options);
      expect_same_bits(early.result, oracle.result,
                       "ring of " + std::to_string(chunks) + ", " + std::string(name_of(tier)));
      EXPECT_GT(early.counts.kept, 5);
      EXPECT_GT(early.counts.redone, 0);
    }
  }
}

// Rounded moments: the same draws, early or late.
TEST(Speculation, NarrowMomentsAreRoundedAlike) {
  const TemporaryFolder folder;
  for (const Tier optimizer : kOffDevice) {
    EngineOptions options = early_options(DType::kBFloat16);
    speculate(options, folder, optimizer);
    options.offload.states_dtype = DType::kBFloat16;
    const EarlyRun early = train(options);
    options.offload.speculate = Speculation::kNever;
    expect_same_bits(train(options).result, early.result, "bf16 moments");
    EXPECT_GT(early.counts.kept, 0);
  }
}

// A run that saves after step `save_after` and goes on to `last`; or that resumes from there.
struct SavedRun {
  std::string dir;
  int save_after = 0;  // 0: resumes
  int last = 0;
  bool behind = false;
};

EarlyRun train_saved(EngineOptions options, const SavedRun& saved) {
  options.later_weights = saved.save_after == 0;
  EarlyRun run;
  run_world_with_comm(options, Wire::kLocal, [&](Communicator& comm, Engine& engine) {
    EarlyRun mine;
    Checkpointing saves({.checkpoint = {.dir = saved.dir}}, engine, comm, local_file_system(),
                        [](const std::string&, bool) {});
    std::int64_t step = 0;
    if (saved.save_after == 0) {
      const Resumed resumed = resume_run({.from = "auto", .dir = saved.dir}, saved.last, engine,
                                         comm, local_file_system(), [] {});
      step = resumed.run.value().step;
    }
    while (++step <= saved.last) {
      const std::int64_t kept = engine.speculation_counts().kept;
      const StepResult result = engine.train_step({.step = step, .lr = options.optimizer.lr});
      mine.result.losses.push_back(result.loss);
      mine.result.norms.push_back(result.grad_norm);
      if (step == saved.save_after) {
        // What it saves lies in second places, and is not taken over yet.
        EXPECT_EQ(engine.speculation_counts().kept, kept + 1);
        RunState at;
        at.step = at.updates = step;
        EXPECT_TRUE(saves.save(at, saved.behind));
      }
      saves.look();
    }
    EXPECT_TRUE(saves.finish());
    mine.result.eval_loss = engine.evaluate(1);
    note_weights(engine, mine.result);
    mine.counts = engine.speculation_counts();
    if (comm.rank() == 0) run = mine;
  });
  return run;
}

TEST(Speculation, WhatIsSavedBetweenEarlyStepsGoesOnBitForBit) {
  constexpr int kSaveAfter = 8;
  constexpr int kLast = 15;
  const TemporaryFolder folder;
  const TemporaryFolder checkpoints;
  int count = 0;
  for (const DType moments : {DType::kFloat32, DType::kBFloat16}) {
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
      const Tier optimizer = kOffDevice[count % 2];
      const bool behind = tier == Tier::kHost;  // asked for; from NVMe it is written at once
      const std::string what = std::string(name_of(moments)) + " moments, weights on " +
                               std::string(name_of(tier)) + (behind ? ", behind" : "");
      EngineOptions options = early_options(DType::kBFloat16);
      speculate(options, folder, optimizer);
      options.offload.states_dtype = moments;
      options.offload.parameters = tier;
      options.offload.gradients = tier;
      EngineOptions never = options;
      never.offload.speculate = Speculation::kNever;
      const EarlyRun oracle = train(never, kLast);

      SavedRun saved{.dir = checkpoints.file(std::to_string(count++).c_str()),
                     .save_after = kSaveAfter,
                     .last = kLast,
                     .behind = behind};
      const EarlyRun whole = train_saved(options, saved);
      expect_same_bits(whole.result, oracle.result, what + ": saving changes nothing");
      EXPECT_GT(whole.counts.kept, kSaveAfter - 4) << what;
      saved.save_after = 0;
      for (const EngineOptions& then : {options, never}) {
        EarlyRun resumed = train_saved(then, saved);
        const auto before = oracle.result.losses.begin();
        const auto norms = oracle.result.norms.begin();
        resumed.result.losses.insert(resumed.result.losses.begin(), before, before + kSaveAfter);
        resumed.result.norms.insert(resumed.result.norms.begin(), norms, norms + kSaveAfter);
        expect_same_bits(resumed.result, oracle.result, what + ": resumed");
        const bool early = then.offload.speculate == Speculation::kAuto;
        EXPECT_EQ(resumed.counts.kept > 0, early) << what;
      }
    }
  }
}

TEST(Speculation, RoomOnNvmeIsThePlans) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Tier params : {Tier::kDevice, Tier::kNvme}) {
      EngineOptions options = early_options(dtype);
      speculate(options, folder, Tier::kNvme);
      options.offload.parameters = params;
      run_world(options, Wire::kLocal, [&](int, Engine& engine) {
        EXPECT_EQ(engine.tiers()->nvme_bytes(), add_up(engine.train_program(), Tier::kNvme).peak());
        EXPECT_GT(engine.tiers()->second_place_bytes(), 0);
        EXPECT_LT(engine.tiers()->second_place_bytes(), engine.tiers()->nvme_bytes() / 2);
      });
    }
  }
}

// memory.host bounds the second places on the host: with little room fewer chunks are early.
TEST(Speculation, RoomOnTheHostIsThePlans) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EngineOptions options = early_options(dtype);
    const EarlyRun oracle = train(options);
    speculate(options, folder, Tier::kHost);
    std::int64_t most = 0;
    std::int64_t chunks = 0;
    for (const double share : {1.0, 0.9}) {
      options.tiers.host_budget = static_cast<std::int64_t>(share * static_cast<double>(most));
      run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
        const std::int64_t peak = host_need(engine.train_program());
        EXPECT_EQ(engine.tiers()->host_peak_bytes(), peak);
        if (rank != 0) return;
        EXPECT_EQ(early_chunks(engine.train_program()) < chunks, share < 1);
        chunks = early_chunks(engine.train_program());
        most = peak;
      });
      EXPECT_GT(chunks, 0);
      const EarlyRun early = train(options);
      expect_same_bits(early.result, oracle.result, "with a budget");
      EXPECT_EQ(early.counts.kept, kSteps - 4);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
