// How fast this machine is, as `sluice doctor` measured it and as the plan reads it: SI units,
// bytes and seconds. The file is docs/formats/rates.md. Torch-free; values; thread-safe.
//
// What was not measured is empty and has its reason in not_measured; it is never 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

inline constexpr int kRatesFormat = 1;

struct DTypeRates {
  std::optional<double> fp32, bf16;
};

// A transfer of n bytes takes latency_s + n / bps.
struct LinkRates {
  double latency_s = 0;
  double bps = 0;
};

struct ThreadRates {
  int threads = 1;
  DTypeRates gemm_flops;
};

// A transformer's own unit on one core while all cores do the same: FLOP/s, by what multiplies
// matrices and by what attention adds. forward_flops of a head is all that it does in training.
struct UnitRates {
  std::string unit;   // "gpt2" or "llama", a block; "head"
  std::string dtype;  // "fp32", or "bf16" as train.matmul: auto multiplies
  std::int64_t hidden = 0;
  double forward_flops = 0, backward_flops = 0;
  double attention_forward_flops = 0, attention_backward_flops = 0;
  // One rank with all cores: its rate over that of the cores each by itself.
  double threads_efficiency = 1;
};

// One GPU of the host, while the others and the host do nothing. Of a rank: each has one.
struct GpuRates {
  std::string name;               // "NVIDIA H200"
  int count = 1;                  // visible on the host; the first was measured
  std::int64_t memory_bytes = 0;  // that a program sees
  DTypeRates gemm_flops{};        // FLOP/s; fp32 as a run multiplies
  std::optional<double> gemm_fp16_flops{};
  std::optional<double> device_memory_bps{};   // bytes read and written by a copy on the device
  std::optional<double> device_triad_bps{};    // bytes read and written by a = b + s c
  std::optional<double> h2d_bps{}, d2h_bps{};  // registered memory, alone
  std::optional<double> h2d_d2h_bps{};         // both at once, the sum
};

struct MachineRates {
  std::string host;
  std::string measured_at;  // UTC, 2026-11-21T18:00:00Z
  bool quick = false;       // fewer and smaller measurements
  int threads = 1;          // that the rates per host were measured with
  int comm_ranks = 0;       // of comm; 0: not measured
  std::string nvme_path;    // of disk_*

  // What CPU ranks have, also where GPUs are visible; what a GPU does is in gpu.
  // Per host: one process on all cores it may use.
  DTypeRates gemm_flops;                   // FLOP/s; bf16 as train.matmul: auto multiplies
  std::optional<double> memory_copy_bps;   // bytes copied (each is read and written)
  std::optional<double> memory_triad_bps;  // bytes read and written by a = b + s c
  std::optional<double> memory_rmw_bps;    // bytes read and written by x *= s
  DTypeRates adam_params_per_s;            // host AdamW; bf16: gradients and weights of 16 bits
  std::optional<double> disk_read_bps, disk_write_bps;  // through the NVMe store
  std::optional<double> disk_both_bps;  // bytes read + bytes written, half of them each

  // Per rank: one lane, which is one thread on a CPU.
  std::optional<double> h2d_bps, d2h_bps;  // alone
  std::optional<double> h2d_d2h_bps;       // both at once, the sum

  // Per rank, all ranks at once; bytes are what a rank receives from others in a collective.
  std::optional<LinkRates> comm;  // the transport that runs use between ranks of a host
  std::optional<LinkRates> peer;  // between two GPUs directly

  std::optional<GpuRates> gpu;  // empty: none is visible, or why not is in not_measured

  std::vector<ThreadRates> gemm_by_threads;
  std::vector<UnitRates> units;
  std::map<std::string, LinkRates> comm_by_transport;
  // Median absolute deviation of the rounds over their median, of fields measured in rounds.
  std::map<std::string, double> spread;
  std::map<std::string, std::string> not_measured;  // field, "gemm_flops.bf16", to the reason
};

// SLUICE_RATES, else $XDG_CACHE_HOME/sluice/rates-<host>.json, else ~/.cache/sluice/... Throws
// ConfigError where none of the variables is set.
[[nodiscard]] std::string machine_rates_path();
[[nodiscard]] std::string rates_host();  // the <host> of that name

[[nodiscard]] std::string machine_rates_json(const MachineRates& rates);
// `source` names the text in errors. Unknown fields are ignored. Throws IoError: no JSON, another
// format, a field of the wrong kind, a number that is not positive.
[[nodiscard]] MachineRates parse_machine_rates(const std::string& text, const std::string& source);

// The folder is created; a reader sees the old file or the new one. Throws IoError.
void write_machine_rates(const MachineRates& rates, const std::string& path);
[[nodiscard]] MachineRates read_machine_rates(const std::string& path);  // throws IoError
// The file of machine_rates_path(). nullopt where there is none; a file that SLUICE_RATES names
// must be there. Throws IoError.
[[nodiscard]] std::optional<MachineRates> find_machine_rates();

}  // namespace sluice
