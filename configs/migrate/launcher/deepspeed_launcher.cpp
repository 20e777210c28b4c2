// The arguments of the command `deepspeed`.
#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "configs/migrate/launcher/host_pool.hpp"
#include "configs/migrate/launcher/launch_parts.hpp"
#include "configs/migrate/launcher/shell_command.hpp"

namespace sluice::migrate {
namespace {

using enum KeyClass;
using enum ArgumentType;

constexpr std::string_view kLog = "Sluice always prints one progress line";
constexpr std::string_view kVariable = "a variable of the command that starts the run";

constexpr std::array<ArgumentRule, 28> kDeepspeedRules{{
    {"--hostfile", "-H", kText, kMapped, "the format is the same", ""},
    {"--include", "-i", kText, kMapped, "the hosts and GPUs that are left", ""},
    {"--exclude", "-e", kText, kMapped, "the hosts and GPUs that are left", ""},
    {"--num_nodes", "", kInt, kMapped, "the first hosts of the hostfile", ""},
    {"--min_elastic_nodes", "", kInt, kIgnored, "read with --elastic_training only", ""},
    {"--max_elastic_nodes", "", kInt, kIgnored, "read with --elastic_training only", ""},
    {"--num_gpus", "--num_accelerators", kInt, kMapped, "ranks of each host", ""},
    {"--master_port", "", kInt, kMapped, kVariable, ""},
    {"--master_addr", "", kText, kMapped, kVariable, ""},
    {"--node_rank", "", kInt, kIgnored, "read with --no_ssh only", ""},
    {"--launcher", "", kText, kNotNeeded, "Sluice reaches the hosts by ssh", ""},
    {"--launcher_args", "", kText, kNotNeeded, "pdsh's arguments; Sluice uses ssh", ""},
    {"--module", "", kFlag, kNotNeeded, kPython, ""},
    {"--no_python", "", kFlag, kNotNeeded, kPython, ""},
    {"--no_local_rank", "", kFlag, kNotNeeded, "Sluice passes ranks by the environment", ""},
    {"--no_ssh", "", kFlag, kMapped, "torchrun starts the ranks of each host", ""},
    {"--no_ssh_check", "", kFlag, kNotNeeded, "Sluice names the host that it cannot reach", ""},
    {"--force_multi", "", kFlag, kMapped, "a hostfile of one host is kept", ""},
    {"--save_pid", "", kFlag, kNotNeeded, "the lock of output.dir names the process", ""},
    {"--enable_each_rank_log", "", kText, kNotNeeded, "each rank writes rank-N.log in output.dir",
     ""},
    {"--autotuning", "", kText, kChanged,
     "DeepSpeed runs trial jobs; 'sluice plan --suggest' computes the fastest configuration",
     "tune run"},
    {"--elastic_training", "", kFlag, kRefused, "the number of ranks is fixed during a run", ""},
    {"--bind_cores_to_rank", "", kFlag, kNotNeeded, "each rank has its share of the cores", ""},
    {"--bind_core_list", "", kText, kMapped, "taskset limits the cores of the run", ""},
    {"--ssh_port", "", kInt, kMapped, kVariable, ""},
    {"--venv_script", "", kText, kNotNeeded, kPython, ""},
    {"--log_level", "", kText, kNotNeeded, kLog, "debug info warning error critical"},
    {"--quiet", "-q", kFlag, kNotNeeded, kLog, ""},
}};

// CUDA_VISIBLE_DEVICES before the command. DeepSpeed reads the variable on one host without
// filters, and drops the variable beside filters.
int visible_devices(LaunchLine& result, bool filtered) {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES=";
  auto& all = result.environment;
  const auto found = std::find_if(all.begin(), all.end(), [&](const std::string& variable) {
    return variable.starts_with(kName);
  });
  if (found == all.end() || found->size() == kName.size()) return 0;
  const int count = static_cast<int>(std::count(found->begin(), found->end(), ',')) + 1;
  if (filtered) all.erase(found);
  return filtered ? 0 : count;
}

// The hosts and how ranks are started on them.
class DeepSpeedLauncher {
 public:
  DeepSpeedLauncher(LaunchPart& part, const ArgumentReading& given) : part_(part), given_(given) {}

  void map() {
    check();
    if (!read_hosts()) return;
    filter_hosts();
    if (!pool_.error.empty()) return;
    if (over_hosts()) {
      map_hosts();
    } else {
      map_one_host();
    }
    map_cores();
    part_.finish();
    if (given_.has("--autotuning")) {
      part_.result().commands.push_back("./sluice plan " + part_.config() + " --suggest");
    }
    start();
  }

