// The Trainer's optimizer and learning-rate schedule as keys of Sluice. Only for map_trainer.
#pragma once

#include <string>
#include <vector>

#include "configs/migrate/launcher/training_arguments.hpp"

namespace sluice::migrate {

struct TrainerSetting {
  std::string argument;  // name of the argument
  Setting setting;
  std::string origin;
};

// What becomes of some arguments.
struct TrainerPart {
  std::vector<TrainerSetting> settings;
  KeyClass kind = KeyClass::kMapped;  // of the argument that names the part
  std::string note;
  bool stops = false;
};

// Settings of optimizer: from optim, its rate, moments and decay.
[[nodiscard]] TrainerPart trainer_optimizer(const TrainerValues& values);
// Settings of schedule: from lr_scheduler_type, lr_scheduler_kwargs and the warm-up. A warm-up that
// is a share of unknown steps is written as a share.
[[nodiscard]] TrainerPart trainer_schedule(const TrainerValues& values, std::int64_t steps);

}  // namespace sluice::migrate
