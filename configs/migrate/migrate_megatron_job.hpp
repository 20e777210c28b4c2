// A run of Megatron-LM, or of Megatron-DeepSpeed: its arguments, with the DeepSpeed file beside
// them. Reads the files that the request names. Thread-safe.
#pragma once

#include "configs/migrate/migrate.hpp"
#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

// REQUIRES: request.megatron is not empty. With request.deepspeed the file decides on zero, offload
// and loss_scale, and the arguments on the rest; batch sizes, dtype and clipping must agree.
[[nodiscard]] Migration migrate_megatron_job(const MigrationRequest& request);

}  // namespace sluice::migrate
