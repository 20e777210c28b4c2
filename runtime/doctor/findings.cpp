#include "runtime/doctor/findings.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/bytes.hpp"
#include "kernels/cpu/thread_waiting.hpp"
#include "runtime/bench/table.hpp"

namespace sluice {
namespace {

// Buffers of a few layers' states, which the NVMe tier registers.
constexpr std::int64_t kEnoughMemlock = kGiB;
constexpr std::int64_t kEnoughShm = kGiB;
// fp32 master and two moments: read and written by each update on NVMe.
constexpr double kStateBytesOfElem = 12;
// A drive below this makes an update of 1e9 parameters take over half a minute.
constexpr double kSlowDisk = 0.75e9;
constexpr double kBusyShare = 0.5;    // load over the cores: others compute too
constexpr double kPoorScaling = 0.6;  // of threads times one thread's rate
constexpr double kAdamAgainstMemory = 0.7;
constexpr double kSteadySpread = 0.15;  // of repeated measurements
constexpr double kAdamBytes = 28;       // a parameter in fp32: gradient, three states both ways
constexpr double kLittleMemory = 0.25;  // of the whole, still available
constexpr double kSwapInUse = 0.01;     // of the memory
constexpr double kLongSpin = 100000;    // rounds: more than a millisecond

class Findings {
 public:
  Findings(const MachineFacts& facts, const DiskFacts& disk, const MachineRates& rates)
      : facts_(facts), disk_(disk), rates_(rates) {}

  std::vector<Finding> all() {
    processor();
    cores();
    waiting();
    memory();
    pages();
    limits();
    disk();
    noise();
    kernels();
    for (Finding& finding : find_gpu_faults(facts_, rates_)) found_.push_back(std::move(finding));
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Finding& a, const Finding& b) { return a.kind < b.kind; });
    return std::move(found_);
  }

 private:
  void add(FindingKind kind, std::string what, std::string why, std::string remedy) {
    found_.push_back({kind, std::move(what), std::move(why), std::move(remedy)});
  }

  void processor() {
    if (facts_.amx_reported && !facts_.amx_usable) {
      add(FindingKind::kOff, "AMX is reported but not granted",
          "bf16 matrix products run on AVX-512 at a fraction of the tiles' rate",
          "run outside the sandbox, or on a kernel and hypervisor that grant tile state");
    }
    if (facts_.isa == Isa::kScalar) {
      add(FindingKind::kSlow, "no AVX2", "the host optimizer and all kernels run scalar code",
          "expose the host's CPU to the virtual machine (cpu mode: host-passthrough)");
    } else if (facts_.isa == Isa::kAvx2) {
      add(FindingKind::kNote, "no AVX-512", "the host kernels use AVX2, half as wide", "");
    }
    const std::string& source = facts_.clock_source;
    if (!source.empty() && source != "tsc" && source != "kvm-clock" &&
        source != "arch_sys_counter" && source != "hyperv_clocksource_tsc_page") {
      add(FindingKind::kSlow, "clock source " + source,
          "each time stamp of the trace costs a system call or more",
          "boot with clocksource=tsc where the CPU has an invariant one");
    }
  }

  void cores() {
    if (facts_.cpu_quota && *facts_.cpu_quota < facts_.cores) {
      char quota[32];
      std::snprintf(quota, sizeof quota, "%.1f", facts_.cpu_quota.value_or(0));
      add(FindingKind::kOff,
          std::string("the control group allows ") + quota + " cores' time on " +
              std::to_string(facts_.cores) + " cores",
          "ranks are not bound to cores, and more threads than that are throttled",
          "give the container a cpuset instead of a quota");
    }
    if (busy()) {
      char load[32];
      std::snprintf(load, sizeof load, "%.1f", facts_.load.value_or(0));
      add(FindingKind::kNote,
          std::string("load ") + load + " on " + std::to_string(facts_.cores) + " cores",
          "others computed while this was measured: the rates are too low by their share",
          "measure again when the machine is quiet");
    }
    if (facts_.nodes.size() > 1) {
      add(FindingKind::kNote, std::to_string(facts_.nodes.size()) + " memory nodes",
          "memory of another node is slower; ranks are bound to one each where they divide",
          "use a multiple of " + std::to_string(facts_.nodes.size()) + " ranks");
    }
  }

