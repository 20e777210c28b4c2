// Which placement has a meaning: each refusal in its words, and every combination against the rule.
#include "configs/offload_rules.hpp"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/error.hpp"
#include "configs/validate.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

class OffloadRules : public ::testing::Test {
 protected:
  // What validate() says of these keys; empty where it is content.
  std::string complaint(const std::vector<std::string>& sets) {
    scratch_.write("c.yaml", "data: {text: a.txt}\n");
    try {
      validate(load_config("c.yaml", sets), 2);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  Scratch scratch_;
};

TEST_F(OffloadRules, ParametersLeaveInStage3) {
  EXPECT_EQ(
      complaint({"zero.stage=1", "offload.optimizer=host", "offload.parameters=host"}),
      "--set offload.parameters=host: offload.parameters: host needs zero.stage: 3: in stage 1 "
      "every rank keeps all parameters on its device; set it, or leave parameters on the device");
  EXPECT_EQ(complaint({"zero.stage=3", "offload.optimizer=host", "offload.parameters=host"}), "");
}

TEST_F(OffloadRules, GradientsLeaveInStages2And3) {
  EXPECT_EQ(
      complaint({"zero.stage=0", "offload.optimizer=host", "offload.gradients=host"}),
      "--set offload.gradients=host: offload.gradients: host needs zero.stage: 2 or 3: in stage 0 "
      "every rank sums all gradients on its device; set it, or leave gradients on the device");
  EXPECT_EQ(complaint({"zero.stage=2", "offload.optimizer=host", "offload.gradients=host"}), "");
}

TEST_F(OffloadRules, OnlyCompleteGradientsAreRounded) {
  const auto with = [this](std::vector<std::string> more) {
    std::vector<std::string> sets{"zero.stage=2",           "offload.optimizer=host",
                                  "offload.gradients=host", "offload.gradients_dtype=bf16",
                                  "train.dtype=bf16",       "train.micro_batch=2"};
    sets.insert(sets.end(), more.begin(), more.end());
    return complaint(sets);
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({"train.global_batch=4"}), "") << "one micro-batch on each of two ranks";
  EXPECT_EQ(with({"train.global_batch=12"}),
            "--set offload.gradients_dtype=bf16: offload.gradients_dtype: bf16 rounds complete "
            "gradients, and in train.accumulation_order: micro those of 3 micro-batches a step are "
            "added; set train.accumulation_order: layer, or leave this out");
  EXPECT_EQ(with({"train.global_batch=12", "train.accumulation_order=layer"}), "");
  EXPECT_EQ(with({"train.global_batch=12", "offload.gradients=device"}), "") << "no effect there";
  for (const char* batch : {"train.global_batch=4", "train.global_batch=auto"}) {
    EXPECT_EQ(with({batch, "offload.gradients=device", "offload.optimizer=device"}),
              "--set offload.gradients_dtype=bf16: offload.gradients_dtype: bf16 on the device "
              "needs one data-parallel rank: 2 ranks reduce gradients in fp32; set "
              "offload.gradients: host and offload.optimizer: host, or leave this out");
    EXPECT_EQ(with({batch, "offload.gradients=device", "offload.optimizer=device", "zero.stage=1"}),
              "--set offload.gradients_dtype=bf16: offload.gradients_dtype: bf16 on the device "
              "needs one data-parallel rank: 2 ranks reduce gradients in fp32; set zero.stage: 2, "
              "offload.gradients: host and offload.optimizer: host, or leave this out");
  }
  EXPECT_EQ(with({"train.global_batch=12", "parallel.pipeline=2"}),
            "--set offload.gradients_dtype=bf16: offload.gradients_dtype: bf16 rounds complete "
            "gradients, and in train.accumulation_order: micro those of 6 micro-batches a step are "
            "added; leave this out: a pipeline has no other order");
  EXPECT_EQ(with({"train.dtype=fp16"}),
            "--set offload.gradients_dtype=bf16: offload.gradients_dtype: bf16 needs train.dtype: "
            "bf16: a run in fp16 keeps more digits than bf16 has; set it, or leave this out");
}

TEST_F(OffloadRules, WhatIsOffTheDeviceIsUpdatedOffIt) {
  EXPECT_EQ(complaint({"zero.stage=3", "offload.parameters=host"}),
            "--set offload.parameters=host: offload.parameters: host needs offload.optimizer: host "
            "or nvme: parameters that live off the device are updated off it, and that is where "
            "the optimizer must be; set it, or leave parameters on the device");
  EXPECT_EQ(complaint({"zero.stage=2", "offload.gradients=host"}),
            "--set offload.gradients=host: offload.gradients: host needs offload.optimizer: host "
            "or nvme: gradients that live off the device are updated off it, and that is where "
            "the optimizer must be; set it, or leave gradients on the device");
}

TEST_F(OffloadRules, ActivationsLeaveWhereTheyCanBePartedFromTheirUnits) {
  EXPECT_EQ(complaint({"offload.activations=host", "model.explicit_units=false"}),
            "--set offload.activations=host: offload.activations: host needs recompute.mode: full, "
            "or model.explicit_units: what autograd keeps cannot be parted from it; set one of "
            "them, or leave activations on the device");
  EXPECT_EQ(
      complaint({"offload.activations=host", "model.explicit_units=false", "recompute.mode=full"}),
      "");
  for (const char* mode : {"none", "selective", "full"}) {
    EXPECT_EQ(complaint({"offload.activations=host", std::string("recompute.mode=") + mode}), "");
  }
}

TEST_F(OffloadRules, AShareStaysOfTheOptimizerAlone) {
  const std::string needs_both =
      "--set offload.device_fraction=0.5: offload.device_fraction: 0.5 needs parameters and "
      "gradients on the device: the share that stays is updated there; leave them on the device, "
      "or leave this out";
  for (const char* moved : {"offload.parameters=host", "offload.gradients=host"}) {
    EXPECT_EQ(
        complaint({"zero.stage=3", "offload.optimizer=host", "offload.device_fraction=0.5", moved}),
        needs_both);
  }
  EXPECT_EQ(complaint({"offload.optimizer=host", "offload.device_fraction=0.5"}), "");
}

TEST_F(OffloadRules, AShareOnTheHostIsOfAnOptimizerOnNvme) {
  const std::string optimizer = "offload.optimizer=nvme";
  const std::string folder = "offload.nvme_path=swap";
  const std::string half = "offload.host_fraction=0.5";
  EXPECT_EQ(complaint({optimizer, folder, half}), "");
  EXPECT_EQ(complaint({optimizer, folder, half, "offload.device_fraction=0.5"}), "");
  EXPECT_EQ(complaint({optimizer, folder, "offload.host_fraction=1"}),
            "--set offload.host_fraction=1: offload.host_fraction: 1 is all of the optimizer: set "
            "offload.optimizer: host, or a share below 1");
  EXPECT_EQ(complaint({optimizer, folder, half, "offload.speculate=auto"}), "");
  EXPECT_EQ(complaint({optimizer, folder, half, "offload.image=true"}),
            "--set offload.image=true: offload.image: an image is of all optimizer states, which "
            "must live on nvme, and offload.host_fraction keeps 0.5 of them on the host; set that "
            "to 0, or leave this out");
}

TEST_F(OffloadRules, AnImageIsOfAllStatesOnNvme) {
  const std::string optimizer = "offload.optimizer=nvme";
  const std::string folder = "offload.nvme_path=swap";
  EXPECT_EQ(complaint({optimizer, folder, "offload.device_fraction=0.25", "offload.image=true"}),
            "--set offload.image=true: offload.image: an image is of all optimizer states, which "
            "must live on nvme, and offload.device_fraction keeps 0.25 of them on the device; set "
            "that to 0, or leave this out");
  for (const char* mesh : {"parallel.tensor=2", "parallel.pipeline=2"}) {
    EXPECT_EQ(complaint({optimizer, folder, mesh, "offload.image=true"}), "") << mesh;
  }
  EXPECT_EQ(complaint({optimizer, folder, "offload.image=true"}), "");
  EXPECT_EQ(complaint({optimizer, folder, "offload.image=true", "offload.speculate=auto"}), "");
  EXPECT_EQ(complaint({"offload.image=false", "offload.optimizer=host"}), "");
  EXPECT_EQ(complaint({optimizer, folder, "offload.image=true", "launch.max_restarts=2"}), "");
}

TEST_F(OffloadRules, MasterWeightsThatTheStepReadsAreNotUpdatedEarly) {
  const std::vector<std::string> on_host = {"zero.stage=3", "offload.optimizer=host",
                                            "offload.parameters=host", "offload.speculate=auto"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), on_host.begin(), on_host.end());
    return complaint(more);
  };
  EXPECT_EQ(with({"train.dtype=fp32"}),
            "--set offload.speculate=auto: offload.speculate: auto needs train.dtype: bf16 or "
            "fp16, or parameters that are not on host: in fp32 these are their own master weights, "
            "and the step reads them; set one of them, or leave this out");
  EXPECT_EQ(with({"train.dtype=bf16"}), "");
  EXPECT_EQ(with({"train.dtype=fp32", "offload.parameters=device"}), "");
}

