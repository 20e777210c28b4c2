// The keys of an accelerate file outside its sections: machines, processes, devices.
#include <array>

#include "base/format.hpp"
#include "configs/migrate/launcher/accelerate_file.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

// A key that Sluice does not need, or that stops unless it has one of the idle words.
struct JobKey {
  std::string_view name;
  KeyClass kind;
  std::string_view note;
};

constexpr std::string_view kNoTpus = "Sluice has no TPUs";

constexpr std::array<JobKey, 19> kJobKeys{{
    {"compute_environment", KeyClass::kRefused, "Sluice starts ranks on hosts, not on SageMaker"},
    {"debug", KeyClass::kNotNeeded, "Sluice always names the rank and the collective that failed"},
    {"downcast_bf16", KeyClass::kRefused, kNoTpus},
    {"dynamo_backend", KeyClass::kNotNeeded, "a compiler of PyTorch modules, for the same values"},
    {"dynamo_config", KeyClass::kNotNeeded, "a compiler of PyTorch modules, for the same values"},
    {"enable_cpu_affinity", KeyClass::kNotNeeded, "each rank has its share of the cores"},
    {"ipex_config", KeyClass::kNotNeeded, "accelerate reads it for CPUs of Intel alone"},
    {"machine_rank", KeyClass::kNotNeeded, "Sluice is started once, on one machine"},
    {"main_training_function", KeyClass::kNotNeeded, "a function of a Python script"},
    {"mpirun_config", KeyClass::kNotNeeded, "Sluice starts the ranks without mpirun"},
    {"rdzv_backend", KeyClass::kNotNeeded, "Sluice has one rendezvous, at the first host"},
    {"same_network", KeyClass::kNotNeeded, "the hosts reach each other by name"},
    {"tpu_env", KeyClass::kRefused, kNoTpus},
    {"tpu_name", KeyClass::kRefused, kNoTpus},
    {"tpu_use_cluster", KeyClass::kRefused, kNoTpus},
    {"tpu_use_sudo", KeyClass::kRefused, kNoTpus},
    {"tpu_vm", KeyClass::kRefused, kNoTpus},
    {"tpu_zone", KeyClass::kRefused, kNoTpus},
    {"use_xpu", KeyClass::kRefused, "Sluice runs on GPUs of NVIDIA and on CPUs"},
}};

constexpr std::array<std::string_view, 5> kSections{
    "deepspeed_config", "fsdp_config", "megatron_lm_config", "parallelism_config", "fp8_config"};

constexpr int kMostRanks = 1 << 20;

bool is_idle(const HjsonNode& value) {
  switch (value.kind) {
    case Kind::kNull:
      return true;
    case Kind::kBool:
      return !value.boolean;
    case Kind::kList:
      return value.items.empty();
    case Kind::kObject:
      return value.entries.empty();
    case Kind::kText:
      return value.text.empty() || value.text == "LOCAL_MACHINE";
    case Kind::kNumber:
      return false;
  }
  return false;
}

class Job {
 public:
  Job(const AccelerateFile& file, MigrationDraft& draft) : file_(file), draft_(draft) {}

  AccelerateJob map() {
    job_.world = count("num_processes", 0);
    job_.machines = count("num_machines", 1);
    for (const HjsonEntry& entry : file_.root.entries) map_key(entry);
    map_ranks();
    return job_;
  }