  // If both variables are set, libgomp follows the count.
  [[nodiscard]] bool spins_long() const {
    if (facts_.spin_count.empty()) return facts_.wait_policy.empty() || waits_actively();
    double rounds = 0;
    const char* end = facts_.spin_count.data() + facts_.spin_count.size();
    const auto [at, error] = std::from_chars(facts_.spin_count.data(), end, rounds);
    return error != std::errc() || at != end || rounds > kLongSpin;  // "infinite", "1m"
  }
  [[nodiscard]] bool waits_actively() const {
    std::string lower = facts_.wait_policy;
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return lower.find("active") == 0;
  }

  void waiting() {
    if (!spins_long()) return;
    const bool chosen = !facts_.spin_count.empty() || !facts_.wait_policy.empty();
    add(chosen ? FindingKind::kNote : FindingKind::kSlow,
        "waiting threads of OpenMP spin for milliseconds or longer",
        "where other processes use the same cores, a step takes 5 to 20 times as long",
        chosen ? std::string("unset ") + kSpinVariable + " and " + kWaitPolicyVariable +
                     "; the program then lets them spin shortly"
               : std::string("set ") + kSpinSetting + " before the program starts");
  }

  void memory() {
    if (!facts_.memory_bytes || !facts_.available_bytes) return;
    const auto whole = static_cast<double>(*facts_.memory_bytes);
    if (static_cast<double>(*facts_.available_bytes) < kLittleMemory * whole) {
      add(FindingKind::kNote,
          format_bytes(*facts_.available_bytes) + " of " + format_bytes(*facts_.memory_bytes) +
              " memory are available",
          "states kept on the host must fit into what is left",
          "end what uses it, or set memory.host below it");
    }
    if (facts_.swap_used_bytes &&
        static_cast<double>(*facts_.swap_used_bytes) > kSwapInUse * whole) {
      add(FindingKind::kSlow, format_bytes(*facts_.swap_used_bytes) + " are swapped out",
          "a step that touches swapped pages waits for the disk page by page",
          "end what uses the memory, then swapoff -a && swapon -a");
    }
  }

