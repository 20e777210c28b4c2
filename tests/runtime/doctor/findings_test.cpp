#include "runtime/doctor/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// A machine with nothing to say about.
struct Machine {
  Machine() {
    facts.isa = Isa::kAvx512;
    facts.amx_reported = facts.amx_usable = true;
    facts.clock_source = "tsc";
    facts.cores = facts.hardware_threads = 8;
    facts.load = 0.2;
    facts.spin_count = "1000";
    facts.nodes = {{0, 64 * kGiB, 8}};
    facts.memory_bytes = 64 * kGiB;
    facts.available_bytes = 60 * kGiB;
    facts.swap_bytes = 8 * kGiB;
    facts.swap_used_bytes = 0;
    facts.memlock_unlimited = true;
    facts.huge_pages = "madvise";
    facts.shared_huge_pages = "advise";
    facts.shm_bytes = 32 * kGiB;
    disk.path = "/data";
    disk.file_system = "ext4";
    disk.direct = true;
    disk.uring = true;
    rates.disk_both_bps = 3e9;
    rates.adam_params_per_s.fp32 = 1e9;
    rates.memory_rmw_bps = 30e9;
    rates.gemm_by_threads = {{1, {1e11, 2e11}}, {8, {7e11, 14e11}}};
  }
  [[nodiscard]] std::vector<Finding> faults() const { return find_faults(facts, disk, rates); }
  // The only finding, which must be complete.
  [[nodiscard]] Finding only() const {
    const std::vector<Finding> found = faults();
    EXPECT_EQ(found.size(), 1U) << (found.empty() ? "none" : found[0].what);
    if (found.empty()) return {};
    EXPECT_FALSE(found[0].why.empty());
    return found[0];
  }

  MachineFacts facts;
  DiskFacts disk;
  MachineRates rates;
};

TEST(Findings, AGoodMachineHasNone) { EXPECT_TRUE(Machine().faults().empty()); }

TEST(Findings, ThreadsThatSpinLong) {
  Machine machine;
  machine.facts.spin_count = "";
  EXPECT_EQ(machine.only().kind, FindingKind::kSlow);
  EXPECT_THAT(machine.only().do_, HasSubstr("GOMP_SPINCOUNT=10000"));
  machine.facts.wait_policy = "ACTIVE";
  EXPECT_EQ(machine.only().kind, FindingKind::kNote);
  EXPECT_THAT(machine.only().do_, HasSubstr("unset"));
  machine.facts.wait_policy = "passive";
  EXPECT_TRUE(machine.faults().empty());
  machine.facts.spin_count = "infinite";
  EXPECT_EQ(machine.faults().size(), 1U);
  machine.facts.spin_count = "0";
  EXPECT_TRUE(machine.faults().empty());
}

TEST(Findings, MemlockLimitWithItsRemedy) {
  Machine machine;
  machine.facts.memlock_unlimited = false;
  machine.facts.memlock_bytes = 8 * kMiB;
  const Finding finding = machine.only();
  EXPECT_EQ(finding.kind, FindingKind::kOff);
  EXPECT_EQ(finding.what, "memlock limit 8.00 MiB");
  EXPECT_THAT(finding.do_, HasSubstr("ulimit -l"));
  machine.facts.memlock_exempt = true;
  EXPECT_TRUE(machine.faults().empty());
  machine.facts.memlock_exempt = false;
  machine.facts.memlock_bytes = 4 * kGiB;
  EXPECT_TRUE(machine.faults().empty());
}

TEST(Findings, AmxWithheldIsOffAndAbsentIsNothing) {
  Machine machine;
  machine.facts.amx_usable = false;
  EXPECT_THAT(machine.only().what, HasSubstr("AMX"));
  machine.facts.amx_reported = false;
  EXPECT_TRUE(machine.faults().empty());
}

TEST(Findings, PagesAndSharedMemory) {
  for (const char* setting : {"never", "deny"}) {
    Machine machine;
    machine.facts.shared_huge_pages = setting;
    EXPECT_EQ(machine.only().what, std::string("shmem_enabled is ") + setting);
  }
  Machine machine;
  machine.facts.shared_huge_pages.clear();  // a kernel without the switch
  machine.facts.huge_pages.clear();
  EXPECT_TRUE(machine.faults().empty());
  machine.facts.huge_pages = "never";
  EXPECT_EQ(machine.only().kind, FindingKind::kOff);
  machine.facts.huge_pages = "always";
  machine.facts.shm_bytes = 64 * kMiB;  // docker's
  EXPECT_THAT(machine.only().what, HasSubstr("64.0 MiB"));
}

