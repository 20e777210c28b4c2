#include "runtime/cli/setup/rank_setup.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "parallel/comm/gpu_driver.hpp"
#include "parallel/comm/nccl_link.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/model/attention_choice.hpp"
#include "runtime/observe/nvtx.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {
namespace {

void check_for_gpus(const LoadedConfig& config) {
  check_gpu_documents(config);
  check_gpu_attention(config);
  check_gpu_matmul(config, visible_gpu_capability());
}

// The folder without links, so that each path to it gives one name. A swap file's header keeps 127
// bytes of a run's id, so the first part of a long name is left out.
std::string run_name(const std::string& output_dir) {
  constexpr std::size_t kMost = 92;
  std::error_code failed;
  std::filesystem::path folder = std::filesystem::weakly_canonical(output_dir, failed);
  if (failed) folder = std::filesystem::absolute(output_dir, failed).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "runs/a/"
  const std::string name = folder.string();
  if (name.size() <= kMost) return name;
  return "..." + name.substr(name.size() - kMost + 3);
}

std::string utc_now() {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const auto seconds = static_cast<std::time_t>(micros.count() / 1'000'000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", utc.tm_year + 1900,
                utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                static_cast<int>(micros.count() % 1'000'000));
  return text.data();
}

}  // namespace

RunPlace place_of(const RunConfig& run, const RankEnvironment& rank) {
  return {.world = rank.world_size,
          .local_ranks = rank.local_world_size,
          .on_gpu = runs_on_gpu(run),
          .gpu = visible_gpu_figures(),
          .at = Mesh(run.parallel, rank.world_size).coordinates(rank.rank)};
}

MeshNeeds mesh_needs(const RunConfig& run) {
  const ParallelOptions& parallel = run.parallel;
  return {.tied = parallel.pipeline > 1 && run.model.tie_embeddings,
          .wraps = parallel.virtual_stages > 1};
}

WatchdogOptions watchdog_options(const RunConfig& run) {
  const std::chrono::milliseconds timeout = launch_timeout(run);
  return {.timeout = timeout / 2, .waiting_timeout = timeout * 2};
}

MeshComms connect(const LoadedConfig& config, const RankEnvironment& rank,
                  const std::vector<RankFact>& facts) {
  const Mesh mesh(config.run.parallel, rank.world_size);
  if (runs_on_gpu(config.run)) use_gpu(gpu_of(rank));
  if (rank.world_size == 1 && !runs_on_gpu(config.run)) {
    return std::move(make_local_mesh_comms(mesh).front());
  }
  CommOptions options;
  options.rank = rank.rank;
  options.size = rank.world_size;
  options.master_addr = rank.master_addr;
  options.master_port = rank.master_port;
  options.timeout = launch_timeout(config.run);
  // Ranks of one host exchange through its memory; launch.backend: gloo asks for the network.
  const CommKind kind = runs_on_gpu(config.run)                       ? CommKind::kNccl
                        : config.run.launch.backend == Backend::kGloo ? CommKind::kGloo
                                                                      : CommKind::kCpu;
  const bool one_axis =
      mesh.size(MeshAxis::kData) == mesh.world() || mesh.size(MeshAxis::kTensor) == mesh.world();
  std::unique_ptr<Communicator> world = kind == CommKind::kNccl && !one_axis
                                            ? make_nccl_world(options)
                                            : make_process_world(options, kind);
  check_agreement(config, facts, *world);
  return make_mesh_comms(mesh, rank.rank, std::move(world), mesh_needs(config.run),
                         make_process_factory(options, kind));
}

std::string run_id(const RunConfig& run, Communicator& comm) {
  const std::string own = run_name(run.output.dir) + " of " + utc_now();
  return exchange_text(comm, own).front();
}

MatmulRates shared_rates(const RunConfig& run, Communicator& comm) {
  MatmulRates rates;
  if (comm.rank() == 0) rates = measure_matmul(run);
  const std::array<double, 2> mine{rates.native, rates.fp32};
  const std::vector<double> all = comm.all_gather_values(mine);
  return {all[0], all[1]};
}

