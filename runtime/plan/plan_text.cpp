#include "runtime/plan/plan_text.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {
namespace {

constexpr std::array kTiers{Tier::kDevice, Tier::kHost, Tier::kNvme};

TierPlan plan_tier(const Program& program, Tier tier) {
  const MemoryReport memory = add_up(program, tier);
  TierPlan plan;
  for (int t = 0; t < kTagCount; ++t) {
    const std::int64_t bytes = nth(memory.by_tag, t);
    if (bytes > 0) plan.by_tag.emplace_back(name_of(static_cast<Tag>(t)), bytes);
  }
  plan.peak = memory.peak();
  return plan;
}

std::int64_t bytes_of(const TierPlan& tier, std::string_view tag) {
  for (const auto& [name, bytes] : tier.by_tag) {
    if (name == tag) return bytes;
  }
  return 0;
}

// Changes that take bytes off a tier, as arguments of the program. Only changes that are valid for
// this plan (configs/offload_rules.hpp) and that have an effect.
class Advice {
 public:
  // `of_budget`: the limit is memory.device and not a card's memory, which no setting enlarges.
  Advice(const StepPlan& plan, const MemoryPlan& memory, bool of_budget)
      : shape_(plan.shape), smaller_step_(memory.budgets.smaller_step), of_budget_(of_budget) {
    if (!smaller_step_.empty()) return;
    const bool generates = shape_.frozen && plan.decoding.has_value();
    smaller_step_ = generates ? "--set model.seq=<fewer>" : "--set train.micro_batch=<fewer>";
  }

  std::string for_tier(Tier tier) {
    switch (tier) {
      case Tier::kDevice:
        for_device();
        break;
      case Tier::kHost:
        for_host();
        break;
      case Tier::kNvme:
        for_nvme();
        break;
    }
    return text_;
  }

 private:
  void say(const std::string& argument) { text_ += (text_.empty() ? "" : ", ") + argument; }
  void set(const std::string& change) { say("--set " + change); }

  // A tier of parameters needs groups that do not stay gathered.
  [[nodiscard]] bool shards_parameters() const {
    return std::any_of(shape_.groups.begin(), shape_.groups.end(),
                       [](const GroupShape& group) { return !group.resident; });
  }

  void for_device() {
    const Placement& p = shape_.placement;
    if (shape_.stage < 3 && shape_.dp > 1) set("zero.stage=3");
    if (shape_.frozen) return for_use();
    if (!shape_.recompute) set("recompute.mode=full");
    if (shape_.dtype == DType::kFloat32) set("train.dtype=bf16");
    const bool updated_there = p.optimizer == Tier::kDevice;
    if (updated_there) set("offload.optimizer=host");
    if (p.device_fraction > 0) set("offload.device_fraction=0");
    const bool may_move = !updated_there && p.device_fraction == 0;
    if (may_move && shape_.stage >= 2 && p.gradients == Tier::kDevice) {
      set("offload.gradients=host");
    }
    if (may_move && shape_.stage == 3 && p.parameters == Tier::kDevice && shards_parameters()) {
      set("offload.parameters=host");
    }
    if (shape_.recompute && p.activations == Tier::kDevice) set("offload.activations=host");
    const std::int64_t least_bucket = 4 * shape_.dp * kAlignElems;
    if (shape_.dp > 1 && shape_.bucket_bytes > least_bucket) set("zero.bucket_bytes=<less>");
    const bool fetches_ahead = shape_.stage == 3 || p.activations != Tier::kDevice;
    if (fetches_ahead && shape_.prefetch_units > 0) set("zero.prefetch_units=0");
    say(smaller_step_);
    if (of_budget_) set("memory.device=<more>");
  }

  // An engine that evaluates or generates has only parameters and the memory of a batch.
  void for_use() {
    if (shape_.dtype == DType::kFloat32) set("train.dtype=bf16");
    if (shape_.placement.parameters == Tier::kDevice) set("offload.parameters=host");
    if (shape_.stage == 3 && shape_.prefetch_units > 0) set("zero.prefetch_units=0");
    say(smaller_step_);
    if (of_budget_) set("memory.device=<more>");
  }

  void for_host() {
    const Placement& p = shape_.placement;
    move_all(Tier::kHost, "nvme");
    const auto on_host = [](const GroupShape& group) { return group.states_on_host; };
    if (std::any_of(shape_.groups.begin(), shape_.groups.end(), on_host)) {
      set("offload.host_fraction=<less>");
    }
    if (p.optimizer != Tier::kDevice) {
      if (p.chunk_elems > kChunkAlignElems) set("offload.chunk_bytes=<less>");
      if (p.chunk_slots > 1) set("offload.chunks=" + std::to_string(p.chunk_slots / 2));
    }
    if (uses_nvme(p) && shape_.store.queue_depth != 1) set("offload.queue_depth=<fewer>");
    set("memory.host=<more>");
  }