  void pages() {
    if (facts_.huge_pages == "never") {
      add(FindingKind::kOff, "transparent huge pages are never",
          "large buffers have 4 KiB pages: more address translation, slower registration",
          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
    if (facts_.shared_huge_pages == "never" || facts_.shared_huge_pages == "deny") {
      add(FindingKind::kOff, "shmem_enabled is " + facts_.shared_huge_pages,
          "blocks that ranks share have 4 KiB pages: more address translation in each collective",
          "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    }
    if (facts_.shm_bytes && *facts_.shm_bytes < kEnoughShm) {
      add(FindingKind::kNote, "/dev/shm has " + format_bytes(*facts_.shm_bytes),
          "NCCL and libraries that share memory through it fail when it is full",
          "start the container with --shm-size=8g or --ipc=host");
    }
  }

  void limits() {
    if (facts_.memlock_unlimited || facts_.memlock_exempt || !facts_.memlock_bytes) return;
    if (*facts_.memlock_bytes >= kEnoughMemlock) return;
    add(FindingKind::kOff, "memlock limit " + format_bytes(*facts_.memlock_bytes),
        "buffers of the NVMe tier cannot be registered: the kernel pins their pages at each "
        "transfer",
        "raise it with ulimit -l unlimited (limits.conf: memlock; docker: --ulimit memlock=-1)");
  }

  void disk() {
    if (!disk_.uring) {
      add(FindingKind::kOff, "io_uring is refused (" + disk_.uring_error + ")",
          "the NVMe tier uses threads with pread and pwrite: more processor time",
          "allow it: kernel.io_uring_disabled=0; docker: a seccomp profile that permits it");
    }
    if (disk_.direct && !*disk_.direct) {
      add(FindingKind::kOff, "no O_DIRECT on " + place(),
          "the NVMe tier refuses it: states would pass through the page cache",
          "point --nvme-path and offload.nvme_path to a local disk with ext4 or xfs");
    }
    if (disk_.file_system == "tmpfs" || disk_.file_system == "ramfs") {
      add(FindingKind::kNote, place() + " is memory",
          "what is moved there has not left RAM: no state is saved by it",
          "point --nvme-path and offload.nvme_path to a disk");
    }
    slow_disk();
  }

  void slow_disk() {
    if (!rates_.disk_both_bps || *rates_.disk_both_bps >= kSlowDisk) return;
    add(FindingKind::kSlow, "the disk moves " + format_byte_rate(*rates_.disk_both_bps),
        "an optimizer step on it takes " +
            format_seconds(2 * kStateBytesOfElem * 1e9 / *rates_.disk_both_bps) +
            " per 1e9 parameters (12 bytes read and written of each)",
        "keep the optimizer on the host, stripe several drives (nvme_path: [a, b]), or accumulate "
        "more samples a step");
  }

  // Findings about the reliability of the measurements.
  void noise() {
    const auto worst =
        std::max_element(rates_.spread.begin(), rates_.spread.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (worst != rates_.spread.end() && worst->second > kSteadySpread) {
      add(FindingKind::kNote,
          worst->first + " varied by " + format_percent(worst->second) + " from round to round",
          "the machine or its host is shared: a plan made from these rates is as uncertain",
          "measure again, without --quick, when the machine is quiet");
    }
    const auto adam = rates_.adam_params_per_s.fp32;
    if (adam && rates_.memory_rmw_bps &&
        *adam * kAdamBytes > kMostOfMemory * *rates_.memory_rmw_bps) {
      add(FindingKind::kNote,
          "AdamW moves " + format_byte_rate(*adam * kAdamBytes) + ", the memory only " +
              format_byte_rate(*rates_.memory_rmw_bps),
          "both cannot be true at one time: do not plan with either of them",
          "measure again when the machine is quiet");
    }
  }

  void kernels() {
    // With others on the cores, neither ratio says anything about the machine.
    if (busy()) return;
    const auto adam = rates_.adam_params_per_s.fp32;
    if (adam && rates_.memory_rmw_bps &&
        *adam * kAdamBytes < kAdamAgainstMemory * *rates_.memory_rmw_bps) {
      add(FindingKind::kNote,
          "host AdamW runs at " + format_percent(*adam * kAdamBytes / *rates_.memory_rmw_bps) +
              " of the read-modify-write rate",
          "its arithmetic is the limit, not the memory", "");
    }
    if (rates_.gemm_by_threads.size() < 2) return;
    const ThreadRates& one = rates_.gemm_by_threads.front();
    const ThreadRates& all = rates_.gemm_by_threads.back();
    if (one.threads != 1 || !one.gemm_flops.fp32 || !all.gemm_flops.fp32) return;
    const double scaling = *all.gemm_flops.fp32 / (*one.gemm_flops.fp32 * all.threads);
    if (scaling < kPoorScaling) {
      add(FindingKind::kSlow,
          std::to_string(all.threads) + " threads multiply only " + format_percent(scaling) +
              " of " + std::to_string(all.threads) + " times what one does",
          "cores are shared: hardware threads of one core, neighbours on the host, or heat",
          "compare ranks x launch.threads with the physical cores; use fewer threads");
    }
  }

  [[nodiscard]] bool busy() const {
    return facts_.load && *facts_.load > kBusyShare * facts_.cores;
  }
  [[nodiscard]] std::string place() const {
    return disk_.path + (disk_.file_system.empty() ? "" : " (" + disk_.file_system + ")");
  }

  const MachineFacts& facts_;
  const DiskFacts& disk_;
  const MachineRates& rates_;
  std::vector<Finding> found_;
};

}  // namespace

const char* name_of(FindingKind kind) {
  return kind == FindingKind::kOff ? "off" : kind == FindingKind::kSlow ? "slow" : "note";
}

std::vector<Finding> find_faults(const MachineFacts& facts, const DiskFacts& disk,
                                 const MachineRates& rates) {
  return Findings(facts, disk, rates).all();
}

}  // namespace sluice
