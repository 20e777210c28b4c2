#include "runtime/plan/machine_profile.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "runtime/plan/machine_files.hpp"
#include "runtime/plan/profile_fields.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice {
namespace {

using Json = ProfileFields::Json;

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    throw IoError("cannot read the machine profile " + path + ": no such file, or no permission",
                  path);
  }
  return text.str();
}

}  // namespace

MachineProfile parse_profile(const std::string& text, const std::string& source,
                             const MachineProfile& base) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw ConfigError(source +
                      ": is not a JSON object; a profile looks like configs/machines/*.json");
  }
  if (json.contains("format")) {
    const MachineRates rates = parse_machine_rates(text, source);
    return measured_profile(rates, rates.gpu ? profile_like(*rates.gpu) : base);
  }
  MachineProfile machine = base;
  const ProfileFields fields(json, source);
  fields.refuse_others({"about",
                        "adam_params_per_s",
                        "attention_flops",
                        "comm",
                        "compute_capability",
                        "comm_ranks",
                        "d2h_bps",
                        "device_memory_bps",
                        "device_memory_bytes",
                        "device_name",
                        "device_overhead_bytes",
                        "devices_per_node",
                        "disk_both_bps",
                        "disk_read_bps",
                        "disk_write_bps",
                        "gemm_efficiency",
                        "gemm_flops",
                        "gpu",
                        "h2d_bps",
                        "memory_copy_bps",
                        "memory_rmw_bps",
                        "multiprocessors",
                        "name",
                        "network_bps",
                        "peak_flops",
                        "sources"});
  fields.text("name", machine.name);
  fields.text("device_name", machine.device_name);
  fields.flag("gpu", machine.gpu);
  double capability = machine.compute_capability / 10.0;
  fields.number("compute_capability", capability);
  machine.compute_capability = static_cast<int>(std::lround(10 * capability));
  fields.count("multiprocessors", machine.multiprocessors);
  fields.count("devices_per_node", machine.devices_per_node);
  fields.count("comm_ranks", machine.comm_ranks);
  fields.bytes("device_memory_bytes", machine.device_memory_bytes);
  fields.bytes("device_overhead_bytes", machine.device_overhead_bytes);
  fields.by_dtype("gemm_flops", machine.gemm_flops);
  // Without a data sheet, MFU is relative to the measured rate.
  if (json.contains("gemm_flops")) machine.peak_flops = machine.gemm_flops;
  fields.by_dtype("peak_flops", machine.peak_flops);
  // MFU is of the peak, and would be above 100 %.
  fields.at_least("peak_flops", machine.peak_flops, "gemm_flops", machine.gemm_flops);
  fields.number("gemm_efficiency", machine.gemm_efficiency);
  fields.attention("attention_flops", machine.attention_flops);
  fields.number("device_memory_bps", machine.device_memory_bps);
  fields.number("memory_copy_bps", machine.memory_copy_bps);
  fields.number("memory_rmw_bps", machine.memory_rmw_bps);
  fields.by_dtype("adam_params_per_s", machine.adam_params_per_s);
  fields.number("h2d_bps", machine.h2d_bps);
  fields.number("d2h_bps", machine.d2h_bps);
  fields.number("disk_read_bps", machine.disk_read_bps);
  fields.number("disk_write_bps", machine.disk_write_bps);
  fields.number("disk_both_bps", machine.disk_both_bps);
  fields.link("comm", machine.comm_latency_s, machine.comm_bps);
  fields.number("network_bps", machine.network_bps);
  machine.origin = source;
  return machine;
}

std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const MachineFile& file : machine_files()) names.push_back(file.name);
  return names;
}

MachineProfile named_profile(const std::string& name) {
  for (const MachineFile& file : machine_files()) {
    if (file.name == name) return parse_profile(file.text, "profile " + name);
  }
  if (name.find_first_of("./") != std::string::npos)
    return read_profile(name, named_profile("cpu"));
  std::string names;
  for (const std::string& known : profile_names()) names += (names.empty() ? "" : ", ") + known;
  throw ConfigError("--profile " + name + ": there is no such profile; there are " + names +
                    ", or the path of a file like configs/machines/*.json");
}

MachineProfile read_profile(const std::string& path, const MachineProfile& base) {
  return parse_profile(read_text(path), path, base);
}

MachineProfile profile_like(const GpuRates& gpu) {
  for (const std::string& name : profile_names()) {
    MachineProfile machine = named_profile(name);
    const std::string& part = machine.device_name;
    if (machine.gpu && !part.empty() && gpu.name.find(part) != std::string::npos) return machine;
  }
  MachineProfile machine = named_profile(kDefaultGpu);
  // These are the default GPU's own.
  machine.peak_flops = {};
  machine.gemm_flops.fp8 = 0;
  machine.attention_flops = {};
  machine.compute_capability = 0;
  machine.multiprocessors = 0;
  return machine;
}

