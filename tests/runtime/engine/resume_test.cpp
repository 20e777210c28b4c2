// A run that was saved and resumed is the run that was not: bit for bit on the same layout, and
// with bit-identical states on every other.
#include "runtime/run/resume.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/failpoint.hpp"
#include "kernels/cpu/cast.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/run/state_io.hpp"
#include "tests/runtime/engine/ranks_view.hpp"
#include "tests/runtime/engine/saved_world.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

class Resume : public ::testing::Test {
 protected:
  EngineOptions options(const Layout& layout, DType dtype = DType::kFloat32) const {
    return options_of(layout, folder("swap"), dtype);
  }
  std::string folder(const std::string& name) const { return (folder_.path() / name).string(); }

  // 3 + 4 steps in one go, and with a checkpoint between them.
  void expect_same_run(const EngineOptions& options, const std::string& what, bool behind = false) {
    SCOPED_TRACE(what);
    const std::string dir = folder("same" + std::to_string(count_++));
    const WorldResult whole = train_part(options, {.steps = 7});
    const WorldResult first =
        train_part(options, {.steps = 3, .save = dir, .behind = behind, .steps_behind = 4});
    expect_same_bits(first, whole, "saving changes nothing");
    WorldResult second = train_part(options, {.steps = 4, .resume = dir});
    second.losses.insert(second.losses.begin(), whole.losses.begin(), whole.losses.begin() + 3);
    second.norms.insert(second.norms.begin(), whole.norms.begin(), whole.norms.begin() + 3);
    expect_same_bits(second, whole, "resumed");
  }

  TemporaryFolder folder_;
  int count_ = 0;
};

const Layout kAllOnNvme{2, 3, Tier::kNvme, Tier::kNvme, Tier::kNvme};
const Layout kAllOnHost{2, 3, Tier::kHost, Tier::kHost, Tier::kHost};

TEST_F(Resume, GoesOnBitForBitOnTheSameLayout) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const std::string of(name_of(dtype));
    expect_same_run(options({1, 0}, dtype), of + ", one rank");
    expect_same_run(options({2, 0}, dtype), of + ", stage 0");
    expect_same_run(options({2, 1}, dtype), of + ", stage 1");
    expect_same_run(options({3, 2, Tier::kHost}, dtype), of + ", stage 2, optimizer on host");
    expect_same_run(options(kAllOnHost, dtype), of + ", all on host");
    expect_same_run(options(kAllOnNvme, dtype), of + ", all on nvme");
  }
}

TEST_F(Resume, GoesOnBitForBitWithNarrowMomentsAndAllOrAShareOnTheDevice) {
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    EngineOptions narrow =
        options({2, 2, tier, Tier::kDevice, Tier::kDevice, 0.4}, DType::kBFloat16);
    narrow.model.hidden = 96;  // shards of more than a chunk, so that a share is not nothing
    expect_same_run(narrow, "fp32 moments");
    narrow.offload.states_dtype = DType::kBFloat16;
    expect_same_run(narrow, "bf16 moments");
  }
}

TEST_F(Resume, WhatIsWrittenBehindTheStepsIsTheStateOfItsStep) {
  expect_same_run(options({2, 1}), "device", true);
  expect_same_run(options(kAllOnHost, DType::kBFloat16), "host", true);
  expect_same_run(options(kAllOnNvme), "nvme: written at once", true);
}

// Each byte once, whatever is replicated.
TEST_F(Resume, ACheckpointHoldsEveryElementOnce) {
  for (const int stage : {0, 1, 3}) {
    const std::string dir = folder("once" + std::to_string(stage));
    const EngineOptions three = options({3, stage});
    (void)train_part(three, {.steps = 1, .save = dir});
    const Checkpoint checkpoint = open_checkpoint(local_file_system(), dir);
    std::int64_t stored = 0;
    std::vector<std::int64_t> of_rank;
    for (const FileRecord& file : checkpoint.manifest().files) {
      of_rank.push_back(0);
      for (const RangeRecord& range : file.ranges) of_rank.back() += range.range.bytes();
      stored += of_rank.back();
    }
    std::int64_t elems = 0;
    for (const StateRange& param : checkpoint.parameters()) elems += param.elems();
    EXPECT_EQ(stored, 12 * elems) << "stage " << stage;
    ASSERT_EQ(of_rank.size(), 3U);
    for (const std::int64_t bytes : of_rank) EXPECT_GT(bytes, 0) << "stage " << stage;
  }
}

