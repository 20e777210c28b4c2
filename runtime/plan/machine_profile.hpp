// What a plan knows of the machines it is for: a named profile (configs/machines/*.json, built into
// the program), or what `sluice doctor` measured of this one (machine_rates.hpp; same field names).
// Torch-free. Bytes, FLOP and seconds.
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

  [[nodiscard]] double of(DType dtype) const { return dtype == DType::kFloat32 ? fp32 : bf16; }
};

struct MachineProfile {
  std::string name;
  std::string origin;       // for people: where the numbers are from
  std::string device_name;  // part of what a GPU of this kind calls itself: "H200"
  bool gpu = false;
  int devices_per_node = 0;                // 0: all ranks are on one node
  std::int64_t device_memory_bytes = 0;    // 0: not known
  std::int64_t device_overhead_bytes = 0;  // of it, taken beside the allocator
  RateByDType peak_flops;                  // of the data sheet: what MFU is of
  RateByDType gemm_flops;                  // a GPU's, or those of all cores
  double gemm_efficiency = 1;              // a model's matrix products against a square one
  double device_memory_bps = 0;            // of a GPU
  double memory_copy_bps = 0;
  double memory_rmw_bps = 0;
  RateByDType adam_params_per_s;  // of a node's cores
  double h2d_bps = 0;
  double d2h_bps = 0;
  double disk_read_bps = 0;
  double disk_write_bps = 0;
  double disk_both_bps = 0;  // 0: their mean
  double comm_latency_s = 0;
  double comm_bps = 0;
  double network_bps = 0;        // of a node; 0: ranks of all nodes talk as those of one do
  int comm_ranks = 2;            // that the latency is of
  std::vector<UnitRates> units;  // of one core, all cores at work; none: not measured
  int cores = 1;                 // of a node: whose units those are
  // Products of one process on so many cores of a node, the others idle; empty: not measured.
  std::vector<ThreadRates> gemm_by_threads;
  int threads_of_rank = 0;  // launch.threads; 0: a rank has all of its share of the cores
};

// REQUIRES: `text` is a profile or a rates file. Numbers that are missing are `base`'s. Throws
// ConfigError with `source` and the field.
[[nodiscard]] MachineProfile parse_profile(const std::string& text, const std::string& source,
                                           const MachineProfile& base = {});

[[nodiscard]] std::vector<std::string> profile_names();
// Throws ConfigError with the names there are. A name with a '.' or a '/' is a file's.
[[nodiscard]] MachineProfile named_profile(const std::string& name);

// A file of the doctor's that has a GPU is that GPU's profile.
[[nodiscard]] MachineProfile read_profile(const std::string& path, const MachineProfile& base);
// What the doctor measured over a base: of CPU ranks, or where the base is a GPU's, of the GPU.
[[nodiscard]] MachineProfile measured_profile(const MachineRates& rates, MachineProfile base);
// FLOP/s of the dense products of a GPU that calls itself `name`, of its data sheet; 0: no profile
// is of such a GPU.
[[nodiscard]] double dense_peak_flops(const std::string& name, DType dtype);
// The named profile of such a GPU, for what nobody measured of it (peak, efficiency, links between
// GPUs); of one that no profile is of, kDefaultGpu's.
[[nodiscard]] MachineProfile profile_like(const GpuRates& gpu);
inline constexpr char kDefaultGpu[] = "h100-sxm";

// What one of `ranks` ranks has of it. `multiplied_in`: 16-bit products of a CPU may run in fp32.
struct RankQuestion {
  int ranks = 1;
  DType dtype = DType::kFloat32;
  DType multiplied_in = DType::kFloat32;
};
// Where its threads are fewer than its share of the cores: products and units by as many cores as
// it uses. Memory and Adam are not, since few threads may reach what all do.
[[nodiscard]] Rates rates_of(const MachineProfile& machine, const RankQuestion& question);
// FLOP/s that all ranks would have at their peak.
[[nodiscard]] double peak_flops_of(const MachineProfile& machine, const RankQuestion& question);
// Whether ranks leave cores idle (threads_of_rank) and nothing measured tells what that costs.
[[nodiscard]] bool threads_are_unpriced(const MachineProfile& machine, int ranks);
// Cores that one of `ranks` ranks uses of its node, less what its threads lose to each other;
// threads_efficiency: of one rank with all cores.
[[nodiscard]] double cores_of_rank(const MachineProfile& machine, int ranks,
                                   double threads_efficiency);
// Of `ranks` ranks, those of a node that is full.
[[nodiscard]] int ranks_of_node(const MachineProfile& machine, int ranks);
[[nodiscard]] int nodes_of(const MachineProfile& machine, int ranks);

}  // namespace sluice
