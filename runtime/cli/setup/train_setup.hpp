// Steps of `sluice train` before a rank starts: the plan, the check against budgets, the files of
// the run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "configs/reader.hpp"
#include "runtime/cli/setup/machine_room.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/data/training_data.hpp"

namespace sluice {

struct Planned {
  StepPlan plan;
  std::vector<std::string> unit_names;
  Program program;
  MemoryPlan memory;
  std::vector<TierBytes> stages{};  // a rank's peaks, by stage; of make_plan() the rank's own alone
};

// Sets libtorch's threads to those of a rank, since the plan runs units on the meta device.
[[nodiscard]] Planned make_plan(const RunConfig& run, const RunPlace& place);
// The plan of the rank with the highest need of all ranks of the mesh, whatever place.at says.
// Throws Error where the programs of the pipeline's stages do not fit together (check_stages).
[[nodiscard]] Planned plan_largest_rank(const RunConfig& run, const RunPlace& place);

// Throws BudgetError, with advice, if the plan does not fit. Only warns if place.is_assumed.
void check_fits(const RunConfig& run, const RunPlace& place, const Planned& planned);

// Called before anything starts. Throws BudgetError, with advice, if the ranks of a host need more
// memory than this host has free (the states off the device and, of CPU ranks, the device) or more
// of offload.nvme_path than is free there.
void check_free_memory(const RunConfig& run, const RunPlace& place, const Planned& planned);

// Writes config.yaml and plan.json to output.dir, which is created if missing. Beside an earlier
// run's files they wait under another name until rank 0 accepts them: a start that the ranks refuse
// leaves the earlier files as they are. Throws IoError.
void write_run_files(const LoadedConfig& config, const RunPlace& place, const Planned& planned);
// Whether files wait: the other files of output.dir are then of the earlier run.
[[nodiscard]] bool run_files_wait(const std::string& output_dir);
// Gives the files that wait their names. Throws IoError.
void accept_run_files(const std::string& output_dir);
// Removes the files that still wait when the scope ends, however it ends.
class WaitingRunFiles {
 public:
  explicit WaitingRunFiles(std::string output_dir) : output_dir_(std::move(output_dir)) {}
  ~WaitingRunFiles();
  WaitingRunFiles(const WaitingRunFiles&) = delete;
  WaitingRunFiles& operator=(const WaitingRunFiles&) = delete;

 private:
  std::string output_dir_;
};

// Sets an open model.vocab to `data_vocab`. Throws ConfigError if the given value is smaller, or if
// documents for the model of model.from would end with an id that the model does not know.
// `tokenizer`: of the text, if known.
void settle_vocabulary(LoadedConfig& config, std::int64_t data_vocab,
                       const Tokenizer* tokenizer = nullptr);
// Sets an open model.vocab to the tokenizer's, without opening data. Throws ConfigError if no
// tokenizer is known.
void settle_planned_vocabulary(LoadedConfig& config);

// A line about the decision on train.matmul and its reason, or nothing.
void log_matmul(const MatmulDecision& decision, const RunConfig& run);

}  // namespace sluice