double dense_peak_flops(const std::string& name, DType dtype) {
  GpuRates gpu;
  gpu.name = name;
  return profile_like(gpu).peak_flops.of(dtype);
}

namespace {

void take(const std::optional<double>& measured, double& value) {
  if (measured) value = *measured;
}

// Of a card with less power or fewer multiprocessors, which is slower at products and attention.
void scale(std::optional<AttentionRates>& rates, double share) {
  if (!rates) return;
  visit_attention(*rates, [&](const char*, double& rate) { rate *= share; });
}

void take_attention(const GpuRates& gpu, double share, AttentionFlops& rates) {
  scale(rates.flash, share);
  scale(rates.cudnn, share);
  if (gpu.attention_flops.flash) rates.flash = gpu.attention_flops.flash;
  if (gpu.attention_flops.cudnn) rates.cudnn = gpu.attention_flops.cudnn;
}

void take_gpu(const GpuRates& gpu, MachineProfile& machine) {
  machine.origin += "; of " + gpu.name + ", what that does not measure is profile " + machine.name;
  machine.devices_per_node = std::max(1, gpu.count);
  if (gpu.memory_bytes > 0) machine.device_memory_bytes = gpu.memory_bytes;
  if (gpu.compute_capability > 0) machine.compute_capability = gpu.compute_capability;
  if (gpu.multiprocessors > 0) machine.multiprocessors = gpu.multiprocessors;
  take(gpu.gemm_flops.fp32, machine.gemm_flops.fp32);
  const double products = machine.gemm_flops.bf16;
  take(gpu.gemm_flops.bf16 ? gpu.gemm_flops.bf16 : gpu.gemm_fp16_flops, machine.gemm_flops.bf16);
  take_attention(gpu, products > 0 ? machine.gemm_flops.bf16 / products : 1,
                 machine.attention_flops);
  take(gpu.gemm_fp8_flops, machine.gemm_flops.fp8);
  if (machine.peak_flops.bf16 == 0) machine.peak_flops = machine.gemm_flops;
  take(gpu.device_memory_bps, machine.device_memory_bps);
  take(gpu.h2d_bps, machine.h2d_bps);
  take(gpu.d2h_bps, machine.d2h_bps);
}

// Takes the rates that CPU ranks compute and copy with.
void take_cpu(const MachineRates& rates, MachineProfile& machine) {
  take(rates.gemm_flops.fp32, machine.gemm_flops.fp32);
  take(rates.gemm_flops.bf16, machine.gemm_flops.bf16);
  machine.peak_flops = machine.gemm_flops;  // without a data sheet
  take(rates.h2d_bps, machine.h2d_bps);
  take(rates.d2h_bps, machine.d2h_bps);
  machine.units = rates.units;
  machine.gemm_by_threads = rates.gemm_by_threads;
  if (rates.comm) {
    machine.comm_latency_s = rates.comm->latency_s;
    machine.comm_bps = rates.comm->bps;
    machine.comm_ranks = rates.comm_ranks;
  }
}

}  // namespace

MachineProfile measured_profile(const MachineRates& rates, MachineProfile base) {
  base.origin = "sluice doctor, " + rates.measured_at + (rates.quick ? " (quick)" : "");
  if (base.gpu && rates.gpu) {
    take_gpu(*rates.gpu, base);
  } else if (!base.gpu) {
    take_cpu(rates, base);
  }
  base.name = rates.host;
  take(rates.memory_copy_bps, base.memory_copy_bps);
  take(rates.memory_rmw_bps, base.memory_rmw_bps);
  take(rates.adam_params_per_s.fp32, base.adam_params_per_s.fp32);
  take(rates.adam_params_per_s.bf16, base.adam_params_per_s.bf16);
  take(rates.disk_read_bps, base.disk_read_bps);
  take(rates.disk_write_bps, base.disk_write_bps);
  take(rates.disk_both_bps, base.disk_both_bps);
  base.cores = std::max(1, rates.threads);
  return base;
}

int ranks_of_node(const MachineProfile& machine, int ranks) {
  return machine.devices_per_node > 0 ? std::min(ranks, machine.devices_per_node) : ranks;
}

int nodes_of(const MachineProfile& machine, int ranks) {
  const int local = ranks_of_node(machine, ranks);
  return (ranks + local - 1) / local;
}

