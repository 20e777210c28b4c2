#include "runtime/engine/plan_text.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "kernels/base/bytes.hpp"
#include "kernels/base/error.hpp"

namespace sluice {
namespace {

std::vector<std::pair<Tag, std::int64_t>> largest_first(const MemoryReport& memory) {
  std::vector<std::pair<Tag, std::int64_t>> tags;
  for (int t = 0; t < kTagCount; ++t) {
    const std::int64_t bytes = memory.by_tag[static_cast<std::size_t>(t)];
    if (bytes > 0) tags.emplace_back(static_cast<Tag>(t), bytes);
  }
  std::stable_sort(tags.begin(), tags.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return tags;
}

std::int64_t wire_bytes(const Program& program) {
  std::int64_t bytes = 0;
  for (const Op& op : program.ops) bytes += op.wire_bytes;
  return bytes;
}

std::string advice(const StepPlan& plan) {
  std::string text;
  const auto suggest = [&](const std::string& change) {
    text += text.empty() ? "--set " + change : ", --set " + change;
  };
  if (plan.shape.stage < 3 && plan.shape.dp > 1) suggest("zero.stage=3");
  if (!plan.shape.recompute) suggest("recompute.mode=full");
  if (plan.shape.dtype == DType::kFloat32) suggest("train.dtype=bf16");
  suggest("train.micro_batch=<fewer>");
  return text;
}

}  // namespace

std::string describe_tags(const MemoryReport& memory) {
  std::string text;
  for (const auto& [tag, bytes] : largest_first(memory)) {
    if (!text.empty()) text += ", ";
    text += std::string(name_of(tag)) + " " + format_bytes(bytes);
  }
  return text;
}

std::string describe_plan(const StepPlan& plan, const Program& program,
                          const MemoryReport& memory) {
  std::string text;
  char line[128];
  const auto row = [&](std::string_view name, std::int64_t bytes) {
    std::snprintf(line, sizeof line, "  %-24.*s %12s\n", static_cast<int>(name.size()), name.data(),
                  format_bytes(bytes).c_str());
    text += line;
  };
  text += "device memory of a rank, where it is highest\n";
  std::int64_t tags = 0;
  for (const auto& [tag, bytes] : largest_first(memory)) {
    row(name_of(tag), bytes);
    tags += bytes;
  }
  row("arena slots not in use", memory.peak() - tags);
  row("peak", memory.peak());
  std::snprintf(line, sizeof line, "step: %zu operations, %d micro-batch(es), %.3g model TFLOP\n",
                program.ops.size(), plan.shape.micro_batches, plan.model_flops_per_step * 1e-12);
  text += line;
  text += "wire: " + format_bytes(wire_bytes(program)) + " sent by a rank a step\n";
  return text;
}

std::string plan_json(const StepPlan& plan, const Program& program, const MemoryReport& memory,
                      std::int64_t device_budget) {
  nlohmann::ordered_json tags;
  for (const auto& [tag, bytes] : largest_first(memory)) tags[std::string(name_of(tag))] = bytes;
  nlohmann::ordered_json json;
  json["fits"] = device_budget == 0 || memory.peak() <= device_budget;
  json["tiers"]["device"] = {{"peak", memory.peak()}, {"budget", device_budget}, {"by_tag", tags}};
  json["stage"] = plan.shape.stage;
  json["dp"] = plan.shape.dp;
  json["micro_batches"] = plan.shape.micro_batches;
  json["operations"] = program.ops.size();
  json["comm_bytes"] = wire_bytes(program);
  json["model_flops"] = plan.model_flops_per_step;
  return json.dump(2) + "\n";
}

void check_budget(const StepPlan& plan, const MemoryReport& memory, std::int64_t device_budget) {
  if (device_budget == 0 || memory.peak() <= device_budget) return;
  throw BudgetError("memory.device: a step needs " + format_bytes(memory.peak()) + " a rank, " +
                    format_bytes(memory.peak() - device_budget) + " more than the budget of " +
                    format_bytes(device_budget) + ".\n  largest: " + describe_tags(memory) +
                    "\n  to need less: " + advice(plan));
}

}  // namespace sluice
