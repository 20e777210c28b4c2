// Writes a run to MLflow's file store (mlflow_store.hpp) on a thread of its own, so that a slow or
// full disk costs the steps nothing. The thread also opens the store.
//
//   write(record) --> queue, at most kMostQueued --> thread: one append for all queued records
//
// Failures are logged once; the run goes on. Not thread-safe: one caller, on rank 0.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "runtime/observe/mlflow_store.hpp"

namespace sluice {

class MlflowWriter {
 public:
  // `first_step` is the first step that will be written; 1 means a fresh run. `patience` bounds
  // end().
  MlflowWriter(MlflowOptions options, std::int64_t first_step,
               std::chrono::milliseconds patience = std::chrono::seconds(10));
  ~MlflowWriter();  // end(MlflowStatus::kFailed), unless end() was called
  MlflowWriter(const MlflowWriter&) = delete;
  MlflowWriter& operator=(const MlflowWriter&) = delete;

  // Never blocks on the disk. Beyond kMostQueued records the oldest is dropped.
  void write(const StepRecord& record);
  // Writes what is queued and the status. If the disk does not answer in time, the log says so and
  // the thread is left behind.
  void end(MlflowStatus status);

  static constexpr std::size_t kMostQueued = 10000;

 private:
  class Shared;

  std::shared_ptr<Shared> shared_;  // also the thread's, which may outlive the writer
  const std::chrono::milliseconds patience_;
  std::thread thread_;  // joinable until end()
};

}  // namespace sluice
