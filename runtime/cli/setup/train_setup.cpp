#include "runtime/cli/setup/train_setup.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/log.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/cli/setup/plan_setup.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/data/tokenizer/learned_options.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/plan/nccl_memory.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/plan/programs/planned_program.hpp"
#include "runtime/run/machine.hpp"
#include "runtime/run/matmul_choice.hpp"

namespace sluice {
namespace {

TierBytes peaks_of(const MemoryPlan& memory) {
  TierBytes peaks{};
  for (std::size_t t = 0; t < peaks.size(); ++t) peaks[t] = memory.tiers[t].peak;
  return peaks;
}

// Peaks of this host's ranks together. A stage's ranks are consecutive.
TierBytes need_here(const Planned& planned, const RunConfig& run, const RunPlace& place) {
  const HostRanks here = ranks_here(run, place.local_ranks);
  const int of_stage = place.world / static_cast<int>(planned.stages.size());
  TierBytes need{};
  for (int rank = here.first; rank < here.first + here.count; ++rank) {
    const TierBytes& peaks = nth(planned.stages, rank / of_stage);
    for (std::size_t t = 0; t < need.size(); ++t) need[t] += peaks[t];
  }
  return need;
}

std::int64_t peak_of(const Planned& planned) {
  std::int64_t bytes = 0;
  for (const TierPlan& tier : planned.memory.tiers) bytes += tier.peak;
  return bytes;
}

constexpr const char* kRunFiles[] = {"/config.yaml", "/plan.json"};
constexpr const char* kWaiting = ".next";  // behind the name of a file that no rank has accepted

// Ids of the tokenizer that the data's text needs. nullopt: the data needs none, or the tokenizer's
// files are not here: a plan may be another machine's.
std::optional<std::int64_t> planned_ids(const DataOptions& data) {
  const bool has_tokenizer = reads_text(data) || data.tokenizer != "bytes";
  if (!data.names_training() || !has_tokenizer) return std::nullopt;
  if (const auto learned = learned_vocab(data.tokenizer)) return learned;
  try {
    (void)find_tokenizer(data.tokenizer);
  } catch (const Error&) {
    return std::nullopt;
  }
  return make_tokenizer(data.tokenizer)->vocab_size();
}

void drop_run_files(const std::string& output_dir) {
  std::error_code ignored;
  for (const char* file : kRunFiles) std::filesystem::remove(output_dir + file + kWaiting, ignored);
}

}  // namespace

Planned make_plan(const RunConfig& run, const RunPlace& place) {
  set_libtorch_threads(run.launch.threads > 0 ? run.launch.threads
                                              : threads_per_rank(place.local_ranks));
  const EngineOptions options = engine_options(run, place);
  const Model model = make_dry_model(options.model, options.part);
  Planned planned{plan_step(options, model), {}, {}, {}, {}};
  for (const UnitSpec& unit : model.spec.units) planned.unit_names.push_back(unit.name);
  planned.program = planned_program(planned.plan.shape);
  const std::int64_t nccl =
      place.on_gpu ? nccl_buffer_bytes(planned.plan.shape, place.local_ranks) : 0;
  planned.memory = plan_memory(planned.program, rank_budgets(run, place), nccl);
  planned.stages = {peaks_of(planned.memory)};
  return planned;
}

Planned plan_largest_rank(const RunConfig& run, const RunPlace& place) {
  // A plan that does not fit counts as larger than any plan that fits.
  const auto order = [](const Planned& p) { return std::pair(!p.memory.fits(), peak_of(p)); };
  std::vector<Planned> stages;
  std::vector<Program> programs;
  std::vector<StepShape> shapes;
  for (const RunPlace& rank : rank_classes(run, place)) {
    stages.push_back(make_plan(run, rank));
    programs.push_back(std::move(stages.back().program));
    shapes.push_back(stages.back().plan.shape);
  }
  check_stages(programs, shapes);
  const auto largest =
      std::max_element(stages.begin(), stages.end(),
                       [&](const Planned& a, const Planned& b) { return order(a) < order(b); });
  largest->program = std::move(nth(programs, largest - stages.begin()));
  std::vector<TierBytes> peaks;
  for (const Planned& stage : stages) peaks.push_back(peaks_of(stage.memory));
  largest->stages = std::move(peaks);
  return std::move(*largest);
}

void check_fits(const RunConfig& run, const RunPlace& place, const Planned& planned) {
  try {
    check_budget(planned.plan, planned.memory);
  } catch (const BudgetError& error) {
    if (!place.is_assumed) throw BudgetError(error.what() + ("\n" + advice(run, place)));
    log_warning(
        "no host of launch.hostfile is this machine, so each rank checks its own plan; the "
        "plan for assumed devices does not fit: " +
        std::string(error.what()));
  }
}

void check_free_memory(const RunConfig& run, const RunPlace& place, const Planned& planned) {
  std::string text;
  const TierBytes need = need_here(planned, run, place);
  for (const std::string& lacking : shortages(host_room(run), need, run, place)) {
    text += lacking + "\n";
  }
  if (!text.empty()) throw BudgetError(text + advice(run, place));
}

void write_run_files(const LoadedConfig& config, const RunPlace& place, const Planned& planned) {
  const std::string& dir = config.run.output.dir;
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed) {
    throw IoError("cannot create output.dir " + dir + ": " + failed.message(), dir, failed.value());
  }
  drop_run_files(dir);  // of a launcher that was killed
  const std::string waiting = std::filesystem::exists(dir + "/config.yaml", failed) ? kWaiting : "";
  write_file_atomically(dir + "/config.yaml" + waiting, config.resolved_yaml());
  // Ranks measure some rates later; metrics.jsonl has their predictions.
  const std::optional<RunRates> rates = run_rates(config.run, place);
  const bool known = rates && rates->share_of_measured == 0;
  TimeReport time;
  if (known) time = predict_time(planned.program, planned.plan.shape, rates->rates);
  write_file_atomically(dir + "/plan.json" + waiting,
                        plan_json(planned.plan, planned.program, planned.memory,
                                  known ? &time : nullptr, planned.stages));
}