namespace {

// Whether a rank has threads for fewer cores than its share.
bool leaves_cores(const MachineProfile& machine, int ranks) {
  return !machine.gpu && machine.threads_of_rank > 0 &&
         machine.threads_of_rank * ranks_of_node(machine, ranks) < machine.cores;
}

// Rate of products of one rank's threads over the rate of all cores, interpolated linearly between
// the measured numbers of threads.
double share_of_products(const MachineProfile& machine, DType dtype) {
  const auto rate_of = [&](const ThreadRates& rates) {
    const DTypeRates& gemm = rates.gemm_flops;
    return (dtype == DType::kFloat32 ? gemm.fp32 : gemm.bf16).value_or(0);
  };
  const double all = machine.gemm_flops.of(dtype);
  const auto threads = static_cast<double>(machine.threads_of_rank);
  double below = 0;
  double below_rate = 0;
  double above = machine.cores;
  double above_rate = all;
  for (const ThreadRates& rates : machine.gemm_by_threads) {
    const double rate = rate_of(rates);
    if (rate <= 0) continue;
    if (rates.threads <= threads && rates.threads > below) {
      below = rates.threads;
      below_rate = rate;
    }
    if (rates.threads >= threads && rates.threads < above) {
      above = rates.threads;
      above_rate = rate;
    }
  }
  const double slope = above > below ? (above_rate - below_rate) / (above - below) : 0;
  return all > 0 ? (below_rate + slope * (threads - below)) / all : 1;
}

}  // namespace

bool threads_are_unpriced(const MachineProfile& machine, int ranks) {
  const bool measured = !machine.units.empty() || !machine.gemm_by_threads.empty();
  if (machine.gpu || machine.threads_of_rank == 0 || measured) return false;
  return machine.cores <= 1 || leaves_cores(machine, ranks);  // 1: not known
}

double cores_of_rank(const MachineProfile& machine, int ranks, double threads_efficiency) {
  const double share = static_cast<double>(machine.cores) / ranks_of_node(machine, ranks);
  const double cores = leaves_cores(machine, ranks) ? machine.threads_of_rank : share;
  if (cores <= 1) return cores;
  const double lost = machine.cores > 1 ? (cores - 1) / (machine.cores - 1) : 0;
  return cores * (1 - lost * (1 - threads_efficiency));
}

Rates rates_of(const MachineProfile& machine, const RankQuestion& question) {
  const double share = 1.0 / ranks_of_node(machine, question.ranks);
  Rates rates;
  // A GPU belongs to one rank. Ranks of a node share the cores, their memory and the disk.
  const double of_device = machine.gpu ? 1 : share;
  const double of_products =
      leaves_cores(machine, question.ranks)
          ? std::min(of_device, share_of_products(machine, question.multiplied_in))
          : of_device;
  rates.flops =
      machine.gemm_flops.of(question.multiplied_in) * machine.gemm_efficiency * of_products;
  rates.host_memory_bps = machine.memory_rmw_bps * share;
  rates.host_adam = machine.adam_params_per_s.of(question.dtype) * share;
  rates.device_memory_bps = machine.gpu ? machine.device_memory_bps : rates.host_memory_bps;
  const auto adam_bytes = static_cast<double>(rule_of(OptimizerType::kAdamW).moved_bytes());
  rates.device_adam = machine.gpu ? machine.device_memory_bps / adam_bytes : rates.host_adam;
  rates.comm_latency_s = machine.comm_latency_s / std::log2(std::max(2, machine.comm_ranks));
  // A ring through several nodes passes each node once, over all network links of the node.
  const bool crosses = nodes_of(machine, question.ranks) > 1 && machine.network_bps > 0;
  rates.comm_bps = crosses ? std::min(machine.comm_bps, machine.network_bps) : machine.comm_bps;
  rates.h2d_bps = machine.h2d_bps;
  rates.d2h_bps = machine.d2h_bps;
  rates.disk_read_bps = machine.disk_read_bps * share;
  rates.disk_write_bps = machine.disk_write_bps * share;
  const double mean = (machine.disk_read_bps + machine.disk_write_bps) / 2;
  if (machine.disk_both_bps > 0 && mean > 0) {
    rates.disk_duplex = std::min(2.0, machine.disk_both_bps / mean);
  }
  rates.shared_cores = !machine.gpu;
  return rates;
}

double peak_flops_of(const MachineProfile& machine, const RankQuestion& question) {
  const double peak = machine.peak_flops.of(question.multiplied_in);
  return machine.gpu ? peak * question.ranks : peak * nodes_of(machine, question.ranks);
}

}  // namespace sluice
