#include <nlohmann/json.hpp>

#include "base/index.hpp"
#include "runtime/plan/plan_text.hpp"

namespace sluice {

std::string plan_json(const StepPlan& plan, const Program& program, const MemoryPlan& memory,
                      const TimeReport* time, const std::vector<TierBytes>& stages) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["fits"] = memory.fits();
  constexpr std::array kTiers{Tier::kDevice, Tier::kHost, Tier::kNvme};
  for (const Tier tier : kTiers) {
    const TierPlan& of = memory.of(tier);
    Json& row = json["tiers"][std::string(name_of(tier))];
    row["peak"] = of.peak;
    row["budget"] = of.budget > 0 ? Json(of.budget) : Json(nullptr);
    if (of.nccl > 0) row["nccl_estimate"] = of.nccl;
    row["by_tag"] = Json::object();
    for (const auto& [tag, bytes] : of.by_tag) row["by_tag"][tag] = bytes;
  }
  for (std::size_t stage = 0; stages.size() > 1 && stage < stages.size(); ++stage) {
    Json& row = json["stages"].emplace_back();
    for (const Tier tier : kTiers) row[std::string(name_of(tier))] = nth(stages[stage], tier);
  }
  const auto traffic = traffic_of(program);
  if (time != nullptr) {
    json["step_ms"] = time->step_s * 1e3;
    json["limiting_lane"] = name_of(time->limiting);
  }
  json["stage"] = plan.shape.stage;
  json["dp"] = plan.shape.dp;
  json["micro_batches"] = plan.shape.micro_batches;
  json["operations"] = program.ops.size();
  json["comm_bytes"] = traffic.sent();
  json["nvme_read_bytes_per_step"] = traffic.disk_read;
  json["nvme_write_bytes_per_step"] = traffic.disk_written;
  json["model_flops"] = plan.model_flops_per_step;
  return json.dump(2) + "\n";
}

}  // namespace sluice