  void for_nvme() {
    const Placement& p = shape_.placement;
    if (p.optimizer == Tier::kNvme && !p.image) set("offload.host_fraction=<more>");
    move_all(Tier::kNvme, "host");
    if (p.image) set("offload.image=false");
    if (shape_.stage == 0 && shape_.dp > 1) set("zero.stage=1");
    set("memory.nvme=<more>");
  }

  // Gradients of replicas are added up in memory, so they cannot be on NVMe.
  void move_all(Tier from, const std::string& to) {
    const Placement& p = shape_.placement;
    if (p.optimizer == from) set("offload.optimizer=" + to);
    if (p.parameters == from) set("offload.parameters=" + to);
    const bool adds_replicas =
        std::any_of(shape_.groups.begin(), shape_.groups.end(),
                    [](const GroupShape& group) { return group.add_replicas; });
    if (p.gradients == from && !(to == "nvme" && adds_replicas)) set("offload.gradients=" + to);
    if (p.activations == from) set("offload.activations=" + to);
  }

  const StepShape& shape_;
  std::string smaller_step_;
  bool of_budget_;
  std::string text_;
};

// A table with one line per name and one figure per shown tier.
class Table {
 public:
  explicit Table(const MemoryPlan& memory) : memory_(memory) {
    for (const Tier tier : kTiers) {
      const TierPlan& plan = memory.of(tier);
      if (tier == Tier::kDevice || plan.peak > 0 || plan.budget > 0) shown_.push_back(tier);
    }
  }

  std::string text() {
    if (shown_.size() == 1) {
      text_ = "device memory of a rank, where it is highest\n";
    } else {
      text_ = "memory of a rank, each tier where it is highest\n";
      cell("", true);
      for (const Tier tier : shown_) cell(name_of(tier));
      text_ += "\n";
    }
    for (const std::string& tag : tags()) {
      row(tag, [&](const TierPlan& tier) { return bytes_of(tier, tag); });
    }
    row("arena slots not in use", [](const TierPlan& tier) {
      std::int64_t unused = tier.peak;
      for (const auto& [name, bytes] : tier.by_tag) unused -= bytes;
      return unused;
    });
    row("peak", [](const TierPlan& tier) { return tier.peak; });
    if (memory_.of(Tier::kDevice).nccl > 0) {
      row(std::string(kNcclBuffers), [](const TierPlan& tier) { return tier.nccl; });
    }
    if (std::any_of(shown_.begin(), shown_.end(),
                    [&](Tier t) { return memory_.of(t).budget > 0; })) {
      row("budget", [](const TierPlan& tier) { return tier.budget; });
    }
    return text_;
  }