TEST_F(OffloadRules, NvmeNeedsAFolder) {
  EXPECT_EQ(complaint({"offload.optimizer=nvme"}),
            "--set offload.optimizer=nvme: offload.optimizer: nvme needs offload.nvme_path: a "
            "folder on the drive");
  EXPECT_EQ(complaint({"offload.optimizer=nvme", "offload.nvme_path=swap"}), "");
  EXPECT_FALSE(std::filesystem::exists("swap"));  // looking makes nothing
}

TEST_F(OffloadRules, FoldersMustBeWritable) {
  const auto about = [&](const std::string& paths) {
    return complaint({"offload.optimizer=nvme", "offload.nvme_path=" + paths});
  };
  const auto at = [](const std::string& paths) {
    return "--set offload.nvme_path=" + paths + ": offload.nvme_path: ";
  };
  EXPECT_EQ(about("drive/swap"),
            at("drive/swap") +
                "'drive/swap' cannot be made: 'drive' is no folder; is the drive mounted?");
  EXPECT_EQ(about("c.yaml"), at("c.yaml") + "'c.yaml' is a file; name a folder on the drive");
  EXPECT_EQ(about("[a, ./a]"),
            at("[a, ./a]") + "'./a' is named twice; name each drive's folder once");
  EXPECT_EQ(about("[a, b]"), "");
  EXPECT_EQ(about("a/"), "");
  EXPECT_EQ(about("."), "");
  // output.dir is runs/c: it is made before a rank starts.
  EXPECT_EQ(about("runs/swap"), "");
  EXPECT_EQ(about("runs/c/swap"), "");
  EXPECT_EQ(
      about("run/swap"),
      at("run/swap") + "'run/swap' cannot be made: 'run' is no folder; is the drive mounted?");
  EXPECT_EQ(about("runs/d/swap"),
            at("runs/d/swap") +
                "'runs/d/swap' cannot be made: 'runs/d' is no folder; is the drive mounted?");
}

