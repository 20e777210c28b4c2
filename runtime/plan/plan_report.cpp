#include "runtime/plan/plan_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "runtime/plan/mesh_text.hpp"
#include "runtime/plan/report_lines.hpp"
#include "runtime/plan/timeline.hpp"

namespace sluice {
namespace {

constexpr std::array kTiers{Tier::kDevice, Tier::kHost, Tier::kNvme};

std::string budget_words(const TierPlan& tier) {
  if (tier.budget == 0) return "no budget";
  if (tier.fits()) {
    return "budget " + format_bytes(tier.budget) + ", " + format_bytes(tier.budget - tier.need()) +
           " to spare";
  }
  return "budget " + format_bytes(tier.budget) + ", " + format_bytes(tier.need() - tier.budget) +
         " TOO MUCH";
}

// One row per tag, one column per phase.
std::string tier_table(const RunPlan& plan, Tier tier) {
  const TierPlan& memory = plan.memory.of(tier);
  if (memory.peak == 0 && memory.budget == 0) return "";
  const PhasePeaks& phases = nth(plan.phases, tier);
  const std::int64_t beside = plan.beside_program(tier);
  std::string text = line("%s: %s a rank, %s\n", std::string(name_of(tier)).c_str(),
                          format_bytes(memory.need()).c_str(), budget_words(memory).c_str());
  const auto row = [&](std::string_view name, auto bytes_of) {
    std::string cells;
    bool any = false;
    for (const PhaseMemory& phase : phases) {
      const std::int64_t bytes = bytes_of(phase);
      any = any || bytes > 0;
      cells += line("%11s", bytes > 0 ? format_bytes(bytes).c_str() : "-");
    }
    if (any) text += line("  %-26s", std::string(name).c_str()) + cells + "\n";
  };
  for (int t = 0; t < kTagCount; ++t) {
    row(name_of(static_cast<Tag>(t)),
        [t](const PhaseMemory& phase) { return nth(phase.by_tag, t); });
  }
  row(kBesideProgram, [beside](const PhaseMemory&) { return beside; });
  row("slots not in use", [](const PhaseMemory& phase) {
    std::int64_t rest = phase.peak;
    for (const std::int64_t bytes : phase.by_tag) rest -= bytes;
    return rest;
  });
  row("peak", [beside](const PhaseMemory& phase) { return phase.peak + beside; });
  row(kNcclBuffers, [&memory](const PhaseMemory&) { return memory.nccl; });
  return text;
}

std::string memory_text(const RunPlan& plan) {
  const std::string whose = plan.stages.size() > 1
                                ? line("memory of a rank of stage %d", plan.stage)
                                : "memory of a rank";
  std::string text = line("%-28s", whose.c_str());
  for (int p = 0; p < kPhaseCount; ++p) {
    text += line("%11s", std::string(name_of(static_cast<Phase>(p))).c_str());
  }
  text += "\n";
  for (const Tier tier : kTiers) text += tier_table(plan, tier);
  if (plan.pinned > 0) {
    text += line("pinned, of the host's: %s\n", format_bytes(plan.pinned).c_str());
  }
  const int local = plan.node.ranks;
  if (local <= 1) return text;
  const bool alike = plan.stages.size() == 1;
  const std::string which = alike ? "each" : "the largest";
  std::string node = plan.nodes > 1
                         ? line("%s of %d nodes of %d ranks:", which.c_str(), plan.nodes, local)
                         : line("the node of %d ranks:", local);
  for (const Tier tier : kTiers) {
    const std::int64_t peak = nth(plan.node.peak, tier);
    if (peak == 0) continue;
    node += line(" %s %s,", std::string(name_of(tier)).c_str(), format_bytes(peak).c_str());
  }
  node.pop_back();  // the last comma
  return text + wrap(node + (is_mesh(plan) ? "" : "; its ranks are alike"));
}

std::string tokens_to_hide(const RunPlan& plan, const RunFacts& facts, Lane lane) {
  const double tokens = nth(facts.hiding, lane);
  if (lane == Lane::kCompute || nth(plan.time.busy, lane) <= 0) return "";
  if (tokens <= 0) return "hides";
  return std::isinf(tokens) ? "grows with tokens" : "from " + format_count(tokens) + " tokens";
}

std::string lanes_text(const RunPlan& plan, const RunFacts& facts) {
  const TimeReport& time = plan.time;
  const std::string lane_of =
      plan.stages.size() > 1 ? line("lane of stage %d", plan.stage) : "lane";
  std::string text =
      line("%-17sbusy  of step  compute waits  hides behind compute\n", lane_of.c_str());
  for (int l = 0; l < kLaneCount; ++l) {
    const auto i = static_cast<std::size_t>(l);
    const auto lane = static_cast<Lane>(l);
    if (time.busy[i] <= 0) continue;
    text += line("  %-10s %9s  %5.1f %%  %13s  %s\n", std::string(name_of(lane)).c_str(),
                 step_seconds_text(time.busy[i]).c_str(),
                 time.step_s > 0 ? 100 * time.busy[i] / time.step_s : 0,
                 time.waiting[i] > 0 ? step_seconds_text(time.waiting[i]).c_str() : "-",
                 tokens_to_hide(plan, facts, lane).c_str());
    text.erase(text.find_last_not_of(" \n") + 1);
    text += "\n";
  }
  return text;
}

// Explains a cost that the lanes' totals hide: an update waits for the norm, and the unit's next
// forward waits for the update. In micro order, more micro-batches hide no more of the update.
std::string waits_text(const RunPlan& plan) {
  constexpr double kWorthAWord = 0.05;
  const StepShape& shape = plan.shape;
  const TimeReport& time = plan.time;
  const double waits = nth(time.waiting, Lane::kHost) + nth(time.waiting, Lane::kDisk);
  if (plan.stages.size() > 1 || shape.placement.optimizer == Tier::kDevice ||
      time.limiting != Lane::kCompute || waits < kWorthAWord * time.step_s) {
    return "";
  }
  const bool one_forward = !shape.layer_major && shape.micro_batches > 1;
  std::string cures;
  if (one_forward) cures += "; train.accumulation_order: layer puts all forwards beside them";
  bool may = false;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    may = may || may_speculate(shape, g);
  }
  if (!shape.placement.speculate && may) {
    cures += "; offload.speculate: auto begins them under the last backward";
  }
  if (cures.empty()) return "";
  return wrap("compute waits " + step_seconds_text(waits) + " for updates, which go on beside " +
              (shape.placement.speculate ? "the last backward and " : "") +
              (one_forward ? "the first micro-batch's forward" : "the forward") + " alone" + cures);
}

std::string days(double seconds) {
  constexpr double kDay = 86400;
  if (seconds >= 3 * 365 * kDay) return line("%.1f years", seconds / (365.25 * kDay));
  if (seconds >= 2 * kDay) return line("%.1f days", seconds / kDay);
  return seconds >= 7200 ? line("%.1f hours", seconds / 3600) : format_duration(seconds);
}

std::string tokens_text(const RunFacts& facts) {
  return format_count(static_cast<double>(facts.tokens)) + " tokens";
}

// Bytes that a node writes, the lifetime of one drive, and the drives that a run wears out.
std::string drive_text(const RunPlan& plan, const RunFacts& facts) {
  if (plan.node_written() <= 0 || facts.endurance_bytes <= 0) return "";
  std::string text =
      line("a node writes %s a step; a drive rated for %.4g TB lasts %s\n",
           format_bytes(static_cast<std::int64_t>(plan.node_written())).c_str(),
           facts.endurance_bytes * 1e-12, days(plan.drive_seconds(facts.endurance_bytes)).c_str());
  const auto worn = [&](double steps) {
    const double drives = steps * plan.node_written() / facts.endurance_bytes;
    return drives < 1000 ? line("%.3g", drives) : format_count(drives);
  };
  std::string runs;
  const auto say = [&](const std::string& what, double steps) {
    runs += (runs.empty() ? "  worn out by " : ", by ") + what + ": " + worn(steps);
  };
  if (facts.steps > 0) say("the run", static_cast<double>(facts.steps));
  if (facts.tokens > 0) say(tokens_text(facts), plan.steps_for(facts.tokens));
  return runs.empty() ? text : text + runs + "\n";
}

std::string step_text(const RunPlan& plan, const RunFacts& facts) {
  std::string text =
      line("step %s: %s tokens/s, MFU %.1f %%; limited by %s\n",
           step_seconds_text(plan.time.step_s).c_str(), format_count(plan.tokens_per_s()).c_str(),
           100 * plan.mfu(), std::string(name_of(plan.time.limiting)).c_str());
  if (facts.steps > 0) {
    const auto steps = static_cast<double>(facts.steps);
    text += line("the run: %s steps, %s tokens, %s\n", format_count(steps).c_str(),
                 format_count(steps * static_cast<double>(plan.tokens_per_step)).c_str(),
                 days(steps * plan.time.step_s).c_str());
  }
  if (facts.tokens > 0) {
    const double steps = plan.steps_for(facts.tokens);
    text += line("%s: %s steps, %s\n", tokens_text(facts).c_str(), format_count(steps).c_str(),
                 days(steps * plan.time.step_s).c_str());
  }
  text += line("a rank a step: wire %s", format_bytes(plan.traffic.sent()).c_str());
  if (plan.traffic.to_host + plan.traffic.to_device > 0) {
    text += line(", to host %s, to device %s", format_bytes(plan.traffic.to_host).c_str(),
                 format_bytes(plan.traffic.to_device).c_str());
  }
  text += "\n" + wires_text(plan);
  if (plan.traffic.disk_read + plan.traffic.disk_written == 0) return text;
  text += line("NVMe a rank a step: %s read, %s written\n",
               format_bytes(plan.traffic.disk_read).c_str(),
               format_bytes(plan.traffic.disk_written).c_str());
  return text + drive_text(plan, facts);
}

// The lanes of the rank that needs most memory; for a pipeline, also the compute of all stages.
std::string picture(const RunPlan& plan) {
  if (plan.program.ops.empty()) return "";
  std::string text = "\none step, " + step_seconds_text(plan.time.step_s) + "\n";
  std::vector<StageRow> rows;
  for (const StagePlan& stage : plan.stages) {
    rows.push_back({&plan.program_of(stage), &stage.time});
  }
  const bool several = rows.size() > 1;
  if (several) text += draw_stages(rows, kReportWidth);
  text += draw_timeline(plan.program, plan.time, kReportWidth);
  text += "F forward  L loss head  B backward  ";
  if (several) text += "W of weights  X to other stages\n";
  return text +
         "N norm  U update  G gather  R reduce\n"
         "S states and gradients  P parameters  A activations; small: less than half\n";
}

}  // namespace

