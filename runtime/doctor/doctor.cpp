#include "runtime/doctor/doctor.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <exception>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/posix/host_name.hpp"
#include "kernels/cpu/parallel.hpp"
#include "runtime/bench/adam_bench.hpp"
#include "runtime/doctor/disk_rates.hpp"
#include "runtime/doctor/memory_rates.hpp"

namespace sluice {
namespace {

// Why this machine has no figures of a GPU.
std::string no_gpu(const DoctorInput& input) {
  const std::string none = "no GPU is visible";
  return input.hidden_gpus.empty() ? none : none + ": " + input.hidden_gpus;
}
constexpr char kInterrupted[] = "interrupted before it was measured";
constexpr char kUsedTransport[] = "mapped";  // ranks of a host read gradients in place
// An array takes at most this part of the free memory; three live at once.
constexpr std::int64_t kShareOfMemory = 8;
constexpr std::int64_t kStateBytes = 12;  // fp32 master and moments of a parameter

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

class Examination {
 public:
  explicit Examination(const DoctorInput& input)
      : input_(input), effort_(input.effort), rates_(report_.rates) {}

  DoctorReport run() {
    const auto begin = std::chrono::steady_clock::now();
    report_.facts = read_machine_facts(input_.gpus);
    report_.facts.gpu_fault = input_.gpu_fault;
    report_.facts.gpu_remedy = input_.gpu_remedy;
    report_.facts.hidden_gpus = input_.hidden_gpus;
    report_.disk = read_disk_facts(input_.nvme_path);
    rates_.host = host_name();
    rates_.measured_at = now_utc();
    rates_.quick = input_.quick;
    rates_.threads = input_.threads;
    comm();
    measure({"matrix products", 1.5, 2}, {"gemm_flops.fp32", "gemm_flops.bf16"},
            [this] { gemm(); });
    measure({"a transformer's units on every core", 2, 5}, {"units"}, [this] { units(); });
    set_compute_threads(input_.threads);
    measure({"memory", 0.5, 2}, {"memory_copy_bps", "memory_triad_bps"}, [this] { memory(); });
    measure({"copies between host and device arenas", 0.5, 2},
            {"h2d_bps", "d2h_bps", "h2d_d2h_bps"}, [this] { arenas(); });
    measure({"AdamW in fp32", 0.5, 2}, {"adam_params_per_s.fp32", "memory_rmw_bps"},
            [this] { adam_fp32(); });
    measure({"AdamW in bf16", 0.5, 2}, {"adam_params_per_s.bf16"}, [this] { adam_bf16(); });
    measure({"the disk of " + input_.nvme_path, 3 * effort_.disk_s, 3 * effort_.disk_s},
            {"disk_read_bps", "disk_write_bps", "disk_both_bps"},
            [this] { measure_disk(report_.disk, effort_.disk_s, rates_); });
    gpu();
    missing("peer", input_.gpus > 1    ? "the doctor measures one GPU, by itself"
                    : input_.gpus == 1 ? "one GPU is visible"
                                       : no_gpu(input_));
    report_.findings = find_faults(report_.facts, report_.disk, rates_);
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(report_);
  }

 private:
  struct Part {
    std::string what;
    double quick_s, whole_s;  // that it takes, about
  };

  // A failed or interrupted measurement leaves its reason in not_measured.
  template <class Body>
  void measure(const Part& part, const std::vector<const char*>& fields, Body&& body) {
    report_.interrupted = report_.interrupted || (input_.interrupted && input_.interrupted());
    if (report_.interrupted) {
      for (const char* field : fields) missing(field, kInterrupted);
      return;
    }
    if (input_.progress) input_.progress(part.what, input_.quick ? part.quick_s : part.whole_s);
    try {
      body();
    } catch (const std::exception& failed) {
      for (const char* field : fields) missing(field, error_chain(failed));
    }
  }
  void missing(const char* field, const std::string& reason) {
    rates_.not_measured[field] = reason;
  }

  // Bytes of an array that no cache holds, as far as memory goes.
  [[nodiscard]] std::int64_t array_bytes() const {
    const std::int64_t wish =
        std::clamp(4 * report_.facts.cache_bytes, effort_.least_bytes, effort_.most_bytes);
    const std::int64_t available = report_.facts.available_bytes.value_or(kGiB);
    return std::max(std::min(wish, available / kShareOfMemory), kMiB) / 4096 * 4096;
  }

  void comm() {
    rates_.comm_by_transport = fit_transports(input_.comm);
    if (!rates_.comm_by_transport.empty()) rates_.comm_ranks = input_.comm_ranks;
    const auto used = rates_.comm_by_transport.find(kUsedTransport);
    if (used == rates_.comm_by_transport.end()) {
      missing("comm", input_.comm_missing.empty() ? "no size was measured" : input_.comm_missing);
    } else {
      rates_.comm = used->second;
    }
  }