 private:
  [[nodiscard]] bool over_hosts() const {
    return !pool_.hosts.empty() && (pool_.hosts.size() > 1 || given_.has("--force_multi")) &&
           has_hostfile_;
  }
  void check() {
    const bool filters = given_.has("--include") || given_.has("--exclude");
    if (given_.has("--include") && given_.has("--exclude")) {
      part_.error("--exclude", "DeepSpeed refuses --include and --exclude together; keep one");
    }
    const bool counts = given_.count("--num_nodes", -1) >= 0 || given_.count("--num_gpus", -1) >= 0;
    if (filters && counts) {
      const char* const name = given_.has("--include") ? "--include" : "--exclude";
      part_.error(name, "DeepSpeed refuses it beside --num_nodes and --num_gpus; keep one kind");
    }
    for (const char* const name : {"--num_nodes", "--num_gpus"}) {
      const std::int64_t count = given_.count(name, -1);
      if (count != -1 && (count < 1 || count > 1 << 20)) {
        part_.error(name, format_text("{} is out of range; give 1 or more", count));
      }
    }
    const std::int64_t port = given_.count("--master_port", 29500);
    if (port < 0 || port > 65535) {
      part_.error("--master_port", format_text("{} is no port; give 1 to 65535", port));
    }
    if (given_.has("--elastic_training") && !given_.has("--master_addr")) {
      part_.error("--elastic_training", "DeepSpeed needs --master_addr with it; take both away");
    }
  }
  // False if the hostfile is wrong.
  bool read_hosts() {
    hostfile_ = given_.text("--hostfile", "/job/hostfile");
    const auto text = part_.file(hostfile_);
    if (!text) {
      read_no_hostfile();
      return true;
    }
    pool_ = read_hostfile(*text, hostfile_);
    has_hostfile_ = true;
    if (!pool_.error.empty()) part_.error("--hostfile", pool_.error);
    return pool_.error.empty();
  }
  // DeepSpeed starts the ranks on this host alone where the file is missing.
  void read_no_hostfile() {
    const std::int64_t nodes = given_.count("--num_nodes", -1);
    if (given_.has("--hostfile")) {
      part_.decide("--hostfile", kMapped,
                   "the file cannot be read here; where it is missing DeepSpeed uses one host");
      part_.set("--hostfile", "launch.hostfile", yaml_text(hostfile_), "--hostfile " + hostfile_);
      unread_hostfile_ = true;
    } else if (nodes > 1) {
      part_.error("--num_nodes",
                  format_text("{} hosts need a hostfile; add --hostfile FILE", nodes));
    }
  }
  void filter_hosts() {
    const HostPool all = pool_;
    if (has_hostfile_) {
      if (given_.has("--include")) pool_ = include_hosts(all, given_.text("--include", ""));
      if (given_.has("--exclude")) pool_ = exclude_hosts(all, given_.text("--exclude", ""));
    } else if (given_.has("--include")) {
      pool_ = read_filter(given_.text("--include", ""));
    } else if (given_.has("--exclude")) {
      part_.draft().missing("--exclude",
                            "--launch with --include and the GPUs that stay, such as "
                            "--include localhost:0,1");
    }
    if (!pool_.error.empty()) {
      return part_.error(given_.has("--include") ? "--include" : "--exclude", pool_.error);
    }
    const std::int64_t nodes = given_.count("--num_nodes", -1);
    if (nodes > 0 && static_cast<std::size_t>(nodes) < pool_.hosts.size()) {
      pool_.hosts.resize(static_cast<std::size_t>(nodes));
    }
    const std::int64_t gpus = given_.count("--num_gpus", -1);
    if (gpus > 0 && gpus <= 1024) {
      for (Host& host : pool_.hosts) {
        host.slots.clear();
        for (int slot = 0; slot < gpus; ++slot) host.slots.push_back(slot);
      }
    }
    is_filtered_ = pool_.lines() != all.lines();
  }
  void map_one_host() {
    const std::int64_t gpus = given_.count("--num_gpus", -1);
    const bool filtered = given_.has("--include") || given_.has("--exclude") || gpus > 0;
    part_.result().world = visible_devices(part_.result(), filtered || has_hostfile_);
    if (pool_.hosts.size() == 1) {
      const Host& host = pool_.hosts[0];
      if (!host.slots.empty()) part_.result().world = static_cast<int>(host.slots.size());
      if (!host.has_first_slots()) part_.variable("CUDA_VISIBLE_DEVICES", host.devices());
    } else if (gpus > 0) {
      const std::int64_t nodes =
          unread_hostfile_ ? given_.count("--num_nodes", 0) : std::int64_t{1};
      part_.result().world = static_cast<int>(std::min<std::int64_t>(gpus, 1 << 15) *
                                              std::clamp<std::int64_t>(nodes, 0, 1 << 15));
    }
    const bool one = !unread_hostfile_;
    const int ranks =
        one ? part_.result().world : static_cast<int>(std::max<std::int64_t>(gpus, 0));
    if (ranks > 0) set_ranks(ranks);
    if (!one) return;
    for (const char* const name : {"--master_addr", "--master_port"}) {
      part_.decide(name, kNotNeeded, "Sluice chooses the rendezvous of one host");
    }
    part_.decide("--launcher", kIgnored, "DeepSpeed reads it for several hosts only");
    part_.decide("--launcher_args", kIgnored, "DeepSpeed reads it for several hosts only");
    part_.decide("--ssh_port", kIgnored, "DeepSpeed reads it for several hosts only");
    part_.decide("--no_ssh", kNotNeeded, "one host needs no ssh");
  }
  void set_ranks(int ranks) {
    for (const char* const name : {"--num_gpus", "--include", "--exclude"}) {
      if (!given_.has(name)) continue;
      const std::string origin = format_text("{} {}", name, given_.text(name, ""));
      return part_.set(name, "launch.nproc", std::to_string(ranks), origin);
    }
    part_.set("--hostfile", "launch.nproc", std::to_string(ranks),
              has_hostfile_ ? "slots of " + hostfile_ : "CUDA_VISIBLE_DEVICES");
  }
  void map_hosts() {
    part_.result().world = pool_.ranks();
    if (given_.has("--no_ssh")) return map_without_ssh();
    std::string launcher = given_.text("--launcher", "pdsh");
    for (char& c : launcher) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    if (launcher == "slurm") return map_slurm();
    if (launcher != "pdsh") {
      part_.stop("--launcher", format_text("Sluice starts ranks by ssh or srun, not by {}; give "
                                           "--launcher pdsh or slurm",
                                           launcher));
    }
    if (is_filtered_) {
      part_.result().hostfile_text = pool_.lines();
      std::string lines;
      for (const Host& host : pool_.hosts) {
        lines +=
            format_text("{}'{} slots={}'", lines.empty() ? "" : ", ", host.name, host.slots.size());
      }
      part_.draft().note(format_text("Write the file {} with the lines {}.", kNewHostfile, lines));
      part_.set(filter_name(), "launch.hostfile", yaml_text(kNewHostfile),
                format_text("the hosts of {} that are left", hostfile_));
    } else {
      part_.set("--hostfile", "launch.hostfile", yaml_text(hostfile_), "--hostfile " + hostfile_);
    }
    map_variables();
    map_devices();
    part_.export_variables();
  }
  [[nodiscard]] const char* filter_name() const {
    for (const char* const name : {"--include", "--exclude", "--num_gpus", "--num_nodes"}) {
      if (given_.has(name)) return name;
    }
    return "--hostfile";
  }
  void map_variables() {
    if (given_.has("--master_addr")) {
      part_.variable("MASTER_ADDR", given_.text("--master_addr", ""));
    }
    if (given_.has("--master_port")) {
      part_.variable("MASTER_PORT", given_.text("--master_port", ""));
    }
    if (given_.has("--ssh_port")) {
      part_.variable("SLUICE_SSH",
                     "ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o "
                     "ServerAliveInterval=5 -p " +
                         given_.text("--ssh_port", "22"));
    }
    read_environment_file(".deepspeed_env");
    read_environment_file("~/.deepspeed_env");
  }
  void read_environment_file(const std::string& path) {
    const auto text = part_.file(path);
    if (!text) return;
    std::size_t at = 0;
    int number = 0;
    while (at < text->size()) {
      const std::size_t end = std::min(text->find('\n', at), text->size());
      const std::string line = text->substr(at, end - at);
      at = end + 1;
      ++number;
      const std::size_t equals = line.find('=');
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (equals == std::string::npos || equals == 0) {
        part_.result().errors.push_back(
            {"", format_text("{}:{}: no NAME=value; write one on each line", path, number)});
        continue;
      }
      part_.variable(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  // GPUs that are not the first ones of their host.
  void map_devices() {
    const auto first = [](const Host& host) { return host.has_first_slots(); };
    if (std::all_of(pool_.hosts.begin(), pool_.hosts.end(), first)) return;
    const std::string devices = pool_.hosts[0].devices();
    const auto same = [&devices](const Host& host) { return host.devices() == devices; };
    if (std::all_of(pool_.hosts.begin(), pool_.hosts.end(), same)) {
      return part_.variable("CUDA_VISIBLE_DEVICES", devices);
    }
    for (const Host& host : pool_.hosts) {
      if (host.has_first_slots()) continue;
      part_.draft().note(
          format_text("Set CUDA_VISIBLE_DEVICES={} in the shell's start-up file of {}: the same "
                      "variables go to all hosts.",
                      host.devices(), host.name));
    }
  }
  void map_slurm() {
    part_.decide("--launcher", kMapped, "srun starts the ranks");
    part_.decide("--launcher_args", kMapped, "arguments of srun");
    part_.decide("--hostfile", kNotNeeded, "SLURM chooses the hosts");
    const std::string unread = "srun does not read it: SLURM gives port and first host";
    part_.decide("--master_addr", kIgnored, unread);
    part_.decide("--master_port", kIgnored, unread);
    part_.decide("--ssh_port", kIgnored, "srun starts the ranks without ssh");
    read_environment_file(".deepspeed_env");
    read_environment_file("~/.deepspeed_env");
    starter_ = format_text("srun --nodes={} --ntasks={}", pool_.hosts.size(), pool_.ranks());
    set_ranks_of(pool_.hosts[0]);
    if (given_.has("--include")) {
      std::string names;
      for (const Host& host : pool_.hosts) names += (names.empty() ? "" : ",") + host.name;
      starter_ += " --nodelist=" + shell_quote(names);
    }
    const ShellCommand more = split_command(given_.text("--launcher_args", "srun"));
    for (const std::string& what : more.errors) part_.error("--launcher_args", what);
    if (given_.has("--launcher_args")) starter_ += " " + shell_join(more.words);
  }
  void map_without_ssh() {
    const std::int64_t rank = given_.count("--node_rank", -1);
    if (rank < 0 || rank >= static_cast<std::int64_t>(pool_.hosts.size())) {
      return part_.error("--no_ssh",
                         format_text("needs --node_rank from 0 to {}", pool_.hosts.size() - 1));
    }
    part_.decide("--node_rank", kMapped, "torchrun's number of this host");
    part_.decide("--launcher", kIgnored, "not read with --no_ssh");
    const std::string addr = given_.text("--master_addr", pool_.hosts[0].name);
    starter_ = format_text(
        "torchrun --no-python --nnodes={} --nproc-per-node={} --node-rank={} --master-addr={} "
        "--master-port={}",
        pool_.hosts.size(), pool_.hosts[static_cast<std::size_t>(rank)].slots.size(), rank,
        shell_quote(addr), given_.count("--master_port", 29500));
    set_ranks_of(pool_.hosts[static_cast<std::size_t>(rank)]);
  }
  void set_ranks_of(const Host& host) {
    part_.set_ranks_of_host("--hostfile", pool_.hosts.size(), host.slots.size(),
                            format_text("slots of {} in {}", host.name, hostfile_));
  }
  void map_cores() {
    if (!given_.has("--bind_core_list")) return;
    if (!given_.has("--bind_cores_to_rank")) {
      return part_.decide("--bind_core_list", kIgnored, "read with --bind_cores_to_rank only");
    }
    if (over_hosts()) {
      return part_.decide("--bind_core_list", kChanged,
                          "Sluice uses all cores of each host; start it under taskset there");
    }
    starter_ = "taskset -c " + shell_quote(given_.text("--bind_core_list", ""));
  }
  void start() { part_.result().commands.push_back(part_.command(starter_)); }

  LaunchPart& part_;
  const ArgumentReading& given_;
  HostPool pool_;
  std::string hostfile_;
  std::string starter_;
  bool has_hostfile_ = false;
  bool unread_hostfile_ = false;
  bool is_filtered_ = false;
};

}  // namespace

void map_deepspeed_launcher(LaunchPart& part, const std::vector<std::string>& words,
                            std::size_t first) {
  const ArgumentReading& given = part.read(
      words, first, kDeepspeedRules, {.program = "DeepSpeed's launcher", .abbreviations = true});
  DeepSpeedLauncher(part, given).map();
}

}  // namespace sluice::migrate