 private:
  // A whole number, or a text of one.
  [[nodiscard]] int count(std::string_view name, int fallback) const {
    const HjsonNode* value = file_.root.find(name);
    if (value == nullptr || !value->integer || *value->integer < 1) return fallback;
    return *value->integer > kMostRanks ? kMostRanks : static_cast<int>(*value->integer);
  }
  void add(const HjsonEntry& entry, KeyClass kind, std::string_view note, bool stops = false) {
    draft_.add({.path = entry.key,
                .place = {entry.line, entry.column},
                .value = to_json(entry.value),
                .kind = kind,
                .stops = stops,
                .to = {},
                .note = std::string(note)});
  }
  void map_key(const HjsonEntry& entry) {
    if (entry.key == "mixed_precision" || entry.key == "fp16") return;
    for (const std::string_view section : kSections) {
      if (entry.key == section) return map_section(entry);
    }
    for (const JobKey& key : kJobKeys) {
      if (entry.key != key.name) continue;
      return add(entry, key.kind, key.note,
                 key.kind == KeyClass::kRefused && !is_idle(entry.value));
    }
    if (entry.key == "command_file" || entry.key == "commands") {
      return add(entry, KeyClass::kRefused, kNoTpus, !is_idle(entry.value));
    }
    map_machine(entry);
  }
  // The section of distributed_type is the caller's.
  void map_section(const HjsonEntry& entry) {
    const std::string_view type = file_.distributed_type;
    if (entry.key == "deepspeed_config" && type == "DEEPSPEED") return;
    if (entry.key == "parallelism_config" || entry.key == "fp8_config") {
      const bool is_fp8 = entry.key == "fp8_config";
      if (is_fp8 && file_.mixed_precision != "fp8") {
        return add(entry, KeyClass::kIgnored, "accelerate reads it with mixed_precision fp8 only");
      }
      if (!is_fp8 && type == "FSDP") return;
      return add(
          entry, KeyClass::kRefused,
          is_fp8 ? "set bf16 here, and train.matmul: fp8 in Sluice's file" : "for FSDP2 only",
          !is_idle(entry.value));
    }
    if (entry.key == "fsdp_config" && type == "FSDP") return;
    add(entry, KeyClass::kIgnored,
        format_text("accelerate does not read it with distributed_type {}", type));
  }
  void map_machine(const HjsonEntry& entry) {
    if (entry.key == "distributed_type") return map_type(entry);
    if (entry.key == "gpu_ids") return map_devices(entry);
    if (entry.key == "use_cpu") return map_cpu(entry);
    const bool unset = entry.value.kind == Kind::kNull;
    if (entry.key == "main_process_ip" || entry.key == "main_process_port") {
      const bool is_port = entry.key == "main_process_port";
      if (unset || job_.machines == 1 || (is_port && entry.value.integer == 0)) {
        return add(entry, KeyClass::kNotNeeded, "Sluice chooses the rendezvous of one host");
      }
      add(entry, KeyClass::kMapped, "a variable of the command that starts the run");
      job_.environment.push_back((is_port ? "MASTER_PORT=" : "MASTER_ADDR=") + entry.value.text);
      return;
    }
    add(entry, KeyClass::kMapped,
        entry.key == "num_processes" ? "ranks of all machines" : "hosts of the run");
  }
  void map_type(const HjsonEntry& entry) {
    const std::string_view type = file_.distributed_type;
    if (type == "DEEPSPEED" || type == "FSDP") {
      return add(entry, KeyClass::kMapped, "the section of that name has the keys");
    }
    if (type == "MULTI_GPU" || type == "MULTI_CPU" || type == "NO") {
      add(entry, KeyClass::kMapped, "");
      draft_.set(entry.key, "zero.stage", "0",
                 format_text("distributed_type {}: each rank has all states", type));
      return;
    }
    add(entry, KeyClass::kRefused, "Sluice has no such ranks", true);
  }
  void map_devices(const HjsonEntry& entry) {
    if (entry.value.text == "all" || entry.value.kind == Kind::kNull) {
      return add(entry, KeyClass::kNotNeeded, "all GPUs are used by default");
    }
    add(entry, KeyClass::kMapped, "a variable of the command that starts the run");
    job_.environment.push_back("CUDA_VISIBLE_DEVICES=" + entry.value.text);
  }
  void map_cpu(const HjsonEntry& entry) {
    if (!entry.value.boolean) {
      return add(entry, KeyClass::kNotNeeded, "ranks run on GPUs where the host has some");
    }
    add(entry, KeyClass::kMapped, "a variable of the command hides the GPUs");
    job_.environment.push_back("CUDA_VISIBLE_DEVICES=");
  }
  void map_ranks() {
    const HjsonNode* processes = file_.root.find("num_processes");
    if (processes == nullptr) return;
    if (processes->kind == Kind::kNumber && processes->number > kMostRanks) {
      return draft_.error("num_processes",
                          format_text("more than {} ranks; give fewer", kMostRanks));
    }
    const bool any = processes->kind == Kind::kNumber && processes->integer == -1;
    if (job_.world == 0 && !any) {
      return draft_.error("num_processes", "a count of ranks is at least 1; give one, or -1");
    }
    if (job_.world == 0) return;
    if (job_.world % job_.machines != 0) {
      return draft_.error("num_processes",
                          format_text("{} ranks do not divide into {} machines; give a multiple",
                                      job_.world, job_.machines));
    }
    const int ranks = job_.world / job_.machines;
    draft_.set("num_processes", "launch.nproc", std::to_string(ranks),
               format_text("num_processes {} on {} machine{}", job_.world, job_.machines,
                           job_.machines == 1 ? "" : "s"));
  }

  const AccelerateFile& file_;
  MigrationDraft& draft_;
  AccelerateJob job_;
};

}  // namespace

AccelerateJob map_accelerate_job(const AccelerateFile& file, MigrationDraft& draft) {
  return Job(file, draft).map();
}

std::string start_on_hosts(const AccelerateJob& job) {
  return "the job has " + std::to_string(job.machines) +
         " machines, and the result starts one: write their names into a file, a line each (host "
         "slots=" +
         (job.world > 0 ? std::to_string(job.world / job.machines) : "RANKS") +
         "), and give it with --set launch.hostfile=FILE; or start with srun or torchrun "
         "(docs/launch.md)" +
         (job.world > 0 ? "; `sluice plan` needs --world " + std::to_string(job.world) : "");
}

}  // namespace sluice::migrate
