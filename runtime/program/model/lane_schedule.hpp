// List-schedules the lanes of one program; time_model.hpp states the rules. Internal to the time
// model. Pure.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "runtime/program/model/time_model.hpp"

namespace sluice {

// A stage's view of the other stages of its pipeline. Times are seconds since the step began.
class PeerStages {
 public:
  virtual ~PeerStages() = default;
  // Reports that this stage has issued a send or a receive.
  virtual void issued(OpId op, double at) = 0;
  // The arrival time of the message; nullopt until the other end has issued the message.
  [[nodiscard]] virtual std::optional<double> end_of(OpId op) = 0;
  // Reports that this stage has come to a meeting (meets_all). Returns the time at which the last
  // stage comes; nullopt until all stages have come.
  [[nodiscard]] virtual std::optional<double> meet(OpId op, double at) = 0;
};

class LaneSchedule {
 public:
  // All arguments outlive this. `peers` null: sends and receives take their own seconds.
  LaneSchedule(const Program& program, std::span<const double> seconds, double duplex,
               PeerStages* peers);

  // Schedules as many operations as the peers allow; false if none.
  bool advance();
  [[nodiscard]] bool done() const { return next_ == program_.ops.size(); }
  // REQUIRES: done().
  [[nodiscard]] TimeReport report(bool shared_cores);

 private:
  // The time at which the scheduled work has completed, and the operation that completes last.
  struct Instant {
    double at = 0;
    OpId by = -1;
    void later(double other, OpId other_by) {
      if (other > at) *this = {other, other_by};
    }
  };

  [[nodiscard]] bool may_go_on(std::size_t i);
  [[nodiscard]] Instant ready(const Op& op) const;
  void compute(std::size_t i);
  void issue(std::size_t i);
  void cross(std::size_t i);
  double transfer(OpId id, Instant& begin);
  void blame(OpId by, double from, double to);
  void add_busy();

  const Program& program_;
  std::span<const double> seconds_;
  PeerStages* const peers_;
  double duplex_ = 1;
  bool wire_has_thread_ = false;
  bool disk_writes_ = false;
  std::size_t next_ = 0;
  double clock_ = 0;                                                     // of the compute lane
  std::optional<double> met_;                                            // time of newest meeting
  std::array<Instant, static_cast<std::size_t>(kLaneCount)> threads_{};  // by lane: free from
  Instant wire_;
  std::array<double, static_cast<std::size_t>(kPipeWires)> pipes_{};  // without peers
  std::array<Instant, 2> directions_{};                               // of the disk: reads, writes
  Instant disk_;
  Instant last_;
  std::vector<OpId> limit_;  // the operation whose end delays the start; -1: the issue does
  TimeReport report_;
};

}  // namespace sluice
