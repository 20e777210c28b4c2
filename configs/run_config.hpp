// A whole run as one value: the options of every section. configs/reader.hpp makes it from YAML and
// --set.
#pragma once

#include "offload/offload_options.hpp"
#include "parallel/parallel_options.hpp"
#include "runtime/checkpoint/checkpoint_options.hpp"
#include "runtime/data/data_options.hpp"
#include "runtime/launch/launch_options.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/observe/output_options.hpp"
#include "runtime/run/train_options.hpp"
#include "zero/zero_options.hpp"

namespace sluice {

struct RunConfig {
  ModelOptions model;
  DataOptions data;
  TrainOptions train;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ZeroOptions zero;
  OffloadOptions offload;
  RecomputeOptions recompute;
  ParallelOptions parallel;
  MemoryOptions memory;
  LossScaleOptions loss_scale;
  CheckpointOptions checkpoint;
  LaunchOptions launch;
  OutputOptions output;
};

}  // namespace sluice
