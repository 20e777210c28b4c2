// `sluice doctor`: ranks of this program measure collectives first, while this process has one
// thread; this process measures the rest.
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/cpu/parallel.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/cli/bench_support.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/doctor/attention_work.hpp"
#include "runtime/doctor/cuda_gpu.hpp"
#include "runtime/doctor/doctor.hpp"
#include "runtime/doctor/unit_timing.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/run/machine.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A linear layer of a small model; larger ones are measured on a piece of this size anyway.
constexpr LinearShape kLayer{.rows = 1024, .in = 512, .out = 1024};

std::string folder_to_measure(const std::string& option) {
  if (option.empty()) return fs::temp_directory_path().string();
  if (!fs::is_directory(option)) {
    throw ConfigError("--nvme-path: " + option +
                      " is not a folder; name one on the disk to measure");
  }
  return option;
}

std::vector<std::string> comm_arguments(const std::string& program, int ranks,
                                        const CommPlan& plan) {
  std::string sizes;
  for (const std::int64_t bytes : plan.bytes) {
    sizes += (sizes.empty() ? "" : ",") + std::to_string(bytes);
  }
  return {program,        "bench",
          "comm",         "--json",
          "--ranks",      std::to_string(ranks),
          "--bytes",      sizes,
          "--transports", "gloo,host,mapped",
          "--rounds",     std::to_string(plan.rounds)};
}

// Hides the store's information at each opening; its warnings stay.
void keep_warnings() {
  set_log_sink([](LogLevel level, std::string_view line) {
    if (level < LogLevel::kWarning) return;
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  });
}

// Progress goes to standard error; standard output is for the report.
void show_progress(const std::string& what, double about_s) {
  std::fprintf(stderr, "doctor: measuring %s, about %.2g s\n", what.c_str(), about_s);
}

// False if the user interrupted it.
bool measure_comm(const std::string& program, DoctorInput& input) {
  show_progress("collectives of " + std::to_string(input.comm_ranks) + " ranks",
                input.quick ? 1 : 3);
  try {
    const CommPlan plan = comm_plan(input.quick);
    const CommRun run =
        launch_bench_comm(input.comm_ranks, comm_arguments(program, input.comm_ranks, plan));
    if (run.exit_code == kInterruptedExitCode) return false;
    if (run.exit_code == 0) {
      input.comm = read_comm_samples(run.result);
    } else {
      input.comm_missing = "the ranks ended with exit code " + std::to_string(run.exit_code) +
                           "; `sluice bench comm` shows why";
    }
  } catch (const Error& error) {
    input.comm_missing = error_chain(error);
  }
  return true;
}

GemmProbe gemm_probe() {
  GemmProbe probe;
  probe.flops = [](DType dtype, int threads) {
    set_libtorch_threads(threads);
    return measure_gemm_rate(dtype, at::Device(c10::DeviceType::CPU));
  };
  probe.bf16 = [] {
    const MatmulRates rates = measure_matmul_rates(DType::kBFloat16, kLayer);
    return NarrowMatmul{rates.native, rates.fp32};
  };
  return probe;
}

// Small models first: other work than products dominates them.
UnitProbe unit_probe(int cores, bool quick) {
  return [=](const NarrowMatmul& bf16) {
    UnitTimingOptions options;
    options.use_threads = [](int threads) {
      set_libtorch_threads(threads);
      set_compute_threads(threads);
    };
    options.use_threads(1);
    options.cores = cores;
    if (quick) options.hidden = {128, 256, 512};
    if (bf16.native < bf16.converted) options.narrow_matmul = MatmulType::kFp32;
    return measure_unit_rates(options);
  };
}

}  // namespace

int run_doctor(const DoctorCommand& command) {
  refuse_inside_a_job("doctor");
  const std::string out = command.out.empty() ? machine_rates_path() : command.out;
  const auto begin = std::chrono::steady_clock::now();
  DoctorInput input;
  input.quick = command.quick;
  input.effort = doctor_effort(command.quick);
  input.nvme_path = folder_to_measure(command.nvme_path);
  input.threads = threads_per_rank(1);
  input.gemm = gemm_probe();
  input.units = unit_probe(input.threads, command.quick);
  input.gpu_attention = make_attention_work;
  std::fputs(command.quick ? "doctor: about 10 s; Ctrl-C ends it with what is measured by then\n"
                           : "doctor: 15 to 40 s (--quick: 10 s); Ctrl-C ends it with what is "
                             "measured by then\n",
             stderr);
  if (!measure_comm(command.argv.at(0), input)) return kInterruptedExitCode;
  install_stop_handlers();
  input.progress = show_progress;
  input.interrupted = stop_requested;
  keep_warnings();
  input.gpus = visible_gpu_count();
  if (const std::optional<GpuFault>& fault = gpu_fault()) {
    input.gpu_fault = fault->reason;
    input.gpu_remedy = fault->remedy;
  }
  input.hidden_gpus = hidden_gpus();
  input.gpu_effort = gpu_effort(command.quick);
  input.open_gpu = [] {
    const auto open = reinterpret_cast<OpenCudaGpu*>(cuda_module_symbol(kOpenCudaGpu));
    return std::unique_ptr<GpuDevice>(open(0));
  };
  DoctorReport report = examine(input);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  print_beside(out, command.json ? to_json(report) : describe(report));
  const bool written = write_rates(report, out);
  if (!command.json && !is_standard_output(out)) {
    std::printf(
        "rates file: %s%s\n", out.c_str(),
        written ? "" : ", left as it was: it holds more than this interrupted run measured");
  }
  return report.interrupted ? kInterruptedExitCode : 0;
}

}  // namespace sluice
