// The arguments of torchrun, which is also `python -m torch.distributed.run`.
#include <array>

#include "base/format.hpp"
#include "configs/migrate/launcher/launch_parts.hpp"
#include "configs/migrate/launcher/shell_command.hpp"
#include "configs/migrate/launcher/yaml_values.hpp"

namespace sluice::migrate {
namespace {

using enum KeyClass;
using enum ArgumentType;

constexpr std::string_view kWatch = "Sluice watches its ranks itself";
constexpr std::string_view kRendezvous = "Sluice chooses the rendezvous of one host";

constexpr std::array<ArgumentRule, 32> kTorchrunRules{{
    {"--nnodes", "", kText, kMapped, "hosts of the run", ""},
    {"--nproc_per_node", "", kText, kMapped, "ranks of each host", ""},
    {"--rdzv_backend", "", kText, kNotNeeded, kRendezvous, ""},
    {"--rdzv_endpoint", "", kText, kNotNeeded, kRendezvous, ""},
    {"--rdzv_id", "", kText, kNotNeeded, kRendezvous, ""},
    {"--rdzv_conf", "", kText, kNotNeeded, kRendezvous, ""},
    {"--standalone", "", kFlag, kNotNeeded, kRendezvous, ""},
    {"--max_restarts", "", kInt, kMapped, "Sluice restarts from the newest checkpoint", ""},
    {"--monitor_interval", "", kFloat, kNotNeeded, kWatch, ""},
    {"--start_method", "", kText, kNotNeeded, kPython, "spawn fork forkserver"},
    {"--event_log_handler", "", kText, kNotNeeded, kWatch, ""},
    {"--role", "", kText, kNotNeeded, "all ranks of Sluice have one role", ""},
    {"--module", "-m", kFlag, kNotNeeded, kPython, ""},
    {"--no_python", "", kFlag, kNotNeeded, kPython, ""},
    {"--run_path", "", kFlag, kNotNeeded, kPython, ""},
    {"--log_dir", "", kText, kNotNeeded, kLogs, ""},
    {"--redirects", "-r", kText, kNotNeeded, kLogs, ""},
    {"--tee", "-t", kText, kNotNeeded, kLogs, ""},
    {"--local_ranks_filter", "", kText, kNotNeeded, kLogs, ""},
    {"--duplicate_stdout_filters", "", kText, kNotNeeded, kLogs, ""},
    {"--duplicate_stderr_filters", "", kText, kNotNeeded, kLogs, ""},
    {"--node_rank", "", kInt, kNotNeeded, "one host has number 0", ""},
    {"--master_addr", "", kText, kNotNeeded, kRendezvous, ""},
    {"--master_port", "", kInt, kNotNeeded, kRendezvous, ""},
    {"--local_addr", "", kText, kNotNeeded, kRendezvous, ""},
    {"--logs_specs", "", kText, kNotNeeded, kLogs, ""},
    {"--numa_binding", "", kText, kNotNeeded, "each rank has its share of the cores", ""},
    {"--signals_to_handle", "", kText, kNotNeeded, kWatch, ""},
    {"--virtual_local_rank", "", kFlag, kNotNeeded, "each rank sees its own GPU", ""},
    {"--shutdown_timeout", "", kInt, kNotNeeded, kWatch, ""},
    {"--use_env", "", kFlag, kNotNeeded, "Sluice passes ranks by the environment", ""},
    {"--use_agent_store", "", kFlag, kNotNeeded, kRendezvous, ""},
}};

// Arguments that stay with torchrun when it starts Sluice's ranks.
constexpr std::array<std::string_view, 11> kKept{
    "--nnodes",      "--nproc_per_node", "--rdzv_backend", "--rdzv_endpoint",
    "--rdzv_id",     "--rdzv_conf",      "--node_rank",    "--master_addr",
    "--master_port", "--local_addr",     "--max_restarts"};

class Torchrun {
 public:
  Torchrun(LaunchPart& part, const ArgumentReading& given) : part_(part), given_(given) {}

