// What `sluice train` knows before a rank starts: the plan, whether it fits, the files of the run.
#pragma once

#include <string>
#include <vector>

#include "configs/reader.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/data/training_data.hpp"

namespace sluice {

struct Planned {
  StepPlan plan;
  std::vector<std::string> unit_names;
  Program program;
  MemoryPlan memory;
};

// Sets libtorch's threads to those of a rank: the plan measures tensors of the meta device.
[[nodiscard]] Planned make_plan(const RunConfig& run, const RunPlace& place);
// Of all ranks of the mesh, the one that needs most, whatever place.at says.
[[nodiscard]] Planned plan_largest_rank(const RunConfig& run, const RunPlace& place);

// Throws BudgetError where it does not fit: with what would.
void check_fits(const RunConfig& run, const RunPlace& place, const Planned& planned);

// config.yaml and plan.json in output.dir, which is created where missing. Throws IoError.
void write_run_files(const LoadedConfig& config, const RunPlace& place, const Planned& planned);

// Sets model.vocab to `data_vocab`, the data's, where none is given. Throws ConfigError where it is
// less.
void settle_vocabulary(LoadedConfig& config, std::int64_t data_vocab);

// What the choice of train.matmul was and why, where there is something to say.
void log_matmul(const MatmulDecision& decision, const RunConfig& run);

}  // namespace sluice