TEST_F(Resume, MomentsChangeTheirTypeByRoundingToNearestAlone) {
  EngineOptions wide = options({2, 2, Tier::kHost}, DType::kBFloat16);
  EngineOptions narrow = wide;
  narrow.offload.states_dtype = DType::kBFloat16;
  (void)train_part(wide, {.steps = 3, .save = folder("wide")});
  (void)train_part(narrow, {.resume = folder("wide"), .save = folder("rounded")});
  (void)train_part(wide, {.resume = folder("rounded"), .save = folder("widened")});
  const auto before = states_in(folder("wide"));
  const auto rounded = states_in(folder("rounded"));
  EXPECT_EQ(states_in(folder("widened")), rounded) << "to fp32 is exact";
  for (const auto& [name, values] : before) {
    const bool master = name.starts_with("master/");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected = master ? values[i] : float_of_bf16(bf16_bits(values[i]));
      ASSERT_EQ(rounded.at(name)[i], expected) << name << " " << i;
    }
  }
}

// Each element once, whoever else holds it: norms, tied tables, shared key heads.
TEST_F(Resume, ACheckpointOfAMeshHoldsEveryElementOnce) {
  EngineOptions mesh =
      options({.dp = 2, .stage = 1, .parallel = {.tensor = 2, .sequence = true, .pipeline = 2}});
  mesh.model.type = ModelType::kLlama;
  mesh.model.kv_heads = 1;
  const std::string dir = folder("mesh");
  (void)train_part(mesh, {.steps = 1, .save = dir});
  const Checkpoint checkpoint = open_checkpoint(local_file_system(), dir);
  std::int64_t stored = 0;
  for (const FileRecord& file : checkpoint.manifest().files) {
    for (const RangeRecord& range : file.ranges) stored += range.range.bytes();
  }
  std::int64_t elems = 0;
  for (const StateRange& param : checkpoint.parameters()) elems += param.elems();
  EXPECT_EQ(elems, make_model_spec(mesh.model).param_count());
  EXPECT_EQ(stored, 12 * elems);
}

TEST_F(Resume, GoesOnBitForBitOnTheSameMesh) {
  const ParallelOptions parallel{.tensor = 2, .sequence = true, .pipeline = 2};
  expect_same_run(options({.dp = 1, .stage = 1, .parallel = parallel}), "stage 1");
  expect_same_run(options({.dp = 2,
                           .stage = 3,
                           .optimizer = Tier::kNvme,
                           .parameters = Tier::kHost,
                           .gradients = Tier::kHost,
                           .parallel = parallel},
                          DType::kBFloat16),
                  "off the device");
  // A checkpoint has one of the replicas: the others were the same, their rounding too.
  EngineOptions narrow = options(
      {.dp = 2, .stage = 2, .optimizer = Tier::kHost, .parallel = parallel}, DType::kBFloat16);
  narrow.offload.states_dtype = DType::kBFloat16;
  expect_same_run(narrow, "replicas whose moments are rounded");
}

// f(comm, engine) on two ranks whose run has trained a step.
template <class F>
void on_two_ranks(const EngineOptions& options, F&& f) {
  run_world_with_comm(options, Wire::kLocal, [&](Communicator& comm, Engine& engine) {
    (void)engine.train_step({.step = 1, .lr = 1e-3});
    f(comm, engine);
  });
}

const auto kSilent = [](const std::string&, bool) {};

RunState at_step(std::int64_t step) {
  RunState run;
  run.step = run.updates = step;
  return run;
}