TEST_F(OffloadRules, AFolderInMemoryIsNoDrive) {
  OffloadOptions offload;
  offload.optimizer = Tier::kNvme;
  offload.nvme_path = {"/proc/self/fd", "/dev/shm", "/dev/shm/swap-that-is-not-there"};
  struct statfs status {};
  if (::statfs("/dev/shm", &status) != 0 || status.f_type != TMPFS_MAGIC) {
    GTEST_SKIP() << "/dev/shm is no tmpfs here";
  }
  EXPECT_EQ(folders_in_memory(offload),
            (std::vector<std::string>{"/dev/shm", "/dev/shm/swap-that-is-not-there"}));
  offload.optimizer = Tier::kHost;
  EXPECT_TRUE(folders_in_memory(offload).empty());
}

TEST_F(OffloadRules, AFolderOfAnotherUserIsRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "nothing is forbidden to root";
  ASSERT_EQ(::mkdir("locked", 0500), 0);
  for (const std::string path : {"locked", "locked/swap"}) {
    EXPECT_EQ(complaint({"offload.optimizer=nvme", "offload.nvme_path=" + path}),
              "--set offload.nvme_path=" + path +
                  ": offload.nvme_path: 'locked' cannot be written (Permission denied); name a "
                  "folder that this user may write to");
  }
}

TEST_F(OffloadRules, BlocksAreWholePagesAndWholeHashes) {
  const auto about = [&](const std::string& bytes) {
    return complaint(
        {"offload.optimizer=nvme", "offload.nvme_path=swap", "offload.block_bytes=" + bytes});
  };
  EXPECT_EQ(about("200KiB"),
            "--set offload.block_bytes=200KiB: offload.block_bytes: 204800 is not a multiple of "
            "128KiB, or of 4KiB where it is less than that; the nearest below is 131072");
  EXPECT_EQ(about("5000"),
            "--set offload.block_bytes=5000: offload.block_bytes: 5000 is not a multiple of "
            "128KiB, or of 4KiB where it is less than that; the nearest below is 4096");
  for (const char* good : {"4KiB", "12KiB", "128KiB", "384KiB", "1MiB"}) EXPECT_EQ(about(good), "");
}

// Every placement and stage: refused exactly where it has no meaning.
TEST_F(OffloadRules, EveryCombination) {
  const Tier tiers[] = {Tier::kDevice, Tier::kHost, Tier::kNvme};
  for (int i = 0; i < 81 * 4 * 2; ++i) {
    RunConfig run;
    run.offload.optimizer = tiers[i % 3];
    run.offload.parameters = tiers[i / 3 % 3];
    run.offload.gradients = tiers[i / 9 % 3];
    run.offload.activations = tiers[i / 27 % 3];
    run.zero.stage = i / 81 % 4;
    run.recompute.mode = i / 324 == 0 ? RecomputeMode::kNone : RecomputeMode::kFull;
    run.model.explicit_units = i % 2 == 0;
    for (const PlacedState& state : placed_states(run.offload)) {
      if (state.tier == Tier::kNvme) run.offload.nvme_path = {"swap"};
    }
    const OffloadOptions& o = run.offload;
    const auto away = [](Tier tier) { return tier != Tier::kDevice; };
    const bool good = (!away(o.parameters) || (run.zero.stage == 3 && away(o.optimizer))) &&
                      (!away(o.gradients) || (run.zero.stage >= 2 && away(o.optimizer))) &&
                      (!away(o.activations) || run.recompute.mode == RecomputeMode::kFull ||
                       run.model.explicit_units);
    EXPECT_EQ(broken_offload_rules(run).empty(), good) << i;
  }
}

}  // namespace
}  // namespace sluice::testing
