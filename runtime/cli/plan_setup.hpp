// What planning a run and starting it have in common where they ask how fast, and what else would
// fit. Functions of their arguments; thread-safe but for advice(), which profiles units.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/cli/run_setup.hpp"
#include "runtime/engine/plan_watch.hpp"
#include "runtime/plan/search.hpp"

namespace sluice {

struct PlanMachine {
  MachineProfile profile;
  bool measure = false;  // its matrix products, here and now
  std::vector<std::string> notes;
};

// A named profile, else what the doctor measured here, else the CPU profile.
[[nodiscard]] PlanMachine find_machine(const std::string& profile, const RunConfig& run);

// A host of launch.nproc ranks, where the machine does not say.
int ranks_of_host(MachineProfile& machine, const RunConfig& run, int world);

// Of all ranks of the run's mesh.
[[nodiscard]] PlanQuestion plan_question(const RunConfig& run, const RunPlace& place);

// suggest(), of meshes and placements that the rules between keys allow; offload from GPUs is
// planned where nothing else fits: the runtime's copies are those of CPUs. Says so in `notes`.
// `question`: plan_question() of the run.
[[nodiscard]] SearchResult search_plans(Planner& planner, const RunConfig& run,
                                        const PlanQuestion& question,
                                        std::vector<std::string>& notes);

// For a run that does not fit: what `sluice plan --suggest` says, with the --set lines. Measures
// nothing and looks at no clock: the same question has the same answer.
[[nodiscard]] std::string advice(const RunConfig& run, const RunPlace& place);

// What a run's steps are predicted from: the doctor's file, else the CPU profile at the rate of
// matrix products that ranks measure as they start. None for GPUs, of which a file knows nothing.
// A file that cannot be read is warned of.
[[nodiscard]] std::optional<RunRates> run_rates(const RunConfig& run, const RunPlace& place);

}  // namespace sluice