TEST_F(Resume, ASaveThatFailsIsReportedAndTheNextOneGoesThrough) {
  for (const bool behind : {false, true}) {
    for (const char* fault : {"checkpoint.write.enospc", "checkpoint.fsync",
                              "checkpoint.mkdir.erofs", "checkpoint.thread"}) {
      SCOPED_TRACE(std::string(fault) + (behind ? ", behind" : ""));
      const std::string dir = folder("failing" + std::to_string(count_++));
      on_two_ranks(options({2, 1}), [&](Communicator& comm, Engine& engine) {
        Checkpointing saves({.checkpoint = {.dir = dir}}, engine, comm, local_file_system(),
                            kSilent);
        EXPECT_TRUE(saves.save(at_step(1), false));
        comm.barrier();
        if (comm.rank() == 0) arm_failpoints(std::string(fault) + "@1:error");
        comm.barrier();
        const bool began = saves.save(at_step(2), behind);
        EXPECT_FALSE(saves.finish() && began);
        EXPECT_EQ(saves.last_step(), -1);
        comm.barrier();
        if (comm.rank() == 0) {
          arm_failpoints("");
          EXPECT_EQ(*newest_complete(local_file_system(), dir, Trust::kContents).path,
                    join_path(dir, "step-00000001"));
        }
        comm.barrier();
        EXPECT_TRUE(saves.save(at_step(3), behind) && saves.finish());
      });
      EXPECT_EQ(newest_complete(local_file_system(), dir, Trust::kContents).name, "step-00000003");
    }
  }
}

TEST_F(Resume, ACommitThatFailsLeavesNoDirectory) {
  // Two ranks' files, then the manifest; two ranks' threads, then the one that commits.
  for (const auto& [behind, fault] : {std::pair{false, "checkpoint.create.enospc@3:error"},
                                      {true, "checkpoint.create.enospc@3:error"},
                                      {true, "checkpoint.thread@3:error"}}) {
    SCOPED_TRACE(fault);
    const std::string dir = folder("commit" + std::to_string(count_++));
    on_two_ranks(options({2, 1}), [&](Communicator& comm, Engine& engine) {
      Checkpointing saves({.checkpoint = {.dir = dir}}, engine, comm, local_file_system(), kSilent);
      EXPECT_TRUE(saves.save(at_step(1), false));
      comm.barrier();
      if (comm.rank() == 0) arm_failpoints(fault);
      comm.barrier();
      const bool began = saves.save(at_step(2), behind);
      EXPECT_FALSE(saves.finish() && began);
      comm.barrier();
      if (comm.rank() == 0) arm_failpoints("");
      comm.barrier();
    });
    EXPECT_EQ(local_file_system().list(dir), (std::vector<std::string>{"latest", "step-00000001"}));
  }
}

// Else a run's error would be told when gigabytes have been written that nobody completes.
TEST_F(Resume, AnErrorOfTheRunDoesNotWaitForWhatIsWrittenBehindIt) {
  EngineOptions wide = options({2, 1});
  wide.model.hidden = 256;
  const std::string dir = folder("ended");
  on_two_ranks(wide, [&](Communicator& comm, Engine& engine) {
    comm.barrier();
    if (comm.rank() == 0) arm_failpoints("checkpoint.write:delay=150");
    comm.barrier();
    Checkpointing saves({.checkpoint = {.dir = dir}}, engine, comm, local_file_system(), kSilent);
    EXPECT_TRUE(saves.save(at_step(1), true));
    EXPECT_TRUE(saves.under_way_since());
  });
  arm_failpoints("");
  for (const char* rank : {"/rank-00000", "/rank-00001"}) {
    const auto bytes = std::filesystem::file_size(dir + "/step-00000001" + rank + ".safetensors");
    EXPECT_LT(bytes, 6U << 20) << "of some nine";
  }
}

