// `sluice doctor`: measures this machine once, writes the rates down, and says what is slow or
// switched off, why that matters and what to do.
//
// Knows neither libtorch nor how ranks start: the caller provides matrix products and the ranks'
// measurements.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/doctor/comm_rates.hpp"
#include "runtime/doctor/findings.hpp"
#include "runtime/doctor/gpu_rates.hpp"
#include "runtime/doctor/machine_facts.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {

// FLOP/s of one thread's 16-bit layers, as train.matmul: auto compares them.
struct NarrowMatmul {
  double native = 0;     // multiplied in 16 bits
  double converted = 0;  // converted to fp32
};

// Measures a transformer's units on one core, with all cores at work (unit_timing.hpp). Its
// argument is the type of 16-bit products.
using UnitProbe = std::function<std::vector<UnitRates>(const NarrowMatmul& bf16)>;

struct GemmProbe {
  std::function<double(DType dtype, int threads)> flops;  // a square product of 1024
  std::function<NarrowMatmul()> bf16;                     // about 0.3 s
};

// Extent of the measurements.
struct DoctorEffort {
  std::int64_t least_bytes = 0, most_bytes = 0;  // of an array, around four times the last cache
  int rounds = 1;
  double disk_s = 1;
};
[[nodiscard]] DoctorEffort doctor_effort(bool quick);

struct DoctorInput {
  bool quick = false;
  DoctorEffort effort = doctor_effort(false);
  std::string nvme_path;  // a folder
  int threads = 1;        // cores this process may use
  int gpus = 0;
  std::string gpu_fault, gpu_remedy, hidden_gpus;        // of the facts
  std::function<std::unique_ptr<GpuDevice>()> open_gpu;  // the first of them; empty: there is none
  GpuEffort gpu_effort = sluice::gpu_effort(false);
  AttentionProbe gpu_attention;
  std::string pci_devices = "/sys/bus/pci/devices";
  GemmProbe gemm;
  UnitProbe units;  // empty: a plan prices by gemm
  int comm_ranks = 2;
  std::vector<CommSample> comm;  // of the ranks; empty with comm_missing
  std::string comm_missing;      // why nobody measured
  // Called before each measurement with its approximate time. May be empty.
  std::function<void(const std::string& what, double about_s)> progress;
  // Asked before each measurement; true skips the remaining ones. May be empty.
  std::function<bool()> interrupted;
};

// Sizes and repetitions for the ranks that measure collectives beforehand.
struct CommPlan {
  std::vector<std::int64_t> bytes;
  int rounds = 1;
};
[[nodiscard]] CommPlan comm_plan(bool quick);

struct DoctorReport {
  MachineFacts facts;
  DiskFacts disk;
  MachineRates rates;
  NarrowMatmul bf16;
  std::vector<Finding> findings;
  double seconds = 0;  // that it took
  bool interrupted = false;
};

// Duration follows from input.effort. A failed measurement leaves its reason in rates.not_measured;
// only programming errors throw. Sets the compute threads.
[[nodiscard]] DoctorReport examine(const DoctorInput& input);

// Writes the rates file. If an interrupted examination measured less than the existing file holds,
// leaves the file unchanged and returns false. Throws IoError.
bool write_rates(const DoctorReport& report, const std::string& path);

[[nodiscard]] std::string describe(const DoctorReport& report);
[[nodiscard]] std::string to_json(const DoctorReport& report);

}  // namespace sluice
