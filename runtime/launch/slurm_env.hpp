// The place of this process in a job that srun started: each task is a rank. Pure; reads variables
// only through `get`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/rank_env.hpp"

namespace sluice {

// Expands "node[03-05,9],login" to node03 node04 node05 node9 login: ranges keep leading zeros,
// several brackets in one name multiply. Throws ConfigError for an invalid list.
[[nodiscard]] std::vector<std::string> expand_host_list(std::string_view list);

// Expands "4(x2),1" to 4 4 1: the tasks of each node. Throws ConfigError.
[[nodiscard]] std::vector<int> expand_task_counts(std::string_view counts);

// Reads SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODELIST and, for the ranks of this host,
// SLURM_TASKS_PER_NODE with SLURM_NODEID, or SLURM_NTASKS_PER_NODE. A step's variables
// (SLURM_STEP_*) take precedence over the job's. MASTER_ADDR and MASTER_PORT take precedence if
// set; the defaults are the first host and 10000 + (job + step) % 20000, below the ephemeral ports
// of usual systems.
//
// nullopt if this process is no task of srun: SLURM_PROCID is not set, or this is the batch script
// or the interactive shell, whose variables look like those of task 0. Throws ConfigError, one line
// per variable that is missing, malformed or contradicts another.
[[nodiscard]] std::optional<RankEnvironment> slurm_rank_environment(const GetEnvironment& get);

}  // namespace sluice