TEST_F(Resume, ALatestThatCannotBeMovedIsNoFailureOfTheSave) {
  const std::string dir = folder("latest");
  on_two_ranks(options({2, 1}), [&](Communicator& comm, Engine& engine) {
    Checkpointing saves({.checkpoint = {.dir = dir}}, engine, comm, local_file_system(), kSilent);
    EXPECT_TRUE(saves.save(at_step(1), false));
    comm.barrier();
    if (comm.rank() == 0) arm_failpoints("checkpoint.rename@2:error");
    comm.barrier();
    EXPECT_TRUE(saves.save(at_step(2), false));
    EXPECT_EQ(saves.last_step(), 2);
    comm.barrier();
    if (comm.rank() == 0) arm_failpoints("");
    comm.barrier();
  });
  EXPECT_EQ(open_checkpoint(local_file_system(), dir).path(), join_path(dir, "step-00000002"));
}

// Ranks that are done are told that they wait, and one that syncs that it may be silent.
TEST_F(Resume, WhoWaitsForASlowDiskIsToldSo) {
  const std::string dir = folder("slow");
  std::array<std::map<std::string, bool>, 2> told;
  on_two_ranks(options({2, 1}), [&](Communicator& comm, Engine& engine) {
    auto& mine = told.at(static_cast<std::size_t>(comm.rank()));
    Checkpointing saves({.checkpoint = {.dir = dir}}, engine, comm, local_file_system(),
                        [&](const std::string& phase, bool waiting) { mine[phase] = waiting; });
    comm.barrier();
    if (comm.rank() == 0) arm_failpoints("checkpoint.fsync@1:delay=1500");
    comm.barrier();
    EXPECT_TRUE(saves.save(at_step(1), false));
    comm.barrier();
    if (comm.rank() == 0) arm_failpoints("");
    comm.barrier();
  });
  const std::string of = "saving a checkpoint: ";
  int synced = 0;
  for (const auto& mine : told) {
    EXPECT_FALSE(mine.at(of + "writing"));
    EXPECT_TRUE(mine.at(of + "waiting for the other ranks"));
    const auto sync = mine.find(of + "syncing the file");
    if (sync == mine.end()) continue;
    EXPECT_TRUE(sync->second);
    ++synced;
  }
  EXPECT_EQ(synced, 1);
}

TEST_F(Resume, ADamagedCheckpointIsPassedOverByAllRanks) {
  const std::string dir = folder("damaged");
  on_two_ranks(options({2, 1}), [&](Communicator& comm, Engine& engine) {
    Checkpointing saves({.checkpoint = {.dir = dir}}, engine, comm, local_file_system(), kSilent);
    EXPECT_TRUE(saves.save(at_step(1), false));
    EXPECT_TRUE(saves.save(at_step(2), false));
  });
  const std::string file = dir + "/step-00000002/rank-00001.safetensors";
  const auto size = std::filesystem::file_size(file);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(size - 5))
      .put('\x55');
  on_two_ranks(options({2, 3}), [&](Communicator& comm, Engine& engine) {
    const ResumeRequest newest{.from = "auto", .dir = dir};
    const Resumed resumed = resume_run(newest, 100, engine, comm, local_file_system(), [] {});
    ASSERT_TRUE(resumed.run);
    EXPECT_EQ(resumed.run->step, 1);
    EXPECT_EQ(resumed.known_bad, std::vector<std::string>{"step-00000002"});
  });
  const auto refused = [&](const std::string& from, const std::string& word) {
    try {
      on_two_ranks(options({2, 3}), [&](Communicator& comm, Engine& engine) {
        (void)resume_run({.from = from, .dir = dir}, 100, engine, comm, local_file_system(), [] {});
      });
      ADD_FAILURE() << "resumed";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused(dir + "/step-00000002", "rank-00001.safetensors");
  std::filesystem::remove(dir + "/step-00000001/manifest.json");
  refused("auto", "no checkpoint in ");
}

TEST_F(Resume, OneRankLooksAtTheFilesAndEachRefusesOneThatItMisses) {
  const std::string dir = folder("views");
  on_two_ranks(options({2, 1}), [&](Communicator& comm, Engine& engine) {
    Checkpointing saves({.checkpoint = {.dir = dir}}, engine, comm, local_file_system(), kSilent);
    EXPECT_TRUE(saves.save(at_step(1), false));
    EXPECT_TRUE(saves.save(at_step(2), false));
  });
  const auto resumed_by = [&](const std::string& from, const std::string& hidden) {
    Resumed resumed;
    on_two_ranks(options({2, 3}), [&](Communicator& comm, Engine& engine) {
      RanksView view(comm.rank() == 1 ? hidden : "");
      const Resumed mine = resume_run({.from = from, .dir = dir}, 100, engine, comm, view, [] {});
      if (comm.rank() == 0) resumed = mine;
      EXPECT_EQ(view.stats() > 0, comm.rank() == 0) << "rank " << comm.rank() << ", " << from;
    });
    return resumed;
  };
  for (const std::string& from : {std::string("auto"), dir, dir + "/step-00000002"}) {
    EXPECT_EQ(resumed_by(from, "").path, join_path(dir, "step-00000002"));
  }
  const std::string missing = "step-00000002/rank-00001.safetensors";  // rank 1 needs most of it
  const Resumed older = resumed_by("auto", missing);
  EXPECT_EQ(older.path, join_path(dir, "step-00000001"));
  EXPECT_TRUE(older.known_bad.empty()) << "another rank sees it: nothing that purge may remove";
  try {
    (void)resumed_by(dir, missing);
    ADD_FAILURE() << "resumed";
  } catch (const IoError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(missing + " is missing"), std::string::npos) << what;
  }
  std::filesystem::remove(dir + "/" + missing);  // for all: rank 0 sees that
  EXPECT_EQ(resumed_by("auto", "").path, join_path(dir, "step-00000001"));
  EXPECT_THROW((void)resumed_by(dir, ""), IoError);
}

