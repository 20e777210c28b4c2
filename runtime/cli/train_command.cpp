#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "configs/derived.hpp"
#include "configs/offload_rules.hpp"
#include "configs/reader.hpp"
#include "configs/validate.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/cli/setup/next_commands.hpp"
#include "runtime/cli/setup/plan_setup.hpp"
#include "runtime/cli/setup/rank_setup.hpp"
#include "runtime/cli/setup/saving_setup.hpp"
#include "runtime/cli/setup/train_setup.hpp"
#include "runtime/cli/train_rank.hpp"
#include "runtime/launch/hosts/host_launcher.hpp"
#include "runtime/launch/launcher.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/observe/mlflow_store.hpp"
#include "runtime/observe/run_events.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/program/program_text.hpp"

namespace sluice {
namespace {

// The newest of a folder's complete checkpoints; none: its generation is -1.
CatalogEntry newest_checkpoint(const std::string& checkpoint_dir) {
  const std::vector<CatalogEntry> newest_first = catalog(local_file_system(), checkpoint_dir);
  return newest_first.empty() ? CatalogEntry() : newest_first.front();
}

using Argv = std::vector<std::string>;

// An event of this run. Before rank 0 has accepted the run, the file is the earlier run's.
void note_event(const std::string& output_dir, const RunEvent& event) {
  if (!run_files_wait(output_dir)) append_event(output_dir + "/events.jsonl", event);
}

struct RestartPlace {
  int most = 0;  // launch.max_restarts
  std::string output_dir;
  std::string checkpoint_dir;
  bool has_image = false;  // the run commits an image on NVMe and resumes from it, saved or not
};

void tell_to_go_on(const std::string& checkpoint_dir, const Argv& argv) {
  const CatalogEntry newest = newest_checkpoint(checkpoint_dir);
  if (newest.generation < 0) return;
  std::fprintf(stderr, "the newest checkpoint is of step %lld; %s",
               static_cast<long long>(newest.step), resume_command(argv).c_str());
}

// Restarts a run after a failure that may pass, from its newest checkpoint. Without a checkpoint
// the run starts with its original arguments: --resume auto would forget a --resume DIR.
// A failure is an event of the run, since its ranks may have had no time to tell it.
int run_with_restarts(const std::function<LaunchResult(const Argv&)>& run, const Argv& as_told,
                      const RestartPlace& place) {
  const int most = place.most;
  const std::int64_t before = most > 0 ? newest_checkpoint(place.checkpoint_dir).generation : -1;
  LaunchResult result = run(as_told);
  for (int restart = 1; result.worth_restarting && restart <= most; ++restart) {
    const bool saved = newest_checkpoint(place.checkpoint_dir).generation > before;
    Argv argv = as_told;
    if (saved || place.has_image) argv.insert(argv.end(), {"--resume", "auto"});
    std::string text = "restart " + std::to_string(restart) + " of " + std::to_string(most) +
                       " (launch.max_restarts), ";
    text += saved             ? "from the newest checkpoint"
            : place.has_image ? "from the image on NVMe"
                              : "as at first: nothing was saved since";
    std::fprintf(stderr, "%s\n", text.c_str());
    note_event(place.output_dir, {.kind = "restart", .text = text + "; " + result.cause});
    result = run(argv);
  }
  if (result.worth_restarting) tell_to_go_on(place.checkpoint_dir, as_told);
  if (!result.cause.empty()) {
    note_event(place.output_dir, {.kind = "end",
                                  .text = result.cause,
                                  .more = {{"exit_code", std::int64_t{result.exit_code}}}});
  }
  return result.exit_code;
}

// Whether --resume names a folder.
bool is_folder(const std::string& resume) { return resume != "auto" && resume != "never"; }

// The ranks may resume from an image on NVMe, which the launcher does not read.
bool may_have_image(const TrainCommand& command, const RunConfig& run) {
  return run.offload.image && !is_folder(command.resume);
}

// The ranks' hosts: those of launch.hostfile, else this host.
struct Destination {
  std::vector<HostSlots> hosts;  // none: only this one
  int world = 0;
  int most_on_a_host = 1;
  bool elsewhere = false;  // this machine is none of the hosts
};

Destination destination(const TrainCommand& command, const RunConfig& run) {
  if (run.launch.hostfile.empty()) {
    const int here = ranks_to_launch(command, run);
    return {.hosts = {}, .world = here, .most_on_a_host = here};
  }
  Destination to{.hosts = read_hostfile(run.launch.hostfile, 0)};
  to.elsewhere = all_are_elsewhere(to.hosts);
  // The number of GPUs here says nothing about hosts elsewhere.
  const bool given = command.nproc > 0 || run.launch.nproc > 0;
  const int each = given || !to.elsewhere ? ranks_to_launch(command, run) : 1;
  for (HostSlots& host : to.hosts) {
    if (host.slots == 0) host.slots = each;
    to.world += host.slots;
    to.most_on_a_host = std::max(to.most_on_a_host, host.slots);
    if (command.nproc == 0 || command.nproc == host.slots) continue;
    throw ConfigError("--nproc " + std::to_string(command.nproc) + ": launch.hostfile " +
                      run.launch.hostfile + " gives " + host.host + " slots=" +
                      std::to_string(host.slots) + "; leave --nproc out, or change the file");
  }
  return to;
}

// Arguments for starting the ranks of this host.
LaunchRequest launch_request(const TrainCommand& command, const LoadedConfig& config) {
  LaunchRequest request;
  request.argv = command.argv;
  request.output_dir = config.run.output.dir;
  request.threads = config.run.launch.threads;
  prepare_saving(config, command.resume, request);
  return request;
}

// Ranks that were killed could not say how the run ended.
void end_trackers(const RunConfig& run, int exit_code) {
  if (run.output.mlflow.empty() || exit_code == 0) return;
  try {
    end_mlflow_run(run.output.dir, exit_code == kInterruptedExitCode ? MlflowStatus::kKilled
                                                                     : MlflowStatus::kFailed);
  } catch (const Error& error) {
    log_warning(std::string("output.mlflow: ") + error.what());
  }
}

int start_ranks(const TrainCommand& command, const LoadedConfig& config, const Destination& to,
                const Argv& argv) {
  LaunchRequest request = launch_request(command, config);
  request.stop_grace = stop_grace(config, command.resume, to.world);
  std::function<LaunchResult(const Argv&)> run;
  if (to.hosts.empty()) {
    const bool threads = config.run.launch.backend == Backend::kLocal;
    request.nproc = threads ? 1 : to.world;
    run = [&](const Argv& told) {
      request.argv = told;
      return run_launcher(request);
    };
  } else {
    HostsRequest hosts;
    hosts.hosts = to.hosts;
    hosts.output_dir = request.output_dir;
    hosts.environment = request.environment;
    hosts.stop_grace = request.stop_grace;
    run = [hosts](const Argv& told) {
      HostsRequest now = hosts;
      now.argv = told;
      return run_hosts(now);
    };
  }
  const auto run_and_track = [&](const Argv& told) {
    const LaunchResult result = run(told);
    end_trackers(config.run, result.exit_code);
    return result;
  };
  return run_with_restarts(run_and_track, argv,
                           {.most = config.run.launch.max_restarts,
                            .output_dir = config.run.output.dir,
                            .checkpoint_dir = saving_options(config, command.resume).checkpoint.dir,
                            .has_image = may_have_image(command, config.run)});
}

// Finds the vocabulary. A dry run of a configuration that names no data plans without.
void settle_planned_data(LoadedConfig& config, int world) {
  const RunConfig& run = config.run;
  if (!run.data.names_training()) return settle_planned_vocabulary(config);
  const auto vocab =
      survey_data(run.data, run.model.seq, run.model.vocab == 0, [&](const SampleMix& train) {
        log_epochs(train, run.train.steps, derive(run, world).global_batch);
      });
  settle_vocabulary(config, vocab);
}

// REQUIRES: the vocabulary is known.
void check_first_weights(const RunConfig& run) {
  if (const auto weights = open_model_from(run)) weights->check_tied();
}

// All checks of a start that need no lock. nullopt: the run that this one continues is finished,
// and has been told so. `tokenizer`: the data's; may be null.
std::optional<Planned> check_start(const TrainCommand& command, LoadedConfig& config,
                                   const RunPlace& place, const Tokenizer* tokenizer,
                                   std::int64_t data_vocab) {
  settle_vocabulary(config, data_vocab, tokenizer);
  const std::optional<ResumePoint> from = check_resumed(config, command.resume, place, tokenizer);
  if (from && from->finished() && !may_have_image(command, config.run)) {
    log_info(finished_text(from->path, from->run.step, from->last_step));
    return std::nullopt;
  }
  if (!from) check_first_weights(config.run);
  Planned planned = plan_largest_rank(config.run, place);
  check_fits(config.run, place, planned);
  check_free_memory(config.run, place, planned);
  check_saving(config, command.resume, place, planned.memory);
  return planned;
}

// Checks the start and builds the caches that the ranks open. Text may take hours to become
// tokens: a run that cannot start is refused before that.
std::optional<Planned> prepare(const TrainCommand& command, LoadedConfig& config,
                               const RunPlace& place) {
  std::optional<Planned> planned;
  bool checked = false;
  const auto check = [&](const Tokenizer* tokenizer, std::int64_t data_vocab) {
    planned = check_start(command, config, place, tokenizer, data_vocab);
    checked = true;
  };
  const TrainingData data(
      config.run.data, config.run.model.seq, config.run.train.seed,
      [&](const Tokenizer& tokenizer) { check(&tokenizer, tokenizer.vocab_size()); });
  log_epochs(data.train(), config.run.train.steps, derive(config.run, place.world).global_batch);
  if (!checked) check(nullptr, data.vocab_size());
  return planned;
}

// The step, operation by operation. A long drawing would push the table of memory away.
std::string drawing(const Planned& planned) {
  constexpr std::ptrdiff_t kMostLines = 60;
  std::string text = draw(planned.program, planned.unit_names);
  const std::ptrdiff_t lines = std::count(text.begin(), text.end(), '\n');
  if (lines <= kMostLines) return "\n" + text;
  return "the step's operations are not drawn: " + std::to_string(lines) +
         " lines (`sluice plan` draws a step of any length)\n";
}

// What the driver takes of a card is known only when ranks run. `planned_bytes`: with NCCL's.
void warn_of_context(const RunConfig& run, const RunPlace& place, std::int64_t planned_bytes) {
  if (place.card_bytes == 0) return;
  const std::int64_t rest = std::max<std::int64_t>(0, place.card_bytes - planned_bytes);
  const std::int64_t taken = find_machine("", run).profile.device_overhead_bytes;
  if (rest >= taken) return;
  log_warning("the plan leaves " + format_bytes(rest) + " of the card, and the driver's context " +
              "with the libraries takes about " + format_bytes(taken) +
              ": the ranks may refuse to start");
}

// Prints the plan and makes the checks of a start that neither read text nor write.
void dry_run(const TrainCommand& command, LoadedConfig& config, const RunPlace& place) {
  settle_planned_data(config, place.world);
  check_first_weights(config.run);
  const Planned planned = plan_largest_rank(config.run, place);
  std::printf("%s%s\n%s", describe_plan(planned.plan, planned.program, planned.memory).c_str(),
              describe_saving(config, place).c_str(), drawing(planned).c_str());
  std::fflush(stdout);  // the error of a plan that does not fit comes after it
  check_fits(config.run, place, planned);
  check_free_memory(config.run, place, planned);
  check_room_to_save(config, command.resume, place, planned.memory);
  if (place.on_gpu) warn_of_context(config.run, place, planned.memory.of(Tier::kDevice).need());
  if (!config.run.data.names_training()) {
    log_warning("data: nothing to train on is named yet; without it the run does not start");
  }
  std::printf("\n%s\n", planned.memory.fits() ? "fits" : "the ranks decide whether it fits");
}

// Ranks read the file again, and the cache of tokens lies beside it.
void refuse_pipe(const std::string& config) {
  std::error_code ignored;
  if (std::filesystem::is_fifo(config, ignored)) {
    throw ConfigError(config +
                      ": is a pipe, and every rank reads the configuration; write it into a file");
  }
}

RunPlace place_of_ranks(const RunConfig& run, const Destination& to) {
  RunPlace place{.world = to.world,
                 .local_ranks = to.most_on_a_host,
                 .on_gpu = to.elsewhere ? would_run_on_gpu(run) : runs_on_gpu(run),
                 .is_assumed = to.elsewhere};
  if (place.is_assumed) return place;
  place.gpu = visible_gpu_figures();
  if (place.on_gpu) place.card_bytes = visible_gpu_memory(to.most_on_a_host);
  return place;
}

// Ranks elsewhere settle train.matmul: auto by their processors; their plan here has native.
MatmulDecision settle_planned_matmul(LoadedConfig& config, const std::string& resume,
                                     const RunPlace& place) {
  const auto measure = [&] { return measure_matmul(config.run); };
  if (!place.is_assumed) {
    return settle_matmul(config, place.on_gpu, measure, resumed_matmul(config, resume));
  }
  (void)settle_matmul(config, false, [] { return MatmulRates{}; });
  return {};
}

int launch(const TrainCommand& command) {
  LoadedConfig config = load_config(command.config, command.overrides);
  if (!command.dry_run) refuse_pipe(command.config);
  settle_model_from(config, command.resume);
  const Destination to = destination(command, config.run);
  validate(config, to.world, std::nullopt, command.dry_run ? Purpose::kDryRun : Purpose::kTrain);
  if (!to.elsewhere) note_hidden_gpus(config);
  print_notes(config);
  if (!to.elsewhere) check_gpus(config, to.most_on_a_host);
  check_output(config);
  if (!command.dry_run) check_folders_free(config, command.resume);
  for (const std::string& folder : folders_in_memory(config.run.offload)) {
    log_warning(config.place("offload.nvme_path") + ": offload.nvme_path: " + folder +
                " is on a tmpfs: what lies there takes host memory, beside memory.host");
  }
  const RunPlace place = place_of_ranks(config.run, to);
  const MatmulDecision matmul = settle_planned_matmul(config, command.resume, place);
  const bool matmul_was_open = matmul.rates || matmul.resumed;
  if (matmul_was_open) log_matmul(matmul, config.run);
  if (command.dry_run) {
    dry_run(command, config, place);
    return 0;
  }
  const std::optional<Planned> planned = prepare(command, config, place);
  if (!planned) return 0;
  RunFolders folders(config, command.resume);
  const std::string& dir = config.run.output.dir;
  const WaitingRunFiles waiting(dir);
  write_run_files(config, place, *planned);
  Argv argv = command.argv;
  if (matmul_was_open) {  // the ranks run what was planned, not what they would measure
    argv.insert(argv.end(), {"--set", "train.matmul=" + name_of(matmul.type)});
  }
  const int exit_code = start_ranks(command, config, to, argv);
  if (!run_files_wait(dir)) folders.keep_moved();
  // A rank 0 of another host may have no access to this folder.
  const bool away = !to.hosts.empty() && !is_this_host(to.hosts.front().host);
  if (away && (exit_code == 0 || exit_code == kInterruptedExitCode)) accept_run_files(dir);
  return exit_code;
}

// The launcher that started this decides when its ranks have had their time.
constexpr std::chrono::hours kAgentStopGrace{24 * 30};

// One host of several: its ranks, for the launcher that started this.
int run_agent(const TrainCommand& command, const AgentPlace& place) {
  try {
    const LoadedConfig config = load_config(command.config, command.overrides);
    LaunchRequest request = launch_request(command, config);
    request.stop_grace = kAgentStopGrace;
    request.agent = place;
    const char* master = std::getenv("MASTER_ADDR");
    const char* port = std::getenv("MASTER_PORT");
    if (master != nullptr) request.master_addr = master;
    if (port != nullptr) request.master_port = std::atoi(port);
    return run_launcher(request).exit_code;
  } catch (const std::exception& error) {
    ErrorReport report = make_error_report(error);
    report.rank = place.first_rank;
    std::fputs(agent_record(report).c_str(), stderr);
    return report.exit_code;
  }
}

// A rank without a launcher of this program: it reports its own failure.
int run_joined_rank(const TrainCommand& command, const RankEnvironment& rank) {
  announce_rank(rank);
  if (rank.world_size == 1 || has_launcher()) {
    return run_rank(command, rank);
  }
  try {
    return run_rank(command, rank);
  } catch (const std::exception& error) {
    return report_failure(error);
  }
}

}  // namespace

int run_train(const TrainCommand& command) {
  if (const auto agent = agent_place()) return run_agent(command, *agent);
  if (const auto rank = rank_environment()) return run_joined_rank(command, *rank);
  return launch(command);
}

}  // namespace sluice