std::string report_text(const RunPlan& plan, const RunFacts& facts) {
  const StepShape& shape = plan.shape;
  std::string text = wrap("plan of " + facts.config + " for " + std::to_string(plan.ranks) +
                          (plan.ranks == 1 ? " rank" : " ranks") + " on " +
                          std::to_string(plan.nodes) + (plan.nodes == 1 ? " node" : " nodes") +
                          " of " + facts.machine + " (" + facts.rates_from + ")");
  const std::string frozen =
      plan.frozen_params == 0
          ? ""
          : " (" + format_count(static_cast<double>(plan.frozen_params)) + " frozen)";
  text +=
      wrap(line("%s, %s parameters%s, %s; stage %d, recompute %s, %d micro-batch%s in %s order; "
                "%s tokens a step",
                facts.model.c_str(), format_count(static_cast<double>(plan.params)).c_str(),
                frozen.c_str(), facts.dtype.c_str(), shape.stage, facts.recompute.c_str(),
                shape.micro_batches, shape.micro_batches == 1 ? "" : "es", facts.order.c_str(),
                format_count(static_cast<double>(plan.tokens_per_step)).c_str()));
  if (is_mesh(plan)) text += mesh_words(plan) + "\n";
  text += "\n" + memory_text(plan) + "\n";
  if (plan.stages.size() > 1) text += stages_text(plan) + "\n";
  text += lanes_text(plan, facts) + waits_text(plan) + step_text(plan, facts);
  text += picture(plan);
  for (const std::string& note : facts.notes) text += wrap("note: " + note);
  text += "\n";
  for (const std::string& shortage : facts.shortages) text += wrap(shortage);
  return text + verdict_text(plan, facts) + "\n";
}

std::string verdict_text(const RunPlan& plan, const RunFacts& facts) {
  if (plan.fits() && !facts.shortages.empty()) return "does not fit this machine";
  return plan.fits() ? "fits" : "does not fit: " + format_bytes(plan.missing()) + " too much";
}

}  // namespace sluice