 private:
  void cell(std::string_view text, bool first = false) {
    char field[64];
    std::snprintf(field, sizeof field, first ? "  %-24.*s" : " %12.*s",
                  static_cast<int>(text.size()), text.data());
    text_ += field;
  }
  template <class Figure>
  void row(const std::string& name, Figure figure) {
    cell(name, true);
    for (const Tier tier : shown_) {
      const std::int64_t bytes = figure(memory_.of(tier));
      cell(bytes > 0 ? format_bytes(bytes) : "-");
    }
    text_ += "\n";
  }
  // Tags of all tiers, sorted by the largest figure in the tag's line.
  std::vector<std::string> tags() const {
    std::vector<std::pair<std::string, std::int64_t>> sums;
    for (const Tier tier : shown_) {
      for (const auto& [name, bytes] : memory_.of(tier).by_tag) {
        const auto known = std::find_if(sums.begin(), sums.end(),
                                        [&name = name](const auto& s) { return s.first == name; });
        if (known == sums.end()) {
          sums.emplace_back(name, bytes);
        } else {
          known->second = std::max(known->second, bytes);
        }
      }
    }
    std::stable_sort(sums.begin(), sums.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    std::vector<std::string> names;
    for (const auto& [name, bytes] : sums) names.push_back(name);
    return names;
  }

  const MemoryPlan& memory_;
  std::vector<Tier> shown_;
  std::string text_;
};

std::string holders_and_advice(const StepPlan& plan, const MemoryPlan& memory) {
  return "\n  largest: " + describe_tags(memory.of(Tier::kDevice)) +
         "\n  to need less: " + Advice(plan, memory, false).for_tier(Tier::kDevice);
}

constexpr const char* kOtherUsers = "\n  nvidia-smi lists what else uses the card";

// The allocator's message without its stack and its last sentences, which advise a setting that
// Sluice refuses (expandable_segments).
std::string first_facts(const std::string& message) {
  return message.substr(0, std::min(message.find('\n'), message.find(" If reserved but ")));
}

// Whether the message names a limit of the process, which is memory.device, below the card's.
bool names_budget(const std::string& message) {
  return message.find(" allowed;") != std::string::npos;
}

// Of a plan that no GPU of this machine holds, whatever else runs there.
std::string complaint_of_card(const StepPlan& plan, const MemoryPlan& memory) {
  const TierPlan& device = memory.of(Tier::kDevice);
  return "GPU memory: a step needs " + format_bytes(device.peak) + " a rank, " +
         format_bytes(device.peak - device.card) + " more than the " + format_bytes(device.card) +
         " of the card." + holders_and_advice(plan, memory);
}

// "memory.host: a step needs 5.0 MiB a rank, ...", with the largest tags and advice.
std::string complaint(const StepPlan& plan, const MemoryPlan& memory, Tier tier) {
  const TierPlan& need = memory.of(tier);
  const int ranks = memory.budgets.ranks_of_host;
  if (need.budget == 0 || need.need() <= need.budget) return complaint_of_card(plan, memory);
  std::string text = "memory." + std::string(name_of(tier)) + ": a step needs " +
                     format_bytes(need.need()) + " a rank, " +
                     format_bytes(need.need() - need.budget) + " more than the budget of " +
                     format_bytes(need.budget);
  if (tier != Tier::kDevice && ranks > 1) {
    text += ", its share of the host's (" + std::to_string(ranks) + " ranks)";
  }
  return text + ".\n  largest: " + describe_tags(need) +
         "\n  to need less: " + Advice(plan, memory, true).for_tier(tier);
}

}  // namespace

MemoryPlan plan_memory(const Program& program, const TierBudgets& budgets, std::int64_t nccl) {
  MemoryPlan plan;
  plan.budgets = budgets;
  for (const Tier tier : kTiers) {
    nth(plan.tiers, tier) = plan_tier(program, tier);
  }
  auto& [device, host, disk] = plan.tiers;
  device.budget = budgets.device;
  device.nccl = nccl;
  device.card = budgets.card;
  host.budget = budgets.host;
  disk.budget = budgets.nvme;
  host.peak = host_need(program);
  if (host.peak > 0) host.by_tag.emplace_back("step_program", host_bytes_of(program));
  for (TierPlan& tier : plan.tiers) {
    std::stable_sort(tier.by_tag.begin(), tier.by_tag.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  return plan;
}

std::string describe_tags(const TierPlan& tier) {
  std::string text;
  for (const auto& [tag, bytes] : tier.by_tag) {
    text += (text.empty() ? "" : ", ") + tag + " " + format_bytes(bytes);
  }
  if (tier.nccl > 0) text += ", " + std::string(kNcclBuffers) + " " + format_bytes(tier.nccl);
  return text;
}

std::string describe_plan(const StepPlan& plan, const Program& program, const MemoryPlan& memory) {
  std::string text = Table(memory).text();
  char line[128];
  std::snprintf(line, sizeof line, "step: %zu operations, %d micro-batch(es), %.3g model TFLOP\n",
                program.ops.size(), plan.shape.micro_batches, plan.model_flops_per_step * 1e-12);
  text += line;
  const auto traffic = traffic_of(program);
  text += "wire: " + format_bytes(traffic.sent()) + " sent by a rank a step\n";
  if (traffic.disk_read + traffic.disk_written > 0) {
    text += "nvme: " + format_bytes(traffic.disk_read) + " read and " +
            format_bytes(traffic.disk_written) + " written by a rank a step\n";
  }
  return text;
}

void check_budget(const StepPlan& plan, const MemoryPlan& memory) {
  std::string text;
  for (const Tier tier : kTiers) {
    if (memory.of(tier).fits()) continue;
    text += (text.empty() ? "" : "\n") + complaint(plan, memory, tier);
  }
  if (!text.empty()) throw BudgetError(text);
}

void check_card(const StepPlan& plan, const MemoryPlan& memory, std::int64_t available, int gpu) {
  const std::int64_t need = memory.of(Tier::kDevice).peak;
  if (need <= available) return;
  throw BudgetError("GPU " + std::to_string(gpu) + ": a step needs " + format_bytes(need) +
                    " a rank, " + format_bytes(need - available) + " more than the " +
                    format_bytes(available) + " that are free on the card." + kOtherUsers +
                    holders_and_advice(plan, memory));
}

BudgetError out_of_device_memory(const StepPlan& plan, const MemoryPlan& memory,
                                 const std::string& what) {
  const std::string ran_out = "the device ran out of memory in a step of which the plan has " +
                              format_bytes(memory.of(Tier::kDevice).peak) + ": " +
                              first_facts(what);
  const std::string advice = holders_and_advice(plan, memory);
  return BudgetError(names_budget(what) ? ran_out + advice + ", --set memory.device=<more>"
                                        : ran_out + kOtherUsers + advice);
}

void check_device_peak(const StepPlan& plan, const MemoryPlan& memory, std::int64_t measured) {
  const TierPlan& device = memory.of(Tier::kDevice);
  const std::int64_t taken = measured + device.nccl;
  if (device.budget == 0 || taken <= device.budget) return;
  throw BudgetError("memory.device: a rank has taken " + format_bytes(taken) + ", " +
                    format_bytes(taken - device.budget) + " more than the budget of " +
                    format_bytes(device.budget) + ": " + format_bytes(measured - device.peak) +
                    " were beside the plan, which has " + format_bytes(device.peak) +
                    ".\n  largest: " + describe_tags(device) +
                    "\n  to go on: --set memory.device=<more>, " +
                    Advice(plan, memory, false).for_tier(Tier::kDevice));
}

}  // namespace sluice