bool run_files_wait(const std::string& output_dir) {
  std::error_code ignored;
  return std::filesystem::exists(output_dir + kRunFiles[0] + kWaiting, ignored);
}

void accept_run_files(const std::string& output_dir) {
  if (!run_files_wait(output_dir)) return;
  for (const char* file : kRunFiles) {
    const std::string path = output_dir + file;
    std::error_code failed;
    std::filesystem::rename(path + kWaiting, path, failed);
    if (failed) {
      throw IoError("cannot replace " + path + ": " + failed.message() +
                        "; remove it, or set output.dir to another folder",
                    path, failed.value());
    }
  }
}

WaitingRunFiles::~WaitingRunFiles() { drop_run_files(output_dir_); }

void settle_vocabulary(LoadedConfig& config, std::int64_t data_vocab, const Tokenizer* tokenizer) {
  std::int64_t& vocab = config.run.model.vocab;
  const std::string& from = config.run.model.from;
  if (vocab == 0) vocab = data_vocab;
  const bool is_new = tokenizer != nullptr && tokenizer->end_is_new();
  if (is_new && !from.empty() && config.run.data.sft.empty()) {
    throw ConfigError(config.place("data.tokenizer") + ": data.tokenizer: " + tokenizer->name() +
                      " names no token that ends a text, and documents would end with id " +
                      std::to_string(tokenizer->end_of_text()) + ", which the model of " + from +
                      " has not learned: put {\"eos_token\": \"...\"} into a tokenizer_config.json "
                      "beside the tokenizer's file");
  }
  if (vocab < data_vocab && !from.empty()) {
    throw ConfigError(config.place("data.tokenizer") + ": data.tokenizer has " +
                      std::to_string(data_vocab) + " ids, and the model of " + from +
                      " has rows for " + std::to_string(vocab) +
                      (is_new ? ": its last id is a new end of text, since no file names one; put "
                                "{\"eos_token\": \"...\"} into a tokenizer_config.json beside it"
                              : ": it is another model's tokenizer, or has tokens that were added "
                                "after the model was made"));
  }
  if (vocab < data_vocab) {
    throw ConfigError(config.place("model.vocab") + ": model.vocab: " + std::to_string(vocab) +
                      " is less than the " + std::to_string(data_vocab) +
                      " ids of the data's tokenizer; leave it out to take those");
  }
}

void settle_planned_vocabulary(LoadedConfig& config) {
  std::int64_t& vocab = config.run.model.vocab;
  const DataOptions& data = config.run.data;
  if (vocab > 0) {
    // A folder may lack the tokenizer, which data.tokenizer then names for a run.
    if (!config.run.model.from.empty() && !config.origins.contains("data.tokenizer")) return;
    if (const auto ids = planned_ids(data)) settle_vocabulary(config, *ids);
    return;
  }
  if (!reads_text(data) && data.tokenizer == "bytes") {
    throw ConfigError(config.place("model.vocab") + ": model.vocab: " +
                      (data.names_training()
                           ? "a plan does not read the data to find their largest token; give the "
                             "vocabulary"
                           : "no data is named whose tokenizer would give the vocabulary; give "
                             "model.vocab, or name the data in data.text, data.train, data.blend "
                             "or data.sft"));
  }
  if (const auto learned = learned_vocab(data.tokenizer)) {
    vocab = *learned;
    return;
  }
  vocab = make_tokenizer(data.tokenizer)->vocab_size();
}

void log_matmul(const MatmulDecision& decision, const RunConfig& run) {
  const std::string text = describe_matmul(decision, run.train.dtype);
  if (!text.empty()) log_info(text);
}

}  // namespace sluice