TEST_F(Resume, AnotherModelIsAConfigurationMistake) {
  const std::string dir = folder("model");
  (void)train_part(options({1, 0}), {.steps = 1, .save = dir});
  EngineOptions wider = options({1, 0});
  wider.model.hidden = 64;
  try {
    (void)train_part(wider, {.steps = 1, .resume = dir});
    ADD_FAILURE() << "resumed";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(" in the checkpoint, "), std::string::npos)
        << error.what();
  }
}

TEST_F(Resume, ABudgetWithoutRoomForACopyIsKeptByWritingAtOnce) {
  const std::string dir = folder("room");
  on_two_ranks(options({2, 1}), [&](Communicator& comm, Engine& engine) {
    const std::int64_t copy = bytes_of(engine.saved_pieces());
    const std::int64_t least = std::int64_t{256} << 10;
    for (const std::int64_t room : {least, copy + (std::int64_t{64} << 20)}) {
      Checkpointing saves({.checkpoint = {.dir = dir}, .room_bytes = room}, engine, comm,
                          local_file_system(), kSilent);
      const bool roomy = room > least;
      EXPECT_EQ(saves.describe().find("no room for a copy") == std::string::npos, roomy);
      EXPECT_TRUE(saves.save(at_step(1), true));
      EXPECT_EQ(saves.under_way_since().has_value(), roomy);
      EXPECT_TRUE(saves.finish());
      EXPECT_FALSE(saves.under_way_since());
      EXPECT_EQ(saves.host_bytes() > 0, roomy);
      EXPECT_LE(saves.host_bytes(), room);
    }
    EXPECT_THROW(Checkpointing({.checkpoint = {.dir = dir}, .room_bytes = 1000}, engine, comm,
                               local_file_system(), kSilent),
                 BudgetError);
    // Stages of a pipeline have plans, and so room, of their own: neither waits for the other.
    std::optional<std::int64_t> of_one;
    if (comm.rank() == 0) of_one = 1000;
    EXPECT_THROW(Checkpointing({.checkpoint = {.dir = dir}, .room_bytes = of_one}, engine, comm,
                               local_file_system(), kSilent),
                 BudgetError);
  });
}

}  // namespace
}  // namespace sluice::testing
