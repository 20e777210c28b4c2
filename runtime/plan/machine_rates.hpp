// The rates of this machine, measured by `sluice doctor` and read by the plan, in SI units, bytes
// and seconds. The file format is docs/formats/rates.md. Torch-free; values; thread-safe.
//
// An unmeasured rate is empty, never 0; not_measured has the reason.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

inline constexpr int kRatesFormat = 1;

// Compute capability, times 10, from which on a GPU multiplies 8 bits: Ada's. Hopper and Blackwell
// have more.
inline constexpr int kFp8Capability = 89;

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

// FLOP/s of a transformer's unit on one core while all cores run the same unit, separately for
// matrix products and attention. forward_flops of a head covers all of the head's training work.
struct UnitRates {
  std::string unit;   // "gpt2" or "llama", a block; "head"
  std::string dtype;  // "fp32", or "bf16" as train.matmul: auto multiplies
  std::int64_t hidden = 0;
  double forward_flops = 0, backward_flops = 0;
  double attention_forward_flops = 0, attention_backward_flops = 0;
  // Rate of one rank with all cores over the sum of the cores' rates with one thread each.
  double threads_efficiency = 1;
};

// FLOP/s of causal attention on a GPU in 16 bits, forward and backward together. A pair of a query
// and a key that it sees counts once in each of the seven products.
struct AttentionRates {
  double head_64 = 0, head_128 = 0;  // heads of so many elements, rows of 1024 tokens
  double head_128_long = 0;          // rows of 4096 tokens
};

// Calls visit(name in files, rate) for each of the rates.
template <class Rates, class Visitor>
void visit_attention(Rates& rates, Visitor&& visit) {
  visit("head_64", rates.head_64);
  visit("head_128", rates.head_128);
  visit("head_128_long", rates.head_128_long);
}

struct AttentionFlops {
  std::optional<AttentionRates> flash{}, cudnn{};  // of train.attention; empty: not known
};

// One GPU of the host, while other GPUs and the host are idle. Each rank has one GPU.
struct GpuRates {
  std::string name;               // "NVIDIA H200"
  int count = 1;                  // visible on the host; the first was measured
  int compute_capability = 0;     // times 10; 0: not known
  int multiprocessors = 0;        // 0: not known
  std::int64_t memory_bytes = 0;  // visible to a program
  DTypeRates gemm_flops{};        // FLOP/s; fp32 as a run multiplies
  std::optional<double> gemm_fp16_flops{}, gemm_fp8_flops{};
  AttentionFlops attention_flops{};
  std::optional<double> device_memory_bps{};   // bytes read and written by a copy on the device
  std::optional<double> device_triad_bps{};    // bytes read and written by a = b + s c
  std::optional<double> h2d_bps{}, d2h_bps{};  // registered memory, alone
  std::optional<double> h2d_d2h_bps{};         // both at once, the sum
};

struct MachineRates {
  std::string host;
  std::string measured_at;  // UTC, 2026-11-21T18:00:00Z
  bool quick = false;       // fewer and smaller measurements
  int threads = 1;          // threads of the rates per host
  int comm_ranks = 0;       // ranks of `comm`; 0: not measured
  std::string nvme_path;    // directory of disk_*

  // Rates of CPU ranks, also if GPUs are visible; `gpu` has the rates of a GPU.
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

  // Per rank, all ranks at once; bytes that a rank receives from other ranks in a collective.
  std::optional<LinkRates> comm;  // the transport that runs use between ranks of a host
  std::optional<LinkRates> peer;  // between two GPUs directly

  std::optional<GpuRates> gpu;  // empty: no GPU is visible, or not_measured has the reason

  std::vector<ThreadRates> gemm_by_threads;
  std::vector<UnitRates> units;
  std::map<std::string, LinkRates> comm_by_transport;
  // Median absolute deviation of the rounds over their median, of fields measured in rounds.
  std::map<std::string, double> spread;
  std::map<std::string, std::string> not_measured;  // field, "gemm_flops.bf16", to the reason
};

// SLUICE_RATES, else $XDG_CACHE_HOME/sluice/rates-<host_name()>.json, else ~/.cache/sluice/...
// Throws ConfigError if none of the variables is set.
[[nodiscard]] std::string machine_rates_path();

[[nodiscard]] std::string machine_rates_json(const MachineRates& rates);
// `source` names the text in errors. Ignores unknown fields. Throws IoError for text that is not
// JSON, another format, a field of the wrong kind, or a number that is not positive.
[[nodiscard]] MachineRates parse_machine_rates(const std::string& text, const std::string& source);

// Creates the folder and replaces the file atomically. Throws IoError.
void write_machine_rates(const MachineRates& rates, const std::string& path);
[[nodiscard]] MachineRates read_machine_rates(const std::string& path);  // throws IoError
// Reads the file of machine_rates_path(). nullopt: no such file, or no place for one; but a file
// that SLUICE_RATES names must exist. Throws IoError.
[[nodiscard]] std::optional<MachineRates> find_machine_rates();

}  // namespace sluice
