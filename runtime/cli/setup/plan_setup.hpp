// What planning a run and starting it have in common where they ask how fast, and what else would
// fit. Functions of their arguments; thread-safe but for advice(), which profiles units.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/plan/search.hpp"
#include "runtime/run/plan_watch.hpp"

namespace sluice {

struct PlanMachine {
  MachineProfile profile;
  bool measure = false;  // its matrix products, here and now
  std::vector<std::string> notes;
};

// A named profile, else what the doctor measured here of what the run uses (its GPU, or its CPU),
// else kDefaultGpu or the CPU profile.
[[nodiscard]] PlanMachine find_machine(const std::string& profile, const RunConfig& run);

// A host of launch.nproc ranks, where the machine does not say.
int ranks_of_host(MachineProfile& machine, const RunConfig& run, int world);

// The machine with the threads of the run's ranks; where nothing is known of what these cost, a
// note says so.
void settle_threads(PlanMachine& machine, const RunConfig& run, int world);

// Of all ranks of the run's mesh.
[[nodiscard]] PlanQuestion plan_question(const RunConfig& run, const RunPlace& place);

// suggest(), of meshes and placements that the rules between keys allow; a note says where one has
// offload from GPUs, which has not been run.
// `question`: plan_question() of the run.
[[nodiscard]] SearchResult search_plans(Planner& planner, const RunConfig& run,
                                        const PlanQuestion& question,
                                        std::vector<std::string>& notes);

// For a run that does not fit: what `sluice plan --suggest` says, with the --set lines. Measures
// nothing and looks at no clock: the same question has the same answer.
[[nodiscard]] std::string advice(const RunConfig& run, const RunPlace& place);

// What a run's steps are predicted from: the doctor's file, else the CPU profile at the rate of
// matrix products that ranks measure as they start. None for GPUs that the file does not have.
// A file that cannot be read is warned of.
[[nodiscard]] std::optional<RunRates> run_rates(const RunConfig& run, const RunPlace& place);

}  // namespace sluice