TEST(Findings, CoresQuotaAndLoad) {
  Machine machine;
  machine.facts.cpu_quota = 2.5;
  EXPECT_THAT(machine.only().what, HasSubstr("2.5 cores' time on 8"));
  machine.facts.cpu_quota = 8;
  EXPECT_TRUE(machine.faults().empty());
  machine.rates.gemm_by_threads.back().gemm_flops.fp32 = 2e11;
  EXPECT_THAT(machine.only().what, HasSubstr("25 %"));
  machine.facts.load = 7;  // then it is the others, not the cores
  EXPECT_THAT(machine.only().what, HasSubstr("load 7.0"));
}

TEST(Findings, DiskSlowRefusedOrMemory) {
  Machine machine;
  machine.rates.disk_both_bps = 0.24e9;
  EXPECT_THAT(machine.only().why, HasSubstr("100 s"));
  machine.rates.disk_both_bps.reset();  // not measured is not slow
  EXPECT_TRUE(machine.faults().empty());
  machine.disk.direct = false;
  EXPECT_THAT(machine.only().what, HasSubstr("/data (ext4)"));
  machine.disk.direct = true;
  machine.disk.file_system = "tmpfs";
  EXPECT_EQ(machine.only().kind, FindingKind::kNote);
  machine.disk.file_system = "xfs";
  machine.disk.uring = false;
  machine.disk.uring_error = "Operation not permitted";
  EXPECT_THAT(machine.only().what, HasSubstr("Operation not permitted"));
}

TEST(Findings, MemoryInUse) {
  Machine machine;
  machine.facts.available_bytes = 4 * kGiB;
  EXPECT_THAT(machine.only().what, HasSubstr("4.00 GiB of 64.0 GiB"));
  machine.facts.available_bytes = 60 * kGiB;
  machine.facts.swap_used_bytes = 2 * kGiB;
  EXPECT_EQ(machine.only().kind, FindingKind::kSlow);
}

TEST(Findings, RatesThatVaryOrContradictEachOther) {
  Machine machine;
  machine.rates.spread = {{"memory_copy_bps", 0.02}, {"memory_rmw_bps", 0.4}};
  EXPECT_THAT(machine.only().what, HasSubstr("memory_rmw_bps varied by 40 %"));
  machine.rates.spread.clear();
  machine.rates.adam_params_per_s.fp32 = 4.15e9;  // 116 GB/s
  machine.rates.memory_rmw_bps = 13.2e9;
  EXPECT_THAT(machine.only().what, HasSubstr("116 GB/s"));
  machine.rates.memory_rmw_bps = 110e9;
  EXPECT_TRUE(machine.faults().empty());
  machine.rates.memory_rmw_bps = 400e9;
  EXPECT_THAT(machine.only().what, HasSubstr("host AdamW"));
  machine.facts.load = 7;
  EXPECT_THAT(machine.only().what, HasSubstr("load"));
}

// A GPU with nothing to say about.
struct GpuMachine : Machine {
  GpuMachine() {
    facts.gpus = 1;
    facts.gpu = GpuFacts{.name = "NVIDIA H200", .copy_engines = 3};
    facts.gpu->memory_bytes = 139 * kGiB;
    facts.gpu->free_bytes = 138 * kGiB;
    facts.gpu->link = {32, 32, 16, 16, 0};
    rates.gpu = GpuRates{.name = "NVIDIA H200"};
    rates.gpu->gemm_flops = {5e13, 7e14};
    rates.gpu->gemm_fp16_flops = 7e14;
    rates.gpu->h2d_bps = rates.gpu->d2h_bps = 50e9;
    rates.gpu->h2d_d2h_bps = 90e9;
  }
};

TEST(Findings, AGoodGpuHasNone) {
  GpuMachine machine;
  EXPECT_TRUE(machine.faults().empty());
  machine.facts.gpu->link = {};  // hidden by a container, or no such link
  EXPECT_TRUE(machine.faults().empty());
  machine.rates.gpu->h2d_bps.reset();
  machine.rates.gpu->gemm_flops = {};
  EXPECT_TRUE(machine.faults().empty());
}

