// Shared by planning a run and starting it: rates of the machine, and alternatives that fit.
// Functions of their arguments; thread-safe, except advice(), which profiles units.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/plan/search/search.hpp"
#include "runtime/run/plan_watch.hpp"

namespace sluice {

struct PlanMachine {
  MachineProfile profile;
  bool measure = false;  // its matrix products, here and now
  std::vector<std::string> notes;
};

// A named profile; else the doctor's measurements of the device that the run uses (GPU or CPU);
// else kDefaultGpu or the CPU profile.
[[nodiscard]] PlanMachine find_machine(const std::string& profile, const RunConfig& run);

// The machine's ranks, but launch.nproc of them if that is more or the machine states none. Where
// a machine of one card has many ranks, a note says how to put them on one host.
int ranks_of_host(PlanMachine& machine, const RunConfig& run, int world);

// The machine with the threads of the run's ranks. If the cost of threads is unknown, a note says
// so.
void settle_threads(PlanMachine& machine, const RunConfig& run, int world);

// A memory.device above the memory of the machine's card becomes the card's memory, and a note says
// so. Another note names a card that is smaller than the driver's context.
void settle_device_budget(PlanMachine& machine, RunConfig& run);

// For all ranks of the run's mesh.
[[nodiscard]] PlanQuestion plan_question(const RunConfig& run, const RunPlace& place);

// suggest() over meshes and placements that the rules between keys allow; on GPUs with offload only
// if nothing else fits. `question`: plan_question() of the run.
[[nodiscard]] SearchResult search_plans(Planner& planner, const RunConfig& run,
                                        const PlanQuestion& question);

// The same within the memory that this host has free and the room on offload.nvme_path. A
// suggestion that would fill memory without a limit names memory.host.
[[nodiscard]] SearchResult search_this_host(Planner& planner, const RunConfig& run,
                                            const RunPlace& place);

// Advice for a run that does not fit: the answer of `sluice plan --suggest` with its --set lines.
// Measures no rates and reads no clock, so the same question has the same answer while the host has
// as much memory free.
[[nodiscard]] std::string advice(const RunConfig& run, const RunPlace& place);

// Rates for the prediction of a run's steps: the doctor's file, else the CPU profile with the rate
// of matrix products that ranks measure at their start. None for GPUs that the file lacks. Warns of
// a file that cannot be read.
[[nodiscard]] std::optional<RunRates> run_rates(const RunConfig& run, const RunPlace& place);

}  // namespace sluice