  void map() {
    const int hosts = read_hosts();
    const int ranks = read_ranks();
    if (hosts > 0 && ranks > 0) part_.result().world = hosts * ranks;
    const bool stays = hosts != 1;
    if (stays) {
      keep_torchrun();
      if (hosts > 0 && ranks > 0) {
        part_.set_ranks_of_host("--nproc_per_node", static_cast<std::size_t>(hosts),
                                static_cast<std::size_t>(ranks), origin_of(ranks));
      }
    } else {
      map_one_host(ranks);
    }
    part_.finish();
    part_.result().commands.push_back(part_.command(stays ? kept_ : std::string()) +
                                      (stays && restarts() > 0 ? " --resume auto" : ""));
  }

 private:
  static constexpr int kMost = 1 << 14;

  [[nodiscard]] std::int64_t restarts() const { return given_.count("--max_restarts", 0); }
  // "2", or "2:2".
  int read_hosts() {
    const std::string text = given_.text("--nnodes", "1");
    const std::size_t colon = text.find(':');
    const auto least = typed_word(text.substr(0, colon)).integer;
    const auto most =
        colon == std::string::npos ? least : typed_word(text.substr(colon + 1)).integer;
    if (!least || !most || *least < 1 || *most < *least || *most > kMost) {
      part_.error("--nnodes", format_text("'{}' is no number of hosts; give N, or MIN:MAX", text));
      return 0;
    }
    if (*least != *most) {
      part_.stop("--nnodes", "the number of ranks is fixed during a run; give one number");
    }
    return static_cast<int>(*most);
  }
  // 0 where the host decides.
  int read_ranks() {
    const std::string text = given_.text("--nproc_per_node", "1");
    if (text == "gpu" || text == "auto" || text == "cpu" || text == "xpu") {
      part_.decide("--nproc_per_node", text == "cpu" ? kChanged : kMapped,
                   text == "cpu" ? "torchrun starts a rank for each core; Sluice has threads: "
                                   "launch.nproc auto starts a rank for each GPU, or one"
                                 : "launch.nproc auto: a rank for each GPU");
      return 0;
    }
    const auto count = typed_word(text).integer;
    if (count && *count >= 1 && *count <= kMost) return static_cast<int>(*count);
    part_.error("--nproc_per_node",
                format_text("'{}' is no number of ranks; give N, gpu, cpu or auto", text));
    return 0;
  }
  [[nodiscard]] std::string origin_of(int ranks) const {
    return given_.has("--nproc_per_node") ? format_text("--nproc-per-node {}", ranks)
                                          : "torchrun starts one rank by default";
  }
  void map_one_host(int ranks) {
    if (ranks > 0) {
      part_.set("--nproc_per_node", "launch.nproc", std::to_string(ranks), origin_of(ranks));
    }
    if (restarts() < 0) {
      return part_.error("--max_restarts", "a count of restarts is at least 0; give one");
    }
    if (!given_.has("--max_restarts")) return;
    part_.decide("--max_restarts", kChanged,
                 format_text("torchrun starts the script {} times again from its beginning; Sluice "
                             "goes on from the newest checkpoint {} times",
                             restarts(), restarts()));
    part_.set("--max_restarts", "launch.max_restarts", std::to_string(restarts()),
              format_text("--max-restarts {}", restarts()));
  }
  void keep_torchrun() {
    std::vector<std::string> words{"torchrun", "--no-python"};
    for (const std::string_view name : kKept) {
      const Argument* argument = given_.find(name);
      if (argument == nullptr) continue;
      std::string written(name);
      for (char& c : written) c = c == '_' ? '-' : c;
      words.push_back(written + "=" + argument->value);
      const bool changes = name == "--nnodes" && argument->value.find(':') != std::string::npos;
      if (!changes && name != "--nproc_per_node") {
        part_.decide(name, kMapped, "torchrun starts the ranks of Sluice with it");
      }
    }
    kept_ = shell_join(words);
  }

  LaunchPart& part_;
  const ArgumentReading& given_;
  std::string kept_;
};

}  // namespace

void map_torchrun(LaunchPart& part, const std::vector<std::string>& words, std::size_t first) {
  const ArgumentReading& given =
      part.read(words, first, kTorchrunRules,
                {.program = "torchrun", .abbreviations = true, .hyphens = true});
  Torchrun(part, given).map();
}

}  // namespace sluice::migrate
