// The machine of a plan: a named profile (configs/machines/*.json, built into the program), or the
// rates that `sluice doctor` measured (machine_rates.hpp; same field names). Torch-free. Units are
// bytes, FLOP and seconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/plan/machine_rates.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

struct RateByDType {
  double fp32 = 0;
  double bf16 = 0;  // fp16 as well
  double fp8 = 0;   // of products; 0: not known

  [[nodiscard]] double of(DType dtype) const { return dtype == DType::kFloat32 ? fp32 : bf16; }
};

struct MachineProfile {
  std::string name;
  std::string origin;       // source of the numbers, for people
  std::string device_name;  // part of the GPU's name: "H200"
  bool gpu = false;
  int compute_capability = 0;              // of a GPU, times 10; 0: not known
  int multiprocessors = 0;                 // of a GPU; 0: not known
  int devices_per_node = 0;                // 0: all ranks are on one node
  std::int64_t device_memory_bytes = 0;    // 0: not known
  std::int64_t device_overhead_bytes = 0;  // part of it outside the allocator
  RateByDType peak_flops;                  // from the data sheet; the base of MFU
  RateByDType gemm_flops;                  // of one GPU, or of all cores
  double gemm_efficiency = 1;              // rate of a model's products over a square product's
  AttentionFlops attention_flops{};        // of a GPU
  double device_memory_bps = 0;            // of a GPU
  double memory_copy_bps = 0;
  double memory_rmw_bps = 0;
  RateByDType adam_params_per_s;  // of a node's cores
  double h2d_bps = 0;
  double d2h_bps = 0;
  double disk_read_bps = 0;
  double disk_write_bps = 0;
  double disk_both_bps = 0;  // 0: the mean of reads and writes
  double comm_latency_s = 0;
  double comm_bps = 0;
  double network_bps = 0;        // of a node; 0: messages between nodes go at comm_bps
  int comm_ranks = 2;            // number of ranks of comm_latency_s
  std::vector<UnitRates> units;  // of one core, all cores at work; empty: not measured
  int cores = 1;                 // of a node
  // Products of one process by number of cores, other cores idle; empty: not measured.
  std::vector<ThreadRates> gemm_by_threads;
  int threads_of_rank = 0;  // launch.threads; 0: the rank's whole share of the cores
};

// REQUIRES: `text` is a profile or a rates file. Missing numbers come from `base`. Throws
// ConfigError with `source` and the field.
[[nodiscard]] MachineProfile parse_profile(const std::string& text, const std::string& source,
                                           const MachineProfile& base = {});

[[nodiscard]] std::vector<std::string> profile_names();
// A name with a '.' or a '/' is a path. Throws ConfigError with the known names.
[[nodiscard]] MachineProfile named_profile(const std::string& name);

// A rates file of `sluice doctor` with a GPU becomes that GPU's profile.
[[nodiscard]] MachineProfile read_profile(const std::string& path, const MachineProfile& base);
// `base` with the measured rates: of the GPU if `base` is a GPU's, else of the CPU.
[[nodiscard]] MachineProfile measured_profile(const MachineRates& rates, MachineProfile base);
// FLOP/s of dense products from the data sheet of the GPU called `name`; 0: no profile for the GPU.
[[nodiscard]] double dense_peak_flops(const std::string& name, DType dtype);
// The named profile of a GPU, for figures that are not measured (peak, efficiency, links between
// GPUs). For a GPU without a profile: kDefaultGpu's, without peak_flops, 8-bit products,
// attention_flops, compute_capability and multiprocessors.
[[nodiscard]] MachineProfile profile_like(const GpuRates& gpu);
inline constexpr char kDefaultGpu[] = "h100-sxm";

// Identifies one of `ranks` ranks. `multiplied_in`: 16-bit products of a CPU may run in fp32.
struct RankQuestion {
  int ranks = 1;
  DType dtype = DType::kFloat32;
  DType multiplied_in = DType::kFloat32;
};
// The rates of one rank. If the rank has fewer threads than its share of the cores, the rate of
// products falls. Rates of memory and Adam do not, because few threads may reach them.
[[nodiscard]] Rates rates_of(const MachineProfile& machine, const RankQuestion& question);
// Peak FLOP/s of all ranks together.
[[nodiscard]] double peak_flops_of(const MachineProfile& machine, const RankQuestion& question);
// True if ranks leave cores idle (threads_of_rank) and no measurement tells the cost.
[[nodiscard]] bool threads_are_unpriced(const MachineProfile& machine, int ranks);
// Effective cores of one of `ranks` ranks, after losses between its threads. `threads_efficiency`:
// of one rank with all cores.
[[nodiscard]] double cores_of_rank(const MachineProfile& machine, int ranks,
                                   double threads_efficiency);
// Ranks of a full node, of `ranks` ranks.
[[nodiscard]] int ranks_of_node(const MachineProfile& machine, int ranks);
[[nodiscard]] int nodes_of(const MachineProfile& machine, int ranks);

}  // namespace sluice