  void gemm() {
    std::vector<int> counts{1, input_.threads / 2, input_.threads};
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    std::erase(counts, 0);
    report_.bf16 = input_.gemm.bf16();
    const bool native = report_.bf16.native >= report_.bf16.converted;
    for (const int threads : counts) {
      ThreadRates row{threads, {}};
      const double fp32 = input_.gemm.flops(DType::kFloat32, threads);
      row.gemm_flops.fp32 = fp32;
      // Converted products scale over threads as fp32 does. Native 16-bit products on a CPU without
      // fast instructions would take many seconds for an unused figure.
      const double one = rates_.gemm_by_threads.empty()
                             ? fp32
                             : rates_.gemm_by_threads.front().gemm_flops.fp32.value_or(fp32);
      row.gemm_flops.bf16 = native ? input_.gemm.flops(DType::kBFloat16, threads)
                                   : report_.bf16.converted * fp32 / one;
      rates_.gemm_by_threads.push_back(row);
    }
    rates_.gemm_flops = rates_.gemm_by_threads.back().gemm_flops;
  }

  void units() {
    if (!input_.units) throw Error("nothing was given that runs them");
    rates_.units = input_.units(report_.bf16);
  }

  void memory() {
    const MemoryRates memory = measure_memory(array_bytes(), effort_.rounds);
    rates_.memory_copy_bps = memory.copy_bps;
    rates_.memory_triad_bps = memory.triad_bps;
    rates_.spread["memory_copy_bps"] = memory.copy_spread;
    rates_.spread["memory_triad_bps"] = memory.triad_spread;
  }

  void arenas() {
    const ArenaCopyRates copies = measure_arena_copies(array_bytes(), effort_.rounds);
    rates_.h2d_bps = copies.h2d_bps;
    rates_.d2h_bps = copies.d2h_bps;
    rates_.h2d_d2h_bps = copies.both_bps;
    rates_.spread["h2d_bps"] = copies.h2d_spread;
    rates_.spread["d2h_bps"] = copies.d2h_spread;
    rates_.spread["h2d_d2h_bps"] = copies.both_spread;
  }

  // Measures again, longer, if update and limit contradict each other.
  [[nodiscard]] AdamBenchResult adam(DType dtype) const {
    AdamBenchOptions options;
    options.elems = array_bytes() / kStateBytes;
    options.threads = input_.threads;
    options.dtype = dtype;
    options.rounds = effort_.rounds;
    AdamBenchResult result = run_adam_bench(options);
    if (result.bytes_per_s < kMostOfMemory * result.limit_bytes_per_s) return result;
    options.rounds *= 3;
    return run_adam_bench(options);
  }
  void adam_fp32() {
    const AdamBenchResult result = adam(DType::kFloat32);
    rates_.adam_params_per_s.fp32 = result.params_per_s;
    rates_.memory_rmw_bps = result.limit_bytes_per_s;
    rates_.spread["adam_params_per_s.fp32"] = result.adam.mad / result.adam.median;
    rates_.spread["memory_rmw_bps"] =
        result.read_modify_write.mad / result.read_modify_write.median;
  }
  void adam_bf16() {
    const AdamBenchResult result = adam(DType::kBFloat16);
    rates_.adam_params_per_s.bf16 = result.params_per_s;
    rates_.spread["adam_params_per_s.bf16"] = result.adam.mad / result.adam.median;
  }

  void gpu() {
    if (!input_.gpu_fault.empty()) return missing("gpu", input_.gpu_fault);
    if (input_.gpus == 0) return missing("gpu", no_gpu(input_));
    measure({"the GPU", 5, 10}, {"gpu"}, [this] {
      if (!input_.open_gpu) throw Error("nothing was given that opens it");
      const std::unique_ptr<GpuDevice> gpu = input_.open_gpu();
      report_.facts.gpu =
          measure_gpu(*gpu, input_.gpu_effort, input_.pci_devices, input_.gpu_attention, rates_);
      rates_.gpu->count = input_.gpus;
    });
  }

  const DoctorInput& input_;
  const DoctorEffort effort_;
  DoctorReport report_;
  MachineRates& rates_;
};

}  // namespace

DoctorEffort doctor_effort(bool quick) {
  // A round takes about 10 ms, a scheduler's time slice: with a few of them the median of a busy
  // machine is whatever slice it fell into.
  if (quick) return {64 * kMiB, 128 * kMiB, 15, 1.0};
  return {256 * kMiB, 1024 * kMiB, 21, 6};
}

CommPlan comm_plan(bool quick) {
  if (quick) return {{8 * kKiB, kMiB, 8 * kMiB}, 3};
  return {{8 * kKiB, 256 * kKiB, 4 * kMiB, 32 * kMiB}, 7};
}

namespace {

bool holds_more(const std::string& path, const MachineRates& than) {
  try {
    return read_machine_rates(path).not_measured.size() < than.not_measured.size();
  } catch (const IoError&) {  // no file, or a broken one
    return false;
  }
}

}  // namespace

bool write_rates(const DoctorReport& report, const std::string& path) {
  if (report.interrupted && holds_more(path, report.rates)) return false;
  write_machine_rates(report.rates, path);
  return true;
}

DoctorReport examine(const DoctorInput& input) {
  check(input.threads > 0 && !input.nvme_path.empty(), "a doctor has threads and a folder");
  return Examination(input).run();
}

}  // namespace sluice