TEST(Findings, CopiesBelowTheGpusLinkAndWhatTheyCost) {
  GpuMachine machine;
  machine.rates.gpu->h2d_bps = 20e9;
  const Finding slow = machine.only();
  EXPECT_EQ(slow.kind, FindingKind::kSlow);
  EXPECT_THAT(slow.what, HasSubstr("from the host at 20.0 GB/s, 32 %"));
  EXPECT_THAT(slow.what, HasSubstr("PCIe 5.0 x16"));
  EXPECT_THAT(slow.why, HasSubstr("180 ms"));  // 4e9 bytes at 50 GB/s and 2e9 at 20
  machine.rates.gpu->h2d_bps = 50e9;
  machine.rates.gpu->d2h_bps = 6e9;
  EXPECT_THAT(machine.only().what, HasSubstr("to the host at 6.00 GB/s"));
}

TEST(Findings, AGpuOnLessOfALinkThanItCouldHave) {
  GpuMachine machine;
  machine.facts.gpu->link.lanes = 8;
  machine.rates.gpu->h2d_bps = machine.rates.gpu->d2h_bps = 26e9;
  machine.rates.gpu->h2d_d2h_bps = 48e9;
  const Finding narrow = machine.only();
  EXPECT_EQ(narrow.what, "GPU 0 is linked by PCIe 5.0 x8 and could be by PCIe 5.0 x16");
  EXPECT_THAT(narrow.why, HasSubstr("per 1e9 parameters"));
  EXPECT_THAT(narrow.do_, HasSubstr("LnkSta"));
}

TEST(Findings, TheOtherOperatorOfAttentionIsFaster) {
  GpuMachine machine;
  GpuRates& gpu = *machine.rates.gpu;
  gpu.compute_capability = 89;
  gpu.attention_flops = {AttentionRates{5e13, 1e14, 1.2e14}, AttentionRates{6e13, 1.5e14, 2e14}};
  EXPECT_THAT(machine.only().what, HasSubstr("computes cuDNN's attention at 60.0 TFLOP/s"));
  EXPECT_EQ(machine.only().do_, "train.attention: cudnn");
  gpu.compute_capability = 90;  // auto takes cuDNN's
  EXPECT_TRUE(machine.faults().empty());
  std::swap(gpu.attention_flops.flash, gpu.attention_flops.cudnn);
  EXPECT_THAT(machine.only().what, HasSubstr("computes flash attention at 60.0 TFLOP/s"));
  EXPECT_EQ(machine.only().do_, "train.attention: flash");
  gpu.attention_flops.flash->head_128 = 1.05e14;  // not for all models
  EXPECT_TRUE(machine.faults().empty());
  gpu.attention_flops.flash.reset();
  EXPECT_TRUE(machine.faults().empty());
}

TEST(Findings, AGpuThatIsSharedOrLacksSomething) {
  GpuMachine machine;
  machine.rates.gpu->h2d_d2h_bps = 52e9;
  EXPECT_THAT(machine.only().what, HasSubstr("both ways at once"));
  machine.rates.gpu->h2d_d2h_bps = 90e9;
  machine.facts.gpu->free_bytes = 40 * kGiB;
  EXPECT_THAT(machine.only().what, HasSubstr("40.0 GiB of the 139 GiB"));
  machine.facts.gpu->free_bytes = 138 * kGiB;
  machine.rates.gpu->gemm_flops.bf16 = machine.rates.gpu->gemm_fp16_flops = 5.1e13;
  EXPECT_THAT(machine.only().what, HasSubstr("multiplies 16 bits"));
  machine.rates.gpu->gemm_fp16_flops = 4e14;  // one of the two will do
  EXPECT_TRUE(machine.faults().empty());
  machine.facts.gpus = 4;
  EXPECT_THAT(machine.only().what, HasSubstr("4 GPUs are visible, and GPU 0 alone"));
  machine.facts.gpus = 1;
  machine.facts.nodes.push_back({1, 64 * kGiB, 8});
  EXPECT_EQ(machine.faults().size(), 2U);  // the nodes, and which is the GPU's
}

TEST(Findings, AGpuThatWasNotMeasuredSaysWhy) {
  Machine machine;
  machine.facts.gpus = 1;
  machine.rates.not_measured["gpu"] = "built without CUDA";
  EXPECT_THAT(machine.only().why, HasSubstr("(built without CUDA)"));
}

TEST(Findings, WhatIsOffComesFirst) {
  Machine machine;
  machine.facts.isa = Isa::kScalar;
  machine.facts.gpus = 1;
  machine.facts.amx_usable = false;
  machine.disk.uring = false;
  machine.facts.clock_source = "hpet";
  const std::vector<Finding> found = machine.faults();
  EXPECT_EQ(found.size(), 5U);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end(),
                             [](const Finding& a, const Finding& b) { return a.kind < b.kind; }));
}

}  // namespace
}  // namespace sluice
