// The report as tables and sentences.
#include <cstdio>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "kernels/cpu/thread_waiting.hpp"
#include "runtime/bench/table.hpp"
#include "runtime/doctor/doctor.hpp"

namespace sluice {
namespace {

using Row = std::vector<std::string>;

constexpr char kNone[] = "-";

std::string decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

template <class Format>
std::string or_none(const std::optional<double>& value, Format&& format) {
  return value ? format(*value) : kNone;
}

std::string flops(const std::optional<double>& value) { return or_none(value, format_flop_rate); }
std::string bytes(const std::optional<double>& value) { return or_none(value, format_byte_rate); }
std::string params(const std::optional<double>& value) {
  return or_none(value, [](double rate) { return format_count(rate) + "/s"; });
}
std::string size(const std::optional<std::int64_t>& value) {
  return value ? format_bytes(*value) : "unknown";
}
std::string word(const std::string& text) { return text.empty() ? "unknown" : text; }

const char* name_of(Isa isa) {
  return isa == Isa::kAvx512 ? "AVX-512" : isa == Isa::kAvx2 ? "AVX2" : "scalar";
}

std::string processor(const MachineFacts& facts) {
  std::string text = word(facts.cpu_model) + ", " + counted(facts.cores, "core") + " (" +
                     counted(facts.hardware_threads, "hardware thread") + "), " +
                     name_of(facts.isa);
  text += !facts.amx_reported ? ", no AMX" : facts.amx_usable ? ", AMX" : ", AMX not granted";
  if (facts.clock_hz) text += ", " + decimal(*facts.clock_hz / 1e9) + " GHz";
  text += facts.cpu_quota ? ", quota " + decimal(*facts.cpu_quota) + " cores" : ", no quota";
  if (facts.load) text += ", load " + decimal(*facts.load);
  return text;
}

std::string waiting(const MachineFacts& facts) {
  std::string text = "waiting threads of OpenMP ";
  if (facts.spin_count.empty() && facts.wait_policy.empty()) {
    return text + "spin for milliseconds, libgomp's default";
  }
  if (facts.wait_policy.empty() && facts.spin_count == kSpinCount) {
    return text + "spin " + kSpinCount + " rounds, then sleep: this program's choice";
  }
  text += "do as the environment says:";
  if (!facts.spin_count.empty()) text += " " + (kSpinVariable + ("=" + facts.spin_count));
  if (!facts.wait_policy.empty()) text += " " + (kWaitPolicyVariable + ("=" + facts.wait_policy));
  return text;
}

std::string memory(const MachineFacts& facts) {
  std::string text = size(facts.memory_bytes) + ", " + size(facts.available_bytes) +
                     " available; swap " + size(facts.swap_bytes) + "; last cache " +
                     (facts.cache_bytes > 0 ? format_bytes(facts.cache_bytes) : "unknown") +
                     "; /dev/shm " + size(facts.shm_bytes) + "; memlock " +
                     (facts.memlock_unlimited ? "unlimited" : size(facts.memlock_bytes)) +
                     (facts.memlock_exempt ? " (CAP_IPC_LOCK: not applied)" : "") +
                     "; huge pages " + word(facts.huge_pages) + ", shared " +
                     word(facts.shared_huge_pages);
  for (const NodeFact& node : facts.nodes) {
    text += "; node " + std::to_string(node.os_index) + ": " + std::to_string(node.cores) +
            " cores" + (node.memory_bytes > 0 ? ", " + format_bytes(node.memory_bytes) : "");
  }
  return text;
}

std::string disk_line(const DiskFacts& disk) {
  std::string text = disk.path + ": " + word(disk.file_system) + " on " + word(disk.device) + ", " +
                     size(disk.free_bytes) + " free, ";
  text += disk.direct ? (*disk.direct ? "O_DIRECT" : "no O_DIRECT") : "not writable";
  return text + (disk.uring ? ", io_uring" : ", no io_uring");
}

std::string gpu_line(const GpuFacts& gpu) {
  std::string text = word(gpu.name) + ", compute capability " + word(gpu.compute) + ", " +
                     std::to_string(gpu.multiprocessors) + " multiprocessors, " +
                     counted(gpu.copy_engines, "copy engine") + "; " +
                     format_bytes(gpu.memory_bytes) + ", " + format_bytes(gpu.free_bytes) +
                     " free; CUDA " + gpu.runtime + ", the driver's " + gpu.driver + "; " +
                     word(gpu.bus_id);
  const std::string link = name_of_link(gpu.link.gt_per_s, gpu.link.lanes);
  const std::string most = name_of_link(gpu.link.most_gt_per_s, gpu.link.most_lanes);
  if (!link.empty()) text += ", " + link;
  if (!most.empty() && most != link) text += " (can be " + most + ")";
  if (gpu.link.numa_node) text += ", memory node " + std::to_string(*gpu.link.numa_node);
  return text;
}

// "label: text", continued below the text.
std::string entry(const std::string& label, const std::string& text) {
  return wrap(label + ": " + text);
}

std::string products(const DoctorReport& report) {
  std::vector<Row> rows{
      {report.facts.gpus > 0 ? "matrix products of the CPU" : "matrix products", "fp32", "bf16"}};
  for (const ThreadRates& row : report.rates.gemm_by_threads) {
    rows.push_back(
        {counted(row.threads, "thread"), flops(row.gemm_flops.fp32), flops(row.gemm_flops.bf16)});
  }
  if (rows.size() == 1) return "";
  std::string text = format_table(rows);
  if (report.bf16.native > 0 && report.bf16.converted > 0) {
    text += wrap("bf16: one thread multiplies a layer at " + format_flop_rate(report.bf16.native) +
                 " in bf16, at " + format_flop_rate(report.bf16.converted) +
                 " converted to fp32; train.matmul: auto takes the faster");
  }
  return text + "\n";
}

void add_attention(std::vector<Row>& rows, const std::string& name,
                   const std::optional<AttentionRates>& rates) {
  const auto add = [&](const char* size, double AttentionRates::*rate) {
    rows.push_back({name + size, flops(rates ? std::optional(*rates.*rate) : std::nullopt)});
  };
  add(", heads of 64", &AttentionRates::head_64);
  add(", heads of 128", &AttentionRates::head_128);
  add(", heads of 128, 4096 tokens", &AttentionRates::head_128_long);
}

// All of it the GPU's; the tables above it are the host's.
std::string gpu_table(const DoctorReport& report) {
  const auto& gpu = report.rates.gpu;
  if (!gpu) return "";
  const bool tf32 = report.facts.gpu && report.facts.gpu->tf32;
  std::vector<Row> rows{
      {"the GPU's own", "rate"},
      {std::string("products, fp32") + (tf32 ? " (as TF32)" : ""), flops(gpu->gemm_flops.fp32)},
      {"products, bf16", flops(gpu->gemm_flops.bf16)},
      {"products, fp16", flops(gpu->gemm_fp16_flops)},
      {"products, fp8", flops(gpu->gemm_fp8_flops)}};
  add_attention(rows, "flash attention", gpu->attention_flops.flash);
  add_attention(rows, "cuDNN's attention", gpu->attention_flops.cudnn);
  rows.insert(rows.end(), {{"copy in its memory (bytes touched)", bytes(gpu->device_memory_bps)},
                           {"triad in its memory (bytes touched)", bytes(gpu->device_triad_bps)},
                           {"host to GPU, registered memory", bytes(gpu->h2d_bps)},
                           {"GPU to host", bytes(gpu->d2h_bps)},
                           {"both at once, the sum", bytes(gpu->h2d_d2h_bps)}});
  return format_table(rows) + "\n";
}

std::string rates_table(const MachineRates& r, bool with_gpu) {
  std::vector<Row> rows{{"memory, " + counted(r.threads, "thread"), "rate"},
                        {"copy (bytes copied)", bytes(r.memory_copy_bps)},
                        {"triad (bytes touched)", bytes(r.memory_triad_bps)},
                        {"read-modify-write (bytes touched)", bytes(r.memory_rmw_bps)},
                        {"AdamW fp32, parameters", params(r.adam_params_per_s.fp32)},
                        {"AdamW bf16, parameters", params(r.adam_params_per_s.bf16)}};
  std::string text = format_table(rows) + "\n";
  text +=
      format_table(
          {{with_gpu ? "a CPU rank's, host and device in RAM" : "between host and device", "rate"},
           {"to the device", bytes(r.h2d_bps)},
           {"to the host", bytes(r.d2h_bps)},
           {"both at once, the sum", bytes(r.h2d_d2h_bps)}}) +
      "\n";
  text += format_table({{"disk", "rate"},
                        {"read", bytes(r.disk_read_bps)},
                        {"write", bytes(r.disk_write_bps)},
                        {"both at once, the sum", bytes(r.disk_both_bps)}}) +
          "\n";
  if (r.comm_by_transport.empty()) return text;
  std::vector<Row> links{
      {"collectives, " + std::to_string(r.comm_ranks) + " ranks", "latency", "rate"}};
  for (const auto& [name, link] : r.comm_by_transport) {
    links.push_back({name, format_seconds(link.latency_s), format_byte_rate(link.bps)});
  }
  return text + format_table(links) + "\n";
}

// Fields with one reason share a line.
std::string not_measured(const MachineRates& rates) {
  std::map<std::string, std::string> fields_of;
  for (const auto& [field, reason] : rates.not_measured) {
    std::string& fields = fields_of[reason];
    fields += (fields.empty() ? "" : ", ") + field;
  }
  std::string text;
  for (const auto& [reason, fields] : fields_of) text += entry("not measured: " + fields, reason);
  return text.empty() ? text : text + "\n";
}

}  // namespace

std::string describe(const DoctorReport& report) {
  std::string text = entry("processor", processor(report.facts)) +
                     entry("threads", waiting(report.facts)) +
                     entry("memory", memory(report.facts)) + entry("disk", disk_line(report.disk));
  if (report.facts.gpu) {
    text += entry("GPU " + std::to_string(report.facts.gpu->index), gpu_line(*report.facts.gpu));
  }
  text += "\n" + products(report) + rates_table(report.rates, report.facts.gpus > 0) +
          gpu_table(report) + not_measured(report.rates);
  if (report.findings.empty()) text += "Nothing is off or slow that this program can see.\n";
  for (const Finding& finding : report.findings) {
    text += wrap(std::string(name_of(finding.kind)) + ": " + finding.what + ". " +
                 "Why it matters: " + finding.why + "." +
                 (finding.do_.empty() ? "" : " Do: " + finding.do_ + "."));
  }
  char seconds[80];
  std::snprintf(seconds, sizeof seconds, "measured in %.1f s%s\n", report.seconds,
                report.rates.quick ? " (--quick: fewer and smaller measurements)" : "");
  if (report.interrupted)
    text += "\nInterrupted: the rates above are what was measured until then.\n";
  return text + "\n" + seconds;
}

}  // namespace sluice
