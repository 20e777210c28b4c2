// The engine's parts that handlers work on. Each handler keeps references to those it uses. All
// outlive the handlers.
#pragma once

namespace sluice {

class DeviceCopies;
class DeviceGraphs;
class Flights;
class GroupStore;
class OpClock;
class RunImage;
class StepCarry;
class TierStore;
struct EngineSetup;
struct ProgramMemory;
struct StepRun;

struct StepParts {
  const EngineSetup& setup;
  const ProgramMemory& memory;
  GroupStore& store;
  StepRun& run;
  Flights& flights;
  StepCarry& carry;
  RunImage& image;
  DeviceCopies* copies = nullptr;  // null: a CPU on which everything lives on the device
  TierStore* tiers = nullptr;
  DeviceGraphs* graphs = nullptr;  // null: steps are not launched as graphs
  OpClock* clock = nullptr;        // null: times are the host's
};

}  // namespace sluice
