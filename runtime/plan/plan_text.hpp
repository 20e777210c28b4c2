// Texts of a plan: the dry run's text, plan.json, and the error of a plan that does not fit. Pure;
// thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

// Bytes of one rank; 0: no limit.
struct TierBudgets {
  std::int64_t device = 0;
  std::int64_t host = 0;  // its shares of the host's budgets
  std::int64_t nvme = 0;
  int ranks_of_host = 1;
  // Device and host together: a rank on a CPU has both in the host's memory.
  std::int64_t memory = 0;
  // All memory of the rank's GPU, an upper bound of the allocator's peak. NCCL's estimate does not
  // count: its bound might refuse a run that fits.
  std::int64_t card = 0;
  // Argument of the program that makes a step smaller. Empty: train.micro_batch, or model.seq where
  // the rank generates.
  std::string smaller_step{};
};

// The memory of a rank on one tier at its peak.
struct TierPlan {
  std::vector<std::pair<std::string, std::int64_t>> by_tag;  // bytes, largest first
  std::int64_t peak = 0;                                     // with unused slots
  std::int64_t budget = 0;
  // On a GPU's device: an estimate of NCCL's buffers, which its allocator does not count.
  std::int64_t nccl = 0;
  // Bytes that count against the budget.
  [[nodiscard]] std::int64_t need() const { return peak + nccl; }
  std::int64_t card = 0;  // of a GPU's device: TierBudgets::card
  // Bytes above the budget or the card, whichever is exceeded by more.
  [[nodiscard]] std::int64_t missing() const {
    const std::int64_t of_budget = budget == 0 ? 0 : need() - budget;
    const std::int64_t of_card = card == 0 ? 0 : peak - card;
    return std::max({of_budget, of_card, std::int64_t{0}});
  }
  [[nodiscard]] bool fits() const { return missing() == 0; }
};

using TierBytes = std::array<std::int64_t, static_cast<std::size_t>(kTierCount)>;

struct MemoryPlan {
  std::array<TierPlan, kTierCount> tiers;
  TierBudgets budgets;
  [[nodiscard]] const TierPlan& of(Tier tier) const { return nth(tiers, tier); }
  // Bytes above the budgets, summed over tiers.
  [[nodiscard]] std::int64_t missing() const {
    const auto& [device, host, disk] = tiers;
    const std::int64_t both = budgets.memory == 0 ? 0 : device.peak + host.peak - budgets.memory;
    return std::max(device.missing() + host.missing(), both) + disk.missing();
  }
  [[nodiscard]] bool fits() const { return missing() == 0; }
  // Bytes that the budgets leave on the device or the host; 0: none, or no budget is known.
  [[nodiscard]] std::int64_t spare_of(Tier tier) const {
    const TierPlan& plan = of(tier);
    const std::int64_t own = plan.budget - plan.need();
    const std::int64_t both = budgets.memory - of(Tier::kDevice).peak - of(Tier::kHost).peak;
    const std::int64_t spare = budgets.memory == 0 ? own
                               : plan.budget == 0  ? both
                                                   : std::min(own, both);
    return std::max<std::int64_t>(0, spare);
  }
};

// The name of TierPlan::nccl in texts.
inline constexpr const char* kNcclBuffers = "NCCL buffers, estimate";

// Throws BudgetError if the plan's device peak is above `available` bytes of GPU `gpu`.
void check_card(const StepPlan& plan, const MemoryPlan& memory, std::int64_t available, int gpu);
// The error of a step that runs out of device memory: the allocator's message, the plan's largest
// tags, and what to change.
[[nodiscard]] BudgetError out_of_device_memory(const StepPlan& plan, const MemoryPlan& memory,
                                               const std::string& what);

// The memory of a rank while it runs `program`, by tier. `nccl`: bytes of NCCL's buffers on a GPU
// (nccl_memory.hpp). The host's figure counts whole pages, as HostPool does. It also counts the
// step program itself if the program uses the host or NVMe.
[[nodiscard]] MemoryPlan plan_memory(const Program& program, const TierBudgets& budgets,
                                     std::int64_t nccl = 0);

// The tags of a tier at its peak, largest first: "activations 12.0 MiB, master 4.0 MiB, ...".
[[nodiscard]] std::string describe_tags(const TierPlan& tier);

// The dry run: memory by tag, a column for each tier that is used or limited, operations, bytes on
// the wire and to and from NVMe.
[[nodiscard]] std::string describe_plan(const StepPlan& plan, const Program& program,
                                        const MemoryPlan& memory);
// `time`: of this program; null where the machine's rates are not known. `stages`: a rank's peaks,
// of each pipeline stage.
[[nodiscard]] std::string plan_json(const StepPlan& plan, const Program& program,
                                    const MemoryPlan& memory, const TimeReport* time,
                                    const std::vector<TierBytes>& stages);

// Throws BudgetError if a rank needs more than a tier's budget or its GPU's memory. The error names
// all such tiers, their largest tags, and changes that make the plan fit. Does not check
// TierBudgets::memory, which only a search for this host sets.
void check_budget(const StepPlan& plan, const MemoryPlan& memory);

// The same check after the run: throws BudgetError if `measured`, the rank's peak on its device, is
// above the budget.
void check_device_peak(const StepPlan& plan, const MemoryPlan& memory, std::int64_t measured);

}  // namespace sluice
