// Who this process is in a job that srun started: each task is a rank. Pure, but for what `get`
// reads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/rank_env.hpp"

namespace sluice {

// "node[03-05,9],login" is node03 node04 node05 node9 login: ranges keep their zeros, several
// brackets in one name multiply. Throws ConfigError on a list that is not understood.
[[nodiscard]] std::vector<std::string> expand_host_list(std::string_view list);

// "4(x2),1" is 4 4 1: the tasks of each node. Throws ConfigError.
[[nodiscard]] std::vector<int> expand_task_counts(std::string_view counts);

// From SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODELIST and, for the ranks of this host,
// SLURM_TASKS_PER_NODE with SLURM_NODEID, or SLURM_NTASKS_PER_NODE; those of the step
// (SLURM_STEP_*) go before those of the job. MASTER_ADDR and MASTER_PORT are taken where they are
// set; else the first host, and 10000 + (job + step) % 20000, below the ports that systems hand
// out.
//
// nullopt where this is no task of srun: SLURM_PROCID is not set, or this is the batch script or
// the interactive shell itself, whose variables look like those of task 0. Throws ConfigError, one
// line per variable that is missing, malformed or contradicts another.
[[nodiscard]] std::optional<RankEnvironment> slurm_rank_environment(const GetEnvironment& get);

}  // namespace sluice