void check_gpu_documents(const LoadedConfig& config) {
  const RunConfig& run = config.run;
  const std::int64_t head_dim = with_defaults(run.model).head_dim;
  if (run.model.explicit_units || !run.data.packs_rows() || run.train.dtype == DType::kFloat32) {
    return;
  }
  if (fits_flash(head_dim)) return;
  throw ConfigError(config.place("model.head_dim") +
                    ": with model.explicit_units: false, rows of several documents on a GPU need "
                    "a head_dim that is a multiple of 8 up to 256, which " +
                    std::to_string(head_dim) +
                    " is not; leave model.explicit_units out, or choose other heads");
}

void check_gpu_attention(const LoadedConfig& config) {
  const RunConfig& run = config.run;
  if (run.train.attention != AttentionChoice::kCudnn) return;
  ModelOptions model = run.model;
  model.packed_rows = run.data.packs_rows();
  model.deterministic = run.train.deterministic;
  const std::string why = why_no_cudnn(model, run.train.dtype);
  if (why.empty()) return;
  throw ConfigError(config.place("train.attention") +
                    ": train.attention: cudnn: cuDNN's attention " + why +
                    "; leave train.attention out, or change that");
}

void check_gpu_matmul(const LoadedConfig& config, int capability) {
  if (config.run.train.matmul != MatmulChoice::kFp8) return;
  if (capability == 0 || capability >= kFp8Capability) return;
  throw ConfigError(config.place("train.matmul") +
                    ": train.matmul: fp8 needs a GPU of compute capability 8.9 or higher (Ada, "
                    "Hopper, Blackwell), and this one has " +
                    capability_text(capability) + "; set train.matmul: auto");
}

bool is_of_a_run(const std::string& config_file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(config_file, ignored)) return false;
  std::ifstream in(config_file, std::ios::binary);
  return in && is_resolved_yaml(std::string(std::istreambuf_iterator<char>(in), {}));
}

void check_output(const LoadedConfig& config) {
  const std::string file = config.run.output.dir + "/config.yaml";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(file, ignored) && !is_of_a_run(file)) {
    throw ConfigError(config.place("output.dir") + ": output.dir: " + file +
                      " is not of a run, and this run would write its own over it; rename that "
                      "file, or set output.dir to another folder");
  }
  if (!config.run.output.nvtx || nvtx_built()) return;
  throw ConfigError(config.place("output.nvtx") +
                    ": output.nvtx: this program was built without NVTX's headers (nvtx3), which "
                    "the CUDA toolkit has; install them and build again, or leave the key out");
}

void set_gpu_queues(const RunConfig& run) {
  if (run.parallel.pipeline == 1 && run.parallel.tensor == 1) return;
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

int gpu_of(const RankEnvironment& rank) { return visible_gpu_count() == 1 ? 0 : rank.local_rank; }

void check_rank_gpus(const LoadedConfig& config, const RankEnvironment& rank) {
  const int gpus = visible_gpu_count();
  if (has_launcher() || gpus == 0 || !runs_on_gpu(config.run)) {
    return check_gpus(config, rank.local_world_size);
  }
  check_for_gpus(config);
  if (gpus == 1 || rank.local_world_size <= gpus) return;  // NCCL refuses two ranks on one card
  throw ConfigError("rank " + std::to_string(rank.rank) + " sees " + std::to_string(gpus) +
                    " GPUs, and this host has " + std::to_string(rank.local_world_size) +
                    " ranks: a rank needs to see its own card alone, or a card for each rank of "
                    "the host; start the ranks with srun --gpu-bind=none, do not set "
                    "CUDA_VISIBLE_DEVICES, or start fewer ranks on each host");
}

void check_gpus(const LoadedConfig& config, int local_ranks) {
  if (!runs_on_gpu(config.run)) return;
  check_for_gpus(config);
  const int gpus = visible_gpu_count();
  if (local_ranks <= gpus) return;
  const std::string need = local_ranks == 1
                               ? "1 rank needs a GPU"
                               : std::to_string(local_ranks) + " ranks need as many GPUs";
  throw ConfigError(config.place("launch.nproc") + ": launch.nproc: " + need +
                    (gpus == 0 ? ", and none is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES"
                               : ", and " + std::to_string(gpus) + (gpus == 1 ? " is" : " are") +
                                     " visible; lower launch.nproc") +
                    ", or set launch.backend to gloo for a run on the CPU");
}

}  // namespace sluice
